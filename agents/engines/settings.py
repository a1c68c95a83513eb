"""What a user says of the local engine. No torch here: configurations are read where torch may be missing."""

from __future__ import annotations

from dataclasses import dataclass

LOGIT_BYTES = 1 << 30
"""Of one copy of a batch's logits. What training and prompts need of the vocabulary's width goes through it."""


@dataclass(frozen=True)
class EngineSettings:
    """How a model is held and trained."""

    device: str = "cpu"
    """"cpu", "cuda", or a device of torch's such as "cuda:1"."""
    dtype: str = "float32"
    """Of the weights: float32, bfloat16 or float16. Full fine-tuning wants float32."""
    threads: int = 1
    """Of torch, in sampling; more do not help a small model. Their number changes the last digits."""
    rows: int = 128
    """Rollouts in the sampler's cache at a time."""
    tokens_per_batch: int = 16_384
    """Padded tokens of one forward and backward pass."""
    lora_rank: int = 0
    """Rank of the adapter that is trained; 0 trains all weights."""
    lora_alpha: int = 32
    """The adapter's scale is alpha over rank."""
    gradient_checkpointing: bool = False
    """Compute activations twice and keep few: slower, and much less memory."""
    weight_decay: float = 0.0
    """Of AdamW."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW."""
    clip_norm: float = 1.0
    """Longest gradient of an optimiser step; a longer one is scaled down to it."""
    logit_bytes: int = LOGIT_BYTES
    """Most that one copy of a batch's logits may take; more tokens go through the head in parts."""
    tolerance: float = 0.0
    """Most mean gap between a separate sampler's log-probabilities and the trainer's; 0 goes by the dtype."""
