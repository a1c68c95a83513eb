"""What a user says of the local engine. No torch here: configurations are read where torch may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OptimizerKind = Literal["adamw", "muon"]

LOGIT_BYTES = 1 << 30
"""Bytes of one copy of a batch's logits. What training and prompts need of the vocabulary's width goes through it."""


@dataclass(frozen=True)
class EngineSettings:
    """How a model is held and trained."""

    device: str = "cpu"
    """"cpu", "cuda", or a device of torch's such as "cuda:1"."""
    dtype: str = "float32"
    """The weights' own: float32, bfloat16 or float16. Full fine-tuning wants float32."""
    threads: int = 1
    """CPU threads of torch. More do not help a small model. Another number changes the last digits of the results."""
    rows: int = 128
    """How many rollouts the sampler holds in its cache at a time."""
    tokens_per_batch: int = 16_384
    """How many tokens, padding included, go through the model in one forward and backward pass."""
    lora_rank: int = 0
    """Rank of the adapter that is trained; 0 trains all weights."""
    lora_alpha: int = 32
    """The adapter's scale is alpha over rank."""
    gradient_checkpointing: bool = False
    """Compute activations twice and keep few: slower, and much less memory."""
    optimizer: OptimizerKind = "adamw"
    """The optimiser of engine "local". "adamw" is AdamW for all weights. "muon" is Muon for the matrices of the layers
    and AdamW for the rest; it needs fewer steps where a model is trained from scratch."""
    tolerance: float = 0.0
    """Most mean gap between a separate sampler's log-probabilities and the trainer's; 0 goes by the dtype."""
