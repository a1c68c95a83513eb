"""The conformance test of engines: the local one passes it, and each way to be wrong is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agents.engines.conformance import VOCABULARY, engine
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.testing import RULES, ConformanceError, check_engine


def test_the_local_engine_passes(tmp_path: Path) -> None:
    check_engine(engine, VOCABULARY, tmp_path)


class Wrong:
    """An engine with one fault: in what it asks of the sampler, in what it gives, or in what it learns."""

    def __init__(self, asks: Any = None, gives: Any = None, learns: Any = None) -> None:
        self.engine = engine()
        self._asks, self._gives, self._learns = (change or (lambda one: one) for change in (asks, gives, learns))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        made: Sample = self._gives(await self.engine.sample(prompt, self._asks(params), session))
        return made

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Any:
        return self.engine.train([self._learns(d) for d in data], loss, learning_rate)


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
        (partial(Wrong, gives=lambda s: s._replace(logprobs=s.logprobs[1:])), "a turn has a log-probability for each"),
        (partial(Wrong, asks=lambda p: p._replace(stops=())), "a turn ends at its stops"),
        (partial(Wrong, asks=lambda p: p._replace(temperature=0.0)), "turns of one prompt are drawn, and differ"),
        (partial(Wrong, asks=lambda p: p._replace(temperature=1.0)), "temperature 0 takes the likeliest token"),
        (
            partial(Wrong, learns=lambda d: replace(d, advantages=[-a for a in d.advantages])),
            "what is sampled follows what was learnt",
        ),
        (
            partial(Wrong, learns=lambda d: replace(d, advantages=[abs(a) for a in d.advantages])),
            "an advantage above 0 makes its tokens likelier",
        ),
        (
            partial(Wrong, learns=lambda d: replace(d, mask=[bool(a) for a in d.advantages])),
            "what the mask hides is not learnt from",
        ),
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
