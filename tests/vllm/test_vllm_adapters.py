"""Adapters in real vLLM: handed over alone, each in place of the last, over weights that it is given once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY, assert_agreement, conversations
from tests.vllm.conftest import HIDDEN, SHAPE
from toolorchestra.agents.engines.base import LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler
from toolorchestra.agents.engines.weights import named_weights

LORA = replace(CONFIG, lora_rank=4)
IMITATE = LossParams("cross_entropy")


@pytest.fixture(scope="module")
def adapting() -> Iterator[VllmSampler]:
    made = VllmSampler(SHAPE, [STOP], VllmConfig(length=CONFIG.length, rows=CONFIG.rows, lora_rank=64))
    made.sync(named_weights(build_model(VOCABULARY, HIDDEN, 2)), 0)  # starts it
    yield made
    made.close()


def engine_with(sampler: VllmSampler, config: LocalConfig = LORA, seed: int = 0) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, HIDDEN, 2, seed), [STOP], config, sampler)


def read(sampler: VllmSampler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the whole weights that the sampler will have read."""
    names, write = list[str](), sampler._handover.write

    def noted(weights: Iterable[tuple[str, Tensor]]) -> None:
        def each() -> Iterator[tuple[str, Tensor]]:
            for name, value in weights:
                names.append(name)
                yield name, value

        write(each())

    monkeypatch.setattr(sampler._handover, "write", noted)
    return names


def test_the_adapter_alone_is_handed_over_after_the_first_time(
    adapting: VllmSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine_with(adapting)
    names = read(adapting, monkeypatch)
    for step in range(3):
        data = conversations(made)
        assert_agreement(made, data)
        assert len(names) == len(set(names)) > 10, f"after {step} steps"
        made.train(data, IMITATE, 1e-2)
    with pytest.raises(AssertionError):
        assert_agreement(made, data)
    assert [folder.name for folder in adapting.folder.glob("adapter-*")] == [f"adapter-{adapting.version}"]


def test_engines_take_turns_with_adapters_and_whole_models(adapting: VllmSampler) -> None:
    """Over other weights, and without an adapter: nothing of the one is left to the other."""
    adapted, other, whole = engine_with(adapting), engine_with(adapting, seed=1), engine_with(adapting, CONFIG, 2)
    for _ in range(2):
        for made in (adapted, whole, other):
            data = conversations(made)
            assert_agreement(made, data)
            made.train(data, IMITATE, 1e-2)


def test_the_weights_below_are_loaded_anew_from_where_they_were_kept(adapting: VllmSampler) -> None:
    """As after a sleep, which drops them; a CPU build does not sleep, so here they are loaded over others."""
    made = engine_with(adapting)
    made.train(conversations(made), IMITATE, 1e-2)
    assert_agreement(made, conversations(made))
    engine: Any = adapting._engine
    adapting._loop.wait(adapting._take(engine, reload=True))
    assert_agreement(made, conversations(made))


def test_after_a_crash_the_new_engine_has_the_adapter(adapting: VllmSampler) -> None:
    made = engine_with(adapting)
    made.train(conversations(made), IMITATE, 1e-2)
    asyncio.run(made.sample([2, 3], SamplingParams(2)))
    (pid,) = adapting.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="vLLM engine"):
        asyncio.run(made.sample([2, 3], SamplingParams(2)))
    assert_agreement(made, conversations(made))
    assert adapting.restarts == 1
