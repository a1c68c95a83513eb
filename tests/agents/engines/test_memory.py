"""The memory budget, against figures that are known of Qwen3-8B."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.memory import GB, MemoryPlan, Shape, budget
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError

QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
SHAPE = Shape.read(QWEN3_8B)
H100_BYTES = 80 * 10**9


def test_qwen3_8b_has_its_parameters_and_its_cache() -> None:
    assert SHAPE.parameters == 8_190_735_360
    assert SHAPE.kv_bytes_per_token(2) == 2 * 36 * 8 * 128 * 2 == 147_456
    assert SHAPE.adapter_parameters(64) == 36 * 64 * 75_776


@pytest.mark.parametrize("layers", [2, 3])
def test_parameters_are_those_of_a_model_that_was_built(layers: int) -> None:
    model = build_model(64, 32, layers)
    assert Shape.read(model.config.to_dict()).parameters == sum(p.numel() for p in model.parameters())


def test_adapters_are_those_that_peft_makes() -> None:
    from toolorchestra.agents.engines.local import LocalConfig, LocalEngine

    made = LocalEngine(build_model(64, 32, 2), [1], LocalConfig(rows=1, length=32, lora_rank=4))
    shape = Shape.read(build_model(64, 32, 2).config.to_dict())
    assert sum(p.numel() for p in made.trained) == shape.adapter_parameters(4)


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
        ConfigError,
        match=r"training would take .* the largest part .*activations.*model\.gradient_checkpointing=true",
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


def test_full_training_counts_its_parts() -> None:
    made = budget(MemoryPlan(SHAPE, H100_BYTES, average=True, reference=True))
    parts = {p.name: p.bytes for p in made.parts}
    assert parts["trainer: optimiser"] == 2 * parts["trainer: weights"] == 4 * SHAPE.parameters
    assert (
        parts["trainer: gradients"] == parts["trainer: average"] == parts["trainer: reference"] == 2 * SHAPE.parameters
    )
    assert made.total(training=True) > 6 * 16 * GB


def test_with_lora_the_reference_is_one_more_adapter() -> None:
    kept, none = (budget(MemoryPlan(SHAPE, H100_BYTES, lora_rank=64, reference=kept)) for kept in (True, False))
    adapter = 4 * SHAPE.adapter_parameters(64)
    assert [p.bytes for p in kept.parts if p.name == "trainer: reference"] == [adapter]
    assert all(kept.total(training=t) - none.total(training=t) == adapter for t in (True, False))


def test_the_8b_preset_keeps_a_reference_only_when_it_is_warmed_first() -> None:
    cold = preset("8b-h100")
    warm = replace(cold, warm_start=replace(cold.warm_start, steps=100))
    assert [plan(config, QWEN3_8B, H100_BYTES).reference for config in (cold, warm)] == [False, True]
