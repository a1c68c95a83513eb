"""Noticing when what arrived is not what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY
from toolorchestra.agents.engines import agreement
from toolorchestra.agents.engines.agreement import Agreement, Drift
from toolorchestra.agents.engines.base import Probed, Sample, SamplingParams
from toolorchestra.agents.engines.decoder import Decoder
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.envs.base.errors import ConfigError

CONFIG = LocalConfig(rows=8, length=192)


class Separate:
    """A sampler apart: another engine's, asked as a separate process is."""

    def __init__(self, engine: LocalEngine, heat: float = 1.0) -> None:
        self.engine, self.heat = engine, heat

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        params = params._replace(temperature=params.temperature**self.heat)
        return [asyncio.run(self.engine.sample(p, params)) for p in prompts]


class Liar(LocalSampler):
    """Reports what it did not draw from."""

    suspends = True

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        del params
        return [Sample([STOP], [-9.0], True) for _ in prompts]


def engine(seed: int = 0) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, 32, 2, seed), [STOP], CONFIG)


def measured(sampler: Separate, trainer: LocalEngine) -> Agreement:
    assert isinstance(sampler, Probed)
    return agreement.measure(sampler, trainer.logprobs, agreement.probe_prompts(VOCABULARY, CONFIG.length, 0))


def test_the_same_model_agrees() -> None:
    found = measured(Separate(engine()), engine())
    assert found.mean <= found.worst < 1e-4
    agreement.check(found, agreement.TOLERANCE["float32"])


def test_another_model_is_noticed() -> None:
    with pytest.raises(Drift, match=r"differ from the trainer's by .* expected at most 0.001. Check that every weight"):
        agreement.check(measured(Separate(engine(1)), engine()), agreement.TOLERANCE["float32"])


def test_a_model_that_was_found_to_differ_is_never_sampled_from() -> None:
    """However often it is asked."""
    model = build_model(VOCABULARY, 32, 2)
    decoder = Decoder(model.config, CONFIG.rows, CONFIG.length, torch.device("cpu"), torch.float32)
    made = LocalEngine(model, [STOP], CONFIG, Liar(decoder, [STOP], 0))
    for _ in range(2):
        with pytest.raises(Drift):
            asyncio.run(made.sample([3, 4], SamplingParams(2)))


def test_logprobs_of_another_temperature_are_noticed() -> None:
    """At temperature 1 such a sampler is right; the second temperature tells."""
    assert measured(Separate(engine(), heat=0.0), engine()).mean > 1e-2


def test_a_nan_is_no_agreement() -> None:
    with pytest.raises(Drift):
        agreement.check(Agreement(float("nan"), 0.0), 1.0)


def test_probes_need_room() -> None:
    assert all(len(p) == 20 - agreement.PROBE_TOKENS for p in agreement.probe_prompts(64, 20, 0))
    with pytest.raises(ConfigError, match="the context must hold 9 tokens to verify the sampler, got 8"):
        agreement.probe_prompts(64, 8, 0)
