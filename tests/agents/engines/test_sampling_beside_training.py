"""Sampling in one thread while another one trains: with the published weights, whole, and never the half of a step."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY, conversations
from toolorchestra.agents.engines.base import NONE, LossParams, Sample, Samples, SamplesWhileTraining, SamplingParams
from toolorchestra.agents.engines.guarded_processes import LoopThread
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model

CONFIG = LocalConfig(rows=12, length=160)
PROMPT = [2, 3, 5, 7, 11]


def engine(config: LocalConfig = CONFIG) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, hidden=32, layers=2), [STOP], config)


def logprobs(made: Samples, tokens: int = 6) -> Sample:
    return asyncio.run(made.sample(PROMPT, SamplingParams(tokens, 0.0)))


@pytest.mark.parametrize(
    "changed", [{}, {"lora_rank": 4}, {"lora_rank": 4, "dtype": "bfloat16"}], ids=["full", "adapter", "16 bits"]
)
def test_published_weights_stay_until_the_next_ones(changed: dict[str, Any]) -> None:
    made = engine(replace(CONFIG, **changed))
    assert isinstance(made, SamplesWhileTraining)
    data = conversations(made)
    published = made.publish()
    before = logprobs(published)
    made.train(data, LossParams("cross_entropy"), 0.05)
    assert logprobs(published) == before
    made.publish()
    after = logprobs(published)
    assert after != before
    assert after == logprobs(made)  # the engine itself samples with the weights of now


def test_a_sampler_that_holds_nothing_is_given_the_weights_of_now() -> None:
    made = engine()
    published = made.publish()
    before = logprobs(published)
    made.sampler.version = NONE  # type: ignore[misc]
    assert logprobs(published) == before


def test_weights_are_not_read_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    data = conversations(made)
    inside, go_on = threading.Event(), threading.Event()
    take = made._update.take

    def slowly(*given: object) -> object:
        inside.set()
        assert go_on.wait(20)
        return take(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(made._update, "take", slowly)
    training = threading.Thread(target=made.train, args=(data, LossParams("cross_entropy"), 0.05))
    training.start()
    assert inside.wait(20)
    publishing = threading.Thread(target=made.publish)
    publishing.start()
    publishing.join(0.3)
    assert publishing.is_alive()
    go_on.set()
    training.join(20)
    publishing.join(20)
    held = {name: value.clone() for name, value in made.model.state_dict().items()}
    assert logprobs(made.publish()) == logprobs(made)
    assert all(torch.equal(value, held[name]) for name, value in made.model.state_dict().items())


def test_turns_are_sampled_while_a_step_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that waits for turns that are begun in it: it would wait for ever if they waited for the step."""
    made = engine()
    data = conversations(made)
    published, rollouts = made.publish(), LoopThread("rollouts")
    seen: list[Sample] = []

    def beside(*_: object) -> dict[str, float]:
        seen.append(rollouts.wait(published.sample(PROMPT, SamplingParams(6, 0.0))))
        return {"not_finite": 1.0}

    monkeypatch.setattr(made._update, "take", beside)
    made.train(data, LossParams("cross_entropy"), 0.05)
    rollouts.close()
    assert seen[0].tokens == logprobs(published).tokens


def test_time_for_hand_overs_is_told_once() -> None:
    made = engine()
    made.publish()
    assert made.sync_seconds() > 0
    assert made.sync_seconds() == 0


def test_who_waits_for_a_tool_gives_its_row_to_who_samples() -> None:
    """More episodes than rows: the one that sampled longest ago runs its past again when it comes back."""
    narrow, wide = engine(replace(CONFIG, rows=2)), engine()

    async def turns(made: LocalEngine) -> list[Sample]:
        got: list[Sample] = []
        grown = {name: [*PROMPT, number] for number, name in enumerate("abcd")}
        for name in ("a", "b", "c", "d", "b", "a", "c"):
            sample = await made.sample(grown[name], SamplingParams(4, 0.0), name)
            grown[name] = [*grown[name], *sample.tokens, 9]
            got.append(sample)
        for name in grown:
            made.release(name)
        return got

    few, enough = asyncio.run(turns(narrow)), asyncio.run(turns(wide))
    assert [s.tokens for s in few] == [s.tokens for s in enough]
    for one, other in zip(few, enough, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    sampler = narrow.sampler
    assert sorted(sampler._free) == [0, 1]  # type: ignore[attr-defined]
