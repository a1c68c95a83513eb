"""How long one training step takes, by arithmetic from the model's shape and from assumptions that are all named.

Nothing here was measured. Sampling: tokens over tokens a second. Training: floating-point operations over the share of
the GPU's peak that such a trainer reaches. Hand-over: bytes over bytes a second, to write and to read.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolorchestra.agents.engines.memory import ADAPTER_WIDTH, Shape

FILE_BYTES_PER_SECOND = 3e9
"""Of a hand-over through /dev/shm, one way."""


@dataclass(frozen=True)
class StepPlan:
    """One step, and what it is made on."""

    shape: Shape
    episodes: int
    """Rollouts of a step."""
    opening_tokens: int
    """What an episode begins with."""
    sampled_tokens: int
    """That the model writes in an episode."""
    result_tokens: int
    """That tools and users add to it."""
    sampled_per_second: float
    """Tokens that one GPU samples in a second, over all of its episodes."""
    sampling_gpus: int
    training_gpus: int
    tflops: float
    """Of one GPU, as its maker states."""
    utilisation: float
    """Share of them that the trainer reaches (MFU)."""
    lora_rank: int = 0
    checkpointing: bool = False
    reference: bool = False
    """Whether a KL term asks the model that it is held to: one more forward pass."""
    drops_weights: bool = False
    """Whether the sampler sleeps while the model is trained, and reads the weights below an adapter again."""

    @property
    def length(self) -> int:
        """Tokens of a whole episode."""
        return self.opening_tokens + self.sampled_tokens + self.result_tokens


@dataclass(frozen=True)
class StepSeconds:
    """Where the seconds go. Samplers and trainer take turns: the algorithm is on policy."""

    rollouts: float
    training: float
    handover: float

    @property
    def together(self) -> float:
        """Of the step, without what experts and tools make it wait for."""
        return self.rollouts + self.training + self.handover


def training_operations(
    shape: Shape, length: int, *, lora: bool, checkpointing: bool = False, reference: bool = False
) -> float:
    """Floating-point operations of one optimiser step for each token of sequences of this length.

    A forward pass takes two for each weight, and 4 x layers x width for each token that attention looks back at, on
    average half of them. A backward pass takes twice that; an adapter's needs no gradients of the weights below it,
    which is half of the weights' part. Checkpointing runs the forward pass again, and so does a reference model.
    """
    embeddings = shape.vocabulary * shape.hidden  # looked up, not multiplied; the head stays
    weights = 2.0 * (shape.parameters - (0 if shape.tied else embeddings))
    attention = 4.0 * shape.layers * shape.heads * shape.head_width * length / 2
    forward = 1 + checkpointing + reference
    return weights * (forward + (1 if lora else 2)) + attention * (forward + 2)


def step_seconds(plan: StepPlan) -> StepSeconds:
    """How long each part of a training step takes, in seconds, computed from the plan."""
    shape = plan.shape
    sampled = plan.episodes * plan.sampled_tokens
    a_token = training_operations(
        shape, plan.length, lora=bool(plan.lora_rank), checkpointing=plan.checkpointing, reference=plan.reference
    )
    operations = a_token * plan.episodes * plan.length
    weights = 2.0 * shape.parameters
    adapter = float(ADAPTER_WIDTH * shape.adapter_parameters(plan.lora_rank)) if plan.lora_rank else 0.0
    written = adapter if plan.lora_rank else weights
    read = adapter + weights if plan.drops_weights or not plan.lora_rank else adapter
    return StepSeconds(
        rollouts=sampled / (plan.sampled_per_second * plan.sampling_gpus),
        training=operations / (plan.tflops * 1e12 * plan.utilisation * plan.training_gpus),
        handover=(written + read) / FILE_BYTES_PER_SECOND,
    )
