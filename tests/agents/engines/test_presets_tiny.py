"""Each preset's combination of dtype, adapter, checkpointing, loss and sampler, in tiny shapes on a CPU."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY, conversations
from tests.agents.engines.test_lora import Apart
from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.presets import PRESETS
from toolorchestra.agents.engines.agreement import TOLERANCE
from toolorchestra.agents.engines.base import EngineSettings
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model

RATE = 1e-3


def engine(config: TrainConfig) -> LocalEngine:
    """As build() makes it, but for its size, its device and the process of the sampler."""
    wanted = {setting.name: getattr(config.model, setting.name) for setting in fields(EngineSettings)}
    small = {"device": "cpu", "rows": 16, "tokens_per_batch": 512, "lora_rank": min(4, config.model.lora_rank)}
    held = LocalConfig(**{**wanted, **small}, length=192, average=config.average, reference=bool(config.loss.kl_weight))
    model = build_model(VOCABULARY, hidden=32, layers=2)
    sampler = None if config.model.sampler == "local" else Apart(model, merges=False)
    return LocalEngine(model, [STOP], held, sampler)


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_combines_samples_trains_and_agrees(name: str) -> None:
    config = PRESETS[name]
    made = engine(config)
    assert type(made.sampler) is (LocalSampler if config.model.sampler == "local" else Apart)
    before = [p.detach().clone() for p in made.trained]
    loss = replace(config.loss, temperature=config.temperature)
    for _ in range(2):
        data = conversations(made, temperature=config.temperature)
        told = made.train(data, loss, RATE)
        assert all(math.isfinite(value) for value in told.values())
        assert told["not_finite"] == 0
        assert told["mismatch"] < TOLERANCE[config.model.dtype]
        assert ("kl_reference" in told) == bool(config.loss.kl_weight)
    assert any(not torch.equal(p, was) for p, was in zip(made.trained, before, strict=True))
    if config.model.lora_rank:
        assert {p.dtype for p in made.trained} == {torch.float32}
    with made.averaged():
        assert conversations(made, temperature=config.evaluation_temperature)


def test_the_combinations_are_all_that_there_are() -> None:
    """A preset that brings a new one is seen here, and deserves a look at what it is tested by."""
    models = [(config.model, bool(config.loss.kl_weight)) for config in PRESETS.values()]
    assert {(m.dtype, bool(m.lora_rank), m.gradient_checkpointing, m.sampler, kl) for m, kl in models} == {
        ("float32", False, False, "local", False),
        ("bfloat16", True, False, "local", False),
        ("bfloat16", True, True, "vllm", False),
        ("bfloat16", True, True, "vllm", True),
        ("bfloat16", True, True, "served", True),
    }
