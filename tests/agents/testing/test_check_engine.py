"""The conformance test of engines: the local one passes it, and each way to be wrong is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.engines.conformance import VOCABULARY, engine
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.testing import RULES, ConformanceError, check_engine


def test_the_local_engine_passes(tmp_path: Path) -> None:
    check_engine(engine, VOCABULARY, tmp_path)


class Wrong:
    """An engine with one fault."""

    def __init__(self) -> None:
        self.engine = engine()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class LosesLogprobs(Wrong):
    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        made = await self.engine.sample(prompt, params, session)
        return made._replace(logprobs=made.logprobs[1:])


class IgnoresStops(Wrong):
    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        return await self.engine.sample(prompt, params._replace(stops=()), session)


class AlwaysGreedy(Wrong):
    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        return await self.engine.sample(prompt, params._replace(temperature=0.0), session)


class NeverGreedy(Wrong):
    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        return await self.engine.sample(prompt, params._replace(temperature=1.0), session)


class Climbs(Wrong):
    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Any:
        return self.engine.train([replace(d, advantages=[-a for a in d.advantages]) for d in data], loss, learning_rate)


class BlindToSigns(Wrong):
    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Any:
        data = [replace(d, advantages=[abs(a) for a in d.advantages]) for d in data]
        return self.engine.train(data, loss, learning_rate)


class BlindToMasks(Wrong):
    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Any:
        data = [replace(d, mask=[bool(a) for a in d.advantages]) for d in data]
        return self.engine.train(data, loss, learning_rate)


class SamplesOldWeights(Wrong):
    def __init__(self) -> None:
        super().__init__()
        self.old = engine()

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        return await self.old.sample(prompt, params, session)


class SavesNothing(Wrong):
    def save(self, path: Path) -> None:
        del path


class LoadsNoOptimiser(Wrong):
    def load(self, path: Path) -> None:
        self.engine.start_from(path)


class ClosesOnce(Wrong):
    closed = False

    def close(self) -> None:
        assert not self.closed, "closed already"
        self.closed = True


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (LosesLogprobs, "a turn has a log-probability for each token"),
        (IgnoresStops, "a turn ends at its stops"),
        (AlwaysGreedy, "turns of one prompt are drawn, and differ"),
        (NeverGreedy, "temperature 0 takes the likeliest token"),
        (Climbs, "what is sampled follows what was learnt"),
        (BlindToSigns, "an advantage above 0 makes its tokens likelier"),
        (BlindToMasks, "what the mask hides is not learnt from"),
        (SamplesOldWeights, "what is sampled follows what was learnt"),
        (SavesNothing, "a saved engine goes on"),
        (LoadsNoOptimiser, "a saved engine goes on"),
    ],
)
def test_each_fault_is_found(wrong: Callable[[], Any], rule: str, tmp_path: Path) -> None:
    named = [name for name in RULES if name.startswith(rule)]
    assert len(named) == 1
    with pytest.raises(ConformanceError, match=rule):
        check_engine(wrong, VOCABULARY, tmp_path, named)


def test_an_engine_that_can_be_closed_only_once_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="closed already"):
        check_engine(ClosesOnce, VOCABULARY, tmp_path, ["it may be closed twice"])
