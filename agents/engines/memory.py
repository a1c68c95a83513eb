"""What a run takes of a GPU's memory, part by part, from the model's shape alone; checked before anything is loaded.

Weights, cache and optimiser are counted exactly; activations and work space are estimates, and are called so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolorchestra.agents.engines.settings import LOGIT_BYTES
from toolorchestra.envs.base.errors import ConfigError

GB = 1e9
LOGIT_COPIES = 4
"""Alive at once, at the start of the backward pass: log-softmax, and the gradients of what was picked of it, of itself
and of the logits. Before it there are three: log-softmax, its exponential and their product for the entropy."""
CONTEXT_BYTES = 1_500_000_000
"""CUDA context, kernels and fragments of a process."""
SAMPLER_WORK_BYTES = 3_000_000_000
"""vLLM's activations and captured graphs; an estimate."""
SERVER_SHARE = 0.9
"""Of a GPU that a `vllm serve` of its own takes, unless it is told otherwise."""
ADAPTER_WIDTH = 4
"""peft keeps adapters in float32 over 16-bit weights."""


@dataclass(frozen=True)
class Shape:
    """Of a Qwen3- or Llama-shaped model."""

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
        """From a configuration as transformers writes it, or as it stands in a config.json."""
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        return cls(
            hidden=hidden,
            inner=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_width=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings")),
            head_norms=config.get("model_type") == "qwen3",
        )

    @property
    def _projections(self) -> tuple[tuple[int, int], ...]:
        """In and out of each linear layer of a block."""
        q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        mlp = (self.hidden, self.inner)
        return ((self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden), mlp, mlp, mlp[::-1])

    @property
    def parameters(self) -> int:
        """All of them; biases are left out, which are a millionth where there are any."""
        norms = 2 * self.hidden + (2 * self.head_width if self.head_norms else 0)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.block_parameters + self.layers * norms + embeddings + self.hidden

    @property
    def block_parameters(self) -> int:
        """Of the linear layers of all blocks, which an adapter stands on."""
        return self.layers * sum(i * o for i, o in self._projections)

    def adapter_parameters(self, rank: int) -> int:
        """Of LoRA on every linear layer of every block."""
        return self.layers * sum(rank * (i + o) for i, o in self._projections)

    def kv_bytes_per_token(self, width: int) -> int:
        """Keys and values of one token in every layer."""
        return 2 * self.layers * self.kv_heads * self.head_width * width

    def block_bytes_per_token(self, width: int, *, rank: int = 0) -> int:
        """What one block keeps of a token for its backward pass, as transformers' Qwen3 and peft write it; counted by
        scripts/measure_memory.py. Norms are computed in float32. An adapter keeps each layer's input in float32, once
        for every layer that reads it, and its own thin product; under it norms have no gradients."""
        q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        of = _KEPT[width, bool(rank)]
        adapter = ADAPTER_WIDTH * len(self._projections) * rank
        return of.hidden * self.hidden + of.inner * self.inner + of.query * q + of.key_value * kv + adapter


class _Kept(NamedTuple):
    """Bytes that a block keeps of a token for each of its width."""

    hidden: int
    inner: int
    query: int
    key_value: int


_KEPT: Mapping[tuple[int, bool], _Kept] = {
    (4, False): _Kept(24, 16, 16, 16),
    (2, False): _Kept(16, 8, 10, 10),
    (4, True): _Kept(16, 16, 12, 12),
    (2, True): _Kept(28, 10, 12, 8),
}
"""By the width of a weight, and whether an adapter is trained."""


@dataclass(frozen=True)
class MemoryPlan:
    """The run whose memory is to be computed: its model, its device and its batches."""

    shape: Shape
    device_bytes: int
    width: int = 2
    """Bytes of a weight."""
    lora_rank: int = 0
    tokens_per_batch: int = 16_384
    logit_tokens: int = 0
    """Tokens of a batch that are learnt from; 0: all of them."""
    logit_bytes: int = LOGIT_BYTES
    checkpointing: bool = False
    merged: bool = False
    """LoRA in float32 on a CPU: each adapted layer's weight is kept merged with its adapter as well."""
    average: bool = False
    reference: bool = False
    memory_share: float = 0.0
    """vLLM's, on the same device; 0 where there is none."""
    local_cache_tokens: int = 0
    """Rows x length of the sampler in this process, where that is used."""


class MemoryPart(NamedTuple):
    """One line of the budget."""

    name: str
    bytes: int
    rollouts: bool
    training: bool
    knob: str
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
        cache = next((p.bytes for p in self.parts if p.name == "sampler: cache"), 0)
        return max(0, cache) // self.plan.shape.kv_bytes_per_token(self.plan.width)

    def table(self) -> str:
        """As Markdown, in GB of 10^9 bytes."""
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
                raise ConfigError(
                    f"{phase} would take {over / GB:.1f} GB more than the device's {self.plan.device_bytes / GB:.1f} "
                    f"GB; {_advice(alive)}\n{self.table()}"
                )
        cache = next((p.bytes for p in self.parts if p.name == "sampler: cache"), 1)
        if cache <= 0:
            need = (self.plan.memory_share * self.plan.device_bytes - cache) / GB
            raise ConfigError(
                f"model.memory_share={self.plan.memory_share:g} leaves no room for vLLM's cache: its weights and work "
                f"take {need:.1f} GB; raise it\n{self.table()}"
            )


def _advice(parts: list[MemoryPart]) -> str:
    if not parts:
        return "the model itself is too large for this device"
    worst = max(parts, key=lambda p: p.bytes)
    return f"the largest part that can shrink is {worst.name} ({worst.bytes / GB:.1f} GB): {worst.knob}"


def budget(plan: MemoryPlan) -> Budget:
    """The parts of a plan."""
    shape, width = plan.shape, plan.width
    weights = shape.parameters * width
    trained = shape.adapter_parameters(plan.lora_rank) if plan.lora_rank else shape.parameters
    trained_width = ADAPTER_WIDTH if plan.lora_rank else width
    states = "train fewer weights: model.lora_rank"
    adapter = trained * trained_width if plan.lora_rank else 0
    parts = [
        MemoryPart("trainer: weights", weights, True, True, ""),
        MemoryPart("trainer: adapter", adapter, True, True, states),
        MemoryPart("trainer: optimiser", 2 * trained * trained_width, True, True, states),
        MemoryPart("trainer: gradients", trained * trained_width, False, True, states),
        MemoryPart("trainer: activations, estimated", _activations(plan), False, True, _fewer(plan)),
        MemoryPart("trainer: logits, estimated", _logits(plan), False, True, ""),
        MemoryPart("trainer: context, estimated", CONTEXT_BYTES, True, True, ""),
    ]
    if plan.merged:
        parts.append(MemoryPart("trainer: merged layers", shape.block_parameters * width, True, True, states))
    if plan.average:
        parts.append(MemoryPart("trainer: average", trained * trained_width, True, True, "average=0"))
    if plan.reference:  # with LoRA the adapter as the warm start left it, since the weights below do not change
        kept, knob = (adapter, 'loss.kl=""') if plan.lora_rank else (weights, 'loss.kl="", or LoRA')
        parts.append(MemoryPart("trainer: reference", kept, True, True, knob))
    return Budget(plan, (*[p for p in parts if p.bytes], *_sampler(plan, weights)))


def served_tokens(shape: Shape, device_bytes: int, width: int = 2) -> int:
    """Tokens that the cache of a vLLM server holds which has a GPU of this size to itself; 0 where the model does not
    fit."""
    cache = int(SERVER_SHARE * device_bytes) - shape.parameters * width - SAMPLER_WORK_BYTES
    return max(0, cache) // shape.kv_bytes_per_token(width)


def _sampler(plan: MemoryPlan, weights: int) -> list[MemoryPart]:
    if plan.memory_share:
        share = int(plan.memory_share * plan.device_bytes)
        cache = share - weights - SAMPLER_WORK_BYTES
        return [
            MemoryPart("sampler: weights", weights, True, False, ""),
            MemoryPart("sampler: work, estimated", SAMPLER_WORK_BYTES, True, False, ""),
            MemoryPart("sampler: cache", cache, True, False, "model.memory_share"),
            MemoryPart("sampler: asleep, estimated", CONTEXT_BYTES, False, True, ""),
        ]
    cache = plan.local_cache_tokens * plan.shape.kv_bytes_per_token(plan.width)
    return [MemoryPart("sampler: cache", cache, True, True, "model.rows, or sampler=vllm")] if cache else []


def _fewer(plan: MemoryPlan) -> str:
    knob = f"model.tokens_per_batch (now {plan.tokens_per_batch})"
    return knob if plan.checkpointing else f"model.gradient_checkpointing=true, then {knob}"


def _activations(plan: MemoryPlan) -> int:
    """With checkpointing each block keeps its input, and one block at a time the rest; without it all do."""
    block = plan.shape.block_bytes_per_token(plan.width, rank=plan.lora_rank)
    if not plan.checkpointing:
        return plan.tokens_per_batch * plan.shape.layers * block
    return plan.tokens_per_batch * (plan.shape.layers * plan.shape.hidden * plan.width + block)


def _logits(plan: MemoryPlan) -> int:
    tokens = plan.logit_tokens or plan.tokens_per_batch
    return LOGIT_COPIES * min(plan.logit_bytes, tokens * plan.shape.vocabulary * 4)
