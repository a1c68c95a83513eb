"""What a run takes of a GPU's memory, by arithmetic from the model's shape alone.

Weights, cache and optimiser are counted exactly. Activations and work space are estimates, which `make gpu-proof` holds
against what a GPU takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from toolorchestra.agents.engines.base import LOGIT_BYTES
from toolorchestra.envs.base.errors import ConfigError

GB = 1e9
LOGIT_COPIES = 4
"""Alive at once, at the start of the backward pass: log-softmax, and the gradients of what was picked of it, of itself
and of the logits."""
CONTEXT_BYTES = 1_500_000_000
"""CUDA context, kernels and fragments of a process."""
SAMPLER_WORK_BYTES = 3_000_000_000
"""vLLM's activations and captured graphs; an estimate."""
SERVER_SHARE = 0.9
"""Share of a GPU that a `vllm serve` of its own takes, unless it is told otherwise."""
ADAPTER_WIDTH = 4
"""peft keeps adapters in float32 over 16-bit weights."""
CACHE = "sampler: cache"

_QWEN3: Mapping[str, Any] = {"model_type": "qwen3", "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936}
_8B = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}
_SMALL = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "qwen3-8b": {**_QWEN3, **_8B, "tie_word_embeddings": False},
    "qwen3-0.6b": {**_QWEN3, **_SMALL, "tie_word_embeddings": True},
}
"""Shapes of known models, as their config.json says them."""

_KEPT: Mapping[tuple[int, bool], tuple[int, int, int, int]] = {
    (4, False): (24, 16, 16, 16),
    (2, False): (16, 8, 10, 10),
    (4, True): (16, 16, 12, 12),
    (2, True): (12, 8, 8, 8),
}
"""Bytes that a block keeps of a token for each of its hidden, inner, query and key-value width; by the width of a
weight, and whether an adapter is trained."""


@dataclass(frozen=True)
class Shape:
    """How large the parts of a Qwen3- or Llama-shaped model are."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    head_norms: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape:
        """Read a configuration as transformers writes it, or as it stands in a config.json."""

        def size(name: str, otherwise: int | None = None) -> int:
            value = config.get(name) or otherwise
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"a model's config.json has {name}, a whole number above 0, got {config.get(name)!r:.60}; give one "
                    "of a language model alone, shaped as Qwen3 or Llama"
                )
            return value

        heads, hidden = size("num_attention_heads"), size("hidden_size")
        return cls(
            hidden=hidden,
            inner=size("intermediate_size"),
            layers=size("num_hidden_layers"),
            heads=heads,
            kv_heads=size("num_key_value_heads", heads),
            head_width=size("head_dim", hidden // heads),
            vocabulary=size("vocab_size"),
            tied=bool(config.get("tie_word_embeddings")),
            head_norms=config.get("model_type") == "qwen3",
        )

    @property
    def _projections(self) -> tuple[tuple[int, int], ...]:
        """Widths in and out of each linear layer of a block."""
        q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        mlp = (self.hidden, self.inner)
        return ((self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden), mlp, mlp, mlp[::-1])

    @property
    def parameters(self) -> int:
        """The number of all parameters; biases are left out, which are a millionth where there are any."""
        norms = 2 * self.hidden + (2 * self.head_width if self.head_norms else 0)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (sum(i * o for i, o in self._projections) + norms) + embeddings + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        """The parameters of LoRA on every linear layer of every block."""
        return self.layers * sum(rank * (i + o) for i, o in self._projections)

    def kv_bytes_per_token(self, width: int) -> int:
        """Keys and values of one token in every layer."""
        return 2 * self.layers * self.kv_heads * self.head_width * width

    def checkpoint_bytes_per_token(self, width: int) -> int:
        """What checkpointing keeps of a token in one block: its input, what attention gave, and that one's sums."""
        return width * (self.hidden + self.heads * self.head_width) + 4 * self.heads

    def block_bytes_per_token(self, width: int, *, rank: int = 0) -> int:
        """What one block keeps of a token for its backward pass, as transformers writes Qwen3. Norms are computed in
        float32. An adapter keeps its own thin products."""
        widths = (self.hidden, self.inner, self.heads * self.head_width, self.kv_heads * self.head_width)
        kept = sum(count * each for count, each in zip(_KEPT[width, bool(rank)], widths, strict=True))
        return kept + width * len(self._projections) * rank


@dataclass(frozen=True)
class MemoryPlan:
    """The run whose memory is to be computed: its model, its device and its batches."""

    shape: Shape
    device_bytes: int
    width: int = 2
    """Bytes of a weight."""
    lora_rank: int = 0
    tokens_per_batch: int = 16_384
    checkpointing: bool = False
    average: bool = False
    reference: bool = False
    memory_share: float = 0.0
    """vLLM's, on the same device; 0 where there is none."""
    cache_width: int | None = None
    """Bytes of a number in the sampler's cache; None: as wide as a weight."""
    local_cache_tokens: int = 0
    """Rows x length of the sampler in this process, where that is used."""
    ahead: bool = False
    """Whether that sampler goes on while the weights change."""
    processes: int = 1
    """GPUs that train together: each holds a part of every weight."""
    narrow: bool = False
    """Whether what is multiplied is of 16 bits, though the weights are kept in more."""

    @property
    def computed(self) -> int:
        """Bytes of a number in what is computed."""
        return 2 if self.narrow else self.width


class MemoryPart(NamedTuple):
    """One line of the budget."""

    name: str
    bytes: int
    rollouts: bool
    training: bool
    knob: str = ""
    """What to change where it is too much; "" where the model decides."""


@dataclass(frozen=True)
class Budget:
    """All parts, and what is alive while rollouts are made and while the model is trained."""

    plan: MemoryPlan
    parts: tuple[MemoryPart, ...]

    def total(self, *, training: bool) -> int:
        """The bytes in use at the same time: while training, or with training=False while rollouts are made."""
        return sum(p.bytes for p in self.parts if (p.training if training else p.rollouts))

    @property
    def cached_tokens(self) -> int:
        """How many tokens the sampler's cache holds."""
        cache = sum(p.bytes for p in self.parts if p.name == CACHE)
        return max(0, cache) // self.plan.shape.kv_bytes_per_token(self.plan.cache_width or self.plan.width)

    def table(self) -> str:
        """The parts as a table in Markdown, in GB of 10^9 bytes."""
        rows = ["| part | GB | in rollouts | in training |", "|---|---|---|---|"]
        for part in self.parts:
            alive = [f"{part.bytes / GB:.1f}" if yes else "" for yes in (part.rollouts, part.training)]
            rows.append(f"| {part.name} | {part.bytes / GB:.1f} | {alive[0]} | {alive[1]} |")
        sums = [f"{self.total(training=t) / GB:.1f}" for t in (False, True)]
        rows.append(f"| **together, of {self.plan.device_bytes / GB:.1f}** | | **{sums[0]}** | **{sums[1]}** |")
        return "\n".join(rows)

    def check(self) -> None:
        """Refuse what does not fit, and name the part that would help most."""
        for phase, training in (("rollouts", False), ("training", True)):
            over = self.total(training=training) - self.plan.device_bytes
            if over > 0:
                alive = [p for p in self.parts if (p.training if training else p.rollouts) and p.knob]
                advice = "the model itself is too large for this device"
                if alive:
                    worst = max(alive, key=lambda p: p.bytes)
                    size = worst.bytes / GB
                    advice = f"the largest part that can shrink is {worst.name} ({size:.1f} GB): {worst.knob}"
                raise ConfigError(
                    f"{phase} would take {over / GB:.1f} GB more than the device's {self.plan.device_bytes / GB:.1f} "
                    f"GB; {advice}\n{self.table()}"
                )
        cache = next((p.bytes for p in self.parts if p.name == CACHE), 1)
        if cache <= 0:
            need = (self.plan.memory_share * self.plan.device_bytes - cache) / GB
            raise ConfigError(
                f"model.memory_share={self.plan.memory_share:g} leaves no room for vLLM's cache: its weights and work "
                f"take {need:.1f} GB; raise it\n{self.table()}"
            )


def budget(plan: MemoryPlan) -> Budget:
    """The parts of a plan."""
    shape, rank = plan.shape, plan.lora_rank
    weights = shape.parameters * plan.width // plan.processes
    trained = shape.adapter_parameters(rank) * ADAPTER_WIDTH // plan.processes if rank else weights
    adapter = trained if rank else 0
    fewer = "train fewer weights: model.lora_rank"
    # With LoRA the reference is the adapter as the warm start left it, since the weights below do not change.
    reference, without = (adapter, "loss.kl_weight=0") if rank else (weights, "loss.kl_weight=0, or LoRA")
    smaller = f"model.tokens_per_batch (now {plan.tokens_per_batch})"
    if not plan.checkpointing:
        smaller = f"model.gradient_checkpointing=true, then {smaller}"
    # Two blocks are put together at a time, and what is above the blocks.
    block = shape.parameters - replace(shape, layers=shape.layers - 2).parameters
    gathered = (block + replace(shape, layers=0).parameters) * plan.computed if plan.processes > 1 else 0
    parts = (
        MemoryPart("trainer: weights", weights, True, True),
        MemoryPart("trainer: weights put together", gathered, False, True),
        MemoryPart("trainer: adapter", adapter, True, True, fewer),
        MemoryPart("trainer: optimiser", 2 * trained, True, True, fewer),
        MemoryPart("trainer: gradients", trained, False, True, fewer),
        MemoryPart("trainer: activations, estimated", _activations(plan), False, True, smaller),
        MemoryPart("trainer: work, estimated", _work(plan), False, True, smaller),
        MemoryPart("trainer: context, estimated", CONTEXT_BYTES, True, True),
        MemoryPart("trainer: average", trained * plan.average, True, True, "average=0"),
        MemoryPart("trainer: reference", reference * plan.reference, True, True, without),
    )
    return Budget(plan, (*[p for p in parts if p.bytes], *_sampler(plan, shape.parameters * plan.width)))


def _activations(plan: MemoryPlan) -> int:
    """Bytes that are kept of a batch from its forward pass to its backward pass."""
    shape, width = plan.shape, plan.computed
    block = shape.block_bytes_per_token(width, rank=plan.lora_rank)
    kept = shape.checkpoint_bytes_per_token(width) if plan.checkpointing else block
    return plan.tokens_per_batch * shape.layers * kept


def _work(plan: MemoryPlan) -> int:
    """Bytes that come and go: those of the logits, or those of a block's backward pass, which with checkpointing makes
    anew what it needs. It has gradients of a quarter of that at the same time, and attention's sums in 32 bits."""
    shape = plan.shape
    block = shape.block_bytes_per_token(plan.computed, rank=plan.lora_rank)
    logits = min(LOGIT_BYTES, plan.tokens_per_batch * shape.vocabulary * 4)
    backward = block * (1 + 4 * plan.checkpointing) // 4 + 8 * shape.heads * shape.head_width
    return max(LOGIT_COPIES * logits, plan.tokens_per_batch * backward)


def _sampler(plan: MemoryPlan, weights: int) -> list[MemoryPart]:
    if plan.memory_share:
        share = int(plan.memory_share * plan.device_bytes)
        return [
            MemoryPart("sampler: weights", weights, True, False),
            MemoryPart("sampler: work, estimated", SAMPLER_WORK_BYTES, True, False),
            MemoryPart(CACHE, share - weights - SAMPLER_WORK_BYTES, True, False, "model.memory_share"),
            MemoryPart("sampler: asleep, estimated", CONTEXT_BYTES, False, True),
        ]
    if not plan.local_cache_tokens:
        return []
    cache = plan.local_cache_tokens * plan.shape.kv_bytes_per_token(plan.width)
    return [
        MemoryPart("sampler: copies of weights", _copies(plan) * plan.width, True, True, "sampler=vllm"),
        MemoryPart(CACHE, cache, True, True, "model.rows, or sampler=vllm"),
    ]


def _copies(plan: MemoryPlan) -> int:
    """Numbers of weights that the sampler in this process holds beside the trainer: what it has fused, or all linear
    layers where an adapter is added into them, or all weights where the trainer's change or are in parts."""
    if plan.processes > 1 or (plan.ahead and not plan.lora_rank):
        return replace(plan.shape, tied=False).parameters  # a tied one is copied by both of its names
    q, k, v, out, gate, up, down = (i * o for i, o in plan.shape._projections)
    merged = bool(plan.lora_rank) and plan.width == ADAPTER_WIDTH
    return plan.shape.layers * (q + k + v + gate + up + merged * (out + down))


def served_tokens(shape: Shape, device_bytes: int, width: int) -> int:
    """Tokens that the cache of a vLLM server holds which has a GPU of this size to itself, in numbers of so many bytes;
    0 where the model does not fit."""
    cache = int(SERVER_SHARE * device_bytes) - shape.parameters * 2 - SAMPLER_WORK_BYTES
    return max(0, cache) // shape.kv_bytes_per_token(width)


def training_operations(
    shape: Shape, length: int, *, lora: bool, checkpointing: bool = False, reference: bool = False
) -> float:
    """Floating-point operations of one optimiser step for each token of sequences of this length.

    A forward pass takes two for each weight, and 4 x layers x width for each token that attention looks back at, on
    average half of them. A backward pass takes twice that; an adapter's needs no gradients of the weights below it,
    which is half of the weights' part. A reference model runs the forward pass again, and checkpointing all of it but
    attention.
    """
    embeddings = shape.vocabulary * shape.hidden  # looked up, not multiplied; the head stays
    weights = 2.0 * (shape.parameters - (0 if shape.tied else embeddings))
    attention = 4.0 * shape.layers * shape.heads * shape.head_width * length / 2
    forward = 1 + reference
    return weights * (forward + checkpointing + (1 if lora else 2)) + attention * (forward + 2)
