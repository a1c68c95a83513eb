"""The budget, against figures that are known of Qwen3-8B, models that were built, and numbers made by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.gpu_arithmetic import (
    CONTEXT_BYTES,
    SHAPES,
    MemoryPlan,
    Shape,
    budget,
    training_operations,
)
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.ranks import Following
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model, random_model
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError

QWEN3_8B = SHAPES["qwen3-8b"]
SHAPE = Shape.read(QWEN3_8B)
MULTIPLIED = SHAPE.parameters - 151_936 * 4096
"""Weights without the embeddings, which are looked up."""
H100_BYTES = 80 * 10**9


def test_qwen3_8b_has_its_parameters_and_its_cache() -> None:
    assert SHAPE.parameters == 8_190_735_360
    assert SHAPE.kv_bytes_per_token(2) == 2 * 36 * 8 * 128 * 2 == 147_456
    assert SHAPE.adapter_parameters(64) == 36 * 64 * 75_776


def test_parameters_are_those_of_a_model_that_was_built() -> None:
    model = build_model(64, 32, 3)
    assert Shape.read(model.config.to_dict()).parameters == sum(p.numel() for p in model.parameters())


def test_the_8b_preset_fits_80_gb_with_room_for_long_rollouts() -> None:
    made = budget(plan(preset("8b-h100"), QWEN3_8B, H100_BYTES))
    made.check()
    assert made.total(training=False) < H100_BYTES
    assert made.total(training=True) < H100_BYTES
    assert made.cached_tokens > 6 * preset("8b-h100").max_context
    assert "| trainer: weights | 16.4 | 16.4 | 16.4 |" in made.table()


def test_what_does_not_fit_names_what_can_shrink() -> None:
    config = preset("8b-h100")
    wanted = plan(config, QWEN3_8B, H100_BYTES)
    with pytest.raises(
        ConfigError, match=r"training would take .* the largest part .*activations.*model\.gradient_checkpointing=true"
    ):
        budget(replace(wanted, checkpointing=False)).check()
    with pytest.raises(ConfigError, match=r"rollouts would take .* sampler: cache .*: model\.memory_share"):
        budget(replace(wanted, memory_share=0.9)).check()
    with pytest.raises(ConfigError, match=r"memory_share=0\.2 leaves no room for vLLM's cache"):
        budget(replace(wanted, memory_share=0.2)).check()
    with pytest.raises(ConfigError, match=r"rollouts would take .* model\.lora_rank"):
        budget(replace(wanted, lora_rank=0)).check()
    with pytest.raises(ConfigError, match=r"sampler: cache \(75\.5 GB\): model\.rows, or sampler=vllm"):
        budget(replace(wanted, memory_share=0.0, local_cache_tokens=16 * 32_000)).check()


def test_full_training_takes_six_operations_a_weight_and_an_adapter_four() -> None:
    assert training_operations(SHAPE, 0, lora=False) == 6 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True) == 4 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True, checkpointing=True) == 6 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True, checkpointing=True, reference=True) == 8 * MULTIPLIED


TOKENS, RANK = 64, 8
PLAIN = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "tie_word_embeddings": True,
}


# -- a step that is taken, scaled down from Qwen3-8B -------------------------------------------------------------------

EIGHTH: dict[str, Any] = {
    **PLAIN,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
EIGHTH |= {"num_key_value_heads": 1, "head_dim": 32, "tie_word_embeddings": False}


def taken(monkeypatch: pytest.MonkeyPatch, length: int, rank: int, attention: str, **settings: Any) -> LocalEngine:
    """An engine that has taken one step over a sequence that counts to its end."""
    model = random_model(EIGHTH, "bfloat16" if rank else "float32")
    model.set_attn_implementation(attention)
    dtype = "bfloat16" if rank else "float32"
    config = LocalConfig(lora_rank=rank, dtype=dtype, tokens_per_batch=length, **settings)
    engine = LocalEngine(model, [1], config, Following(takes_adapters=True))
    step(engine, length)
    return engine


def step(engine: LocalEngine, length: int) -> None:
    data = Datum([i % 128 for i in range(length)], [0.0] * length, [1.0] * length, [False] + [True] * (length - 1))
    engine.train([data], LossParams(kl_weight=0.1 * engine.config.reference), 1e-4)


@pytest.mark.parametrize(("rank", "checkpointing", "reference"), [(0, False, False), (1, True, True), (1, True, False)])
def test_a_step_computes_what_the_arithmetic_says(
    rank: int, checkpointing: bool, reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By torch's own counter, to 5 %."""
    length = 192
    how = {"gradient_checkpointing": checkpointing, "reference": reference}
    engine = taken(monkeypatch, length, rank, "eager", **how)
    with FlopCounterMode(display=False) as counted:
        step(engine, length)
    shape = Shape.read(EIGHTH)
    told = training_operations(shape, length, lora=bool(rank), checkpointing=checkpointing, reference=reference)
    # It counts the half of attention's square that is masked too, and eager attention is not kept.
    square = 4 * shape.layers * shape.heads * shape.head_width * (length / 2) * (1 + 2 * checkpointing + reference + 2)
    assert counted.get_total_flops() == pytest.approx((told + square) * length, rel=0.05)


class Computed(TorchDispatchMode):
    """Counts the operations that are computed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Computed:
        self.names = Counter[str]()
        super().__enter__()
        return self


def test_checkpointing_computes_attention_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = taken(monkeypatch, 64, 4, "sdpa", gradient_checkpointing=True)
    with Computed() as seen:
        step(engine, 64)
    layers = EIGHTH["num_hidden_layers"]
    assert seen.names["_scaled_dot_product_flash_attention_for_cpu"] == layers
    assert seen.names["silu"] == 2 * layers, "the rest is run again"


@pytest.mark.parametrize(
    ("dtype", "rank", "ahead"),
    [("bfloat16", 4, False), ("float32", 4, False), ("float32", 0, False), ("float32", 0, True), ("bfloat16", 4, True)],
)
@pytest.mark.parametrize("tied", [False, True])
def test_the_local_sampler_copies_the_weights_that_the_budget_says(
    dtype: str, rank: int, ahead: bool, tied: bool
) -> None:
    """By the memory that it holds apart from the trainer, but for norms and the adapter."""
    like = {**EIGHTH, "tie_word_embeddings": tied}
    engine = LocalEngine(random_model(like, dtype), [1], LocalConfig(length=64, rows=2, lora_rank=rank, dtype=dtype))
    engine._apart = ahead
    engine._sync()
    assert isinstance(engine.sampler, LocalSampler)
    decoder = engine.sampler.decoder
    products = [getattr(layer, name) for layer in decoder.layers for name in ("qkv", "out", "gate_up", "down")]
    held = [decoder.embed, decoder.head, *(product._weight for product in products)]
    trained = {p.untyped_storage().data_ptr() for p in engine.model.parameters()}
    apart = sum({place: t.nbytes for t in held if (place := t.untyped_storage().data_ptr()) not in trained}.values())
    width = engine.dtype.itemsize
    plan = MemoryPlan(Shape.read(like), 10**12, width, rank, local_cache_tokens=2 * 64, ahead=ahead)
    (told,) = (part.bytes for part in budget(plan).parts if part.name == "sampler: copies of weights")
    assert told == pytest.approx(apart, rel=0.01)


def test_what_the_local_sampler_copies_may_be_what_does_not_fit() -> None:
    config = preset("8b-h100")
    local = replace(config, model=replace(config.model, sampler="local", cache="auto", rows=1))
    made = budget(plan(local, QWEN3_8B, H100_BYTES))
    assert "| sampler: copies of weights | 9.1 | 9.1 | 9.1 |" in made.table()
    with pytest.raises(ConfigError, match=r"training would take .* GB more"):
        budget(replace(made.plan, device_bytes=made.total(training=True) - 10**9)).check()


@pytest.mark.parametrize("rank", [0, 4])
def test_a_step_takes_the_memory_that_the_budget_says(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak by torch's profiler, to 15 %."""
    length = 512
    engine = taken(monkeypatch, length, rank, "sdpa", gradient_checkpointing=True)
    held = [*engine.model.parameters(), *(v for one in engine.optimizer.state.values() for v in one.values())]  # type: ignore[attr-defined]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        step(engine, length)
    changes = (event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]")
    peak = sum(t.nbytes for t in held) + max(accumulate(changes))
    width = 2 if rank else 4
    plan = MemoryPlan(Shape.read(EIGHTH), 10**12, width, rank, tokens_per_batch=length, checkpointing=True)
    assert budget(plan).total(training=True) - CONTEXT_BYTES == pytest.approx(peak, rel=0.15)
