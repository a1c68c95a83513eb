"""What prompts have in common is run once; and sampling in one thread while another one trains: with the published
weights, whole, and never the half of a step."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.agents.engines.conformance import SMALL, VOCABULARY, assert_agreement, conversations, datum, engine
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, Samples, SamplingParams
from toolorchestra.agents.engines.guarded_processes import LoopThread
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine

CONFIG = LocalConfig(rows=8, length=400)


def words(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(2, VOCABULARY) for _ in range(count)]


TOOLS = words(200, 0)
"""The part that all tasks begin with."""


def task(number: int, length: int = 50) -> list[int]:
    return TOOLS + words(length, number)


def together(made: LocalEngine, prompts: Sequence[list[int]], tokens: int = 6) -> list[Datum]:
    """One session each, all of them on one loop."""

    async def one(number: int, prompt: list[int]) -> Datum:
        sample = await made.sample(prompt, SamplingParams(tokens), f"s{number}")
        return datum(prompt, sample)

    async def all_of_them() -> list[Datum]:
        got = list(await asyncio.gather(*(one(n, p) for n, p in enumerate(prompts))))
        for number in range(len(prompts)):
            made.release(f"s{number}")
        return got

    return asyncio.run(all_of_them())


def fed(made: LocalEngine) -> int:
    """Tokens of prompts that were run."""
    return made.sampler.prompt_tokens - made.sampler.cached_tokens


def test_the_common_beginning_of_tasks_is_run_once() -> None:
    made = engine(CONFIG)
    data = together(made, [task(n) for n in range(1, 6)])
    assert_agreement(made, data)
    assert fed(made) <= len(TOOLS) + 5 * 50


def test_rollouts_that_are_collected_again_find_an_empty_cache() -> None:
    """As a resumed run does: what is run then is the same, to the last digit."""
    made = engine(CONFIG)
    state = made.sampler.random_state()
    prompts = [task(n) for n in (1, 1, 2, 3)]
    counts, got = [], []
    for _ in range(2):
        made.sampler.set_random_state(state)
        before = fed(made)
        got.append(together(made, prompts))
        counts.append(fed(made) - before)
    assert counts[0] == counts[1]
    assert [d.logprobs for d in got[0]] == [d.logprobs for d in got[1]]


PROMPT = [2, 3, 5, 7, 11]


def logprobs(made: Samples, tokens: int = 6) -> Sample:
    return asyncio.run(made.sample(PROMPT, SamplingParams(tokens, 0.0)))


@pytest.mark.parametrize(
    "changed", [{}, {"lora_rank": 4}, {"lora_rank": 4, "dtype": "bfloat16"}], ids=["full", "adapter", "16 bits"]
)
def test_published_weights_stay_until_the_next_ones(changed: dict[str, Any]) -> None:
    made = engine(replace(SMALL, **changed))
    data = conversations(made)
    published = made.publish()
    before = logprobs(published)
    made.train(data, LossParams("cross_entropy"), 0.05)
    assert logprobs(published) == before
    made.publish()
    after = logprobs(published)
    assert after != before
    assert after == logprobs(made)  # the engine itself samples with the weights of now


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


def test_who_waits_for_a_tool_gives_its_row_to_who_samples() -> None:
    """More episodes than rows: the one that sampled longest ago runs its past again when it comes back."""
    narrow, wide = engine(replace(SMALL, rows=2)), engine()

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
