"""What prompts have in common is run once, and the log-probabilities are those of running it all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY, assert_agreement, datum
from toolorchestra.agents.engines.base import Datum, Sample, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.sampler import _common
from toolorchestra.agents.engines.tiny import build_model

CONFIG = LocalConfig(rows=8, length=400)


def engine(config: LocalConfig = CONFIG) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, hidden=32, layers=2), [STOP], config)


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
    return int(made.sampler.fed_tokens)  # type: ignore[attr-defined]


def one_by_one(made: LocalEngine, prompts: Sequence[list[int]]) -> list[Datum]:
    """Each session begins when the one before it is over."""

    async def all_of_them() -> list[Datum]:
        got = []
        for number, prompt in enumerate(prompts):
            got.append(datum(prompt, await made.sample(prompt, SamplingParams(6), f"s{number}")))
            made.release(f"s{number}")
        return got

    return asyncio.run(all_of_them())


def sampled(data: Sequence[Datum]) -> int:
    return sum(sum(d.mask) for d in data)


@pytest.mark.parametrize("play", [together, one_by_one])
def test_the_common_beginning_of_tasks_is_run_once(play: Callable[[LocalEngine, list[list[int]]], list[Datum]]) -> None:
    """Of sessions at once and of sessions one after the other."""
    made = engine()
    data = play(made, [task(n) for n in range(1, 6)])
    assert_agreement(made, data)
    assert fed(made) <= len(TOOLS) + 5 * 50 + sampled(data)


def test_groups_of_several_tasks_run_each_task_once() -> None:
    made = engine()
    data = together(made, [task(n) for n in (1, 1, 1, 2, 2, 3, 3, 3)])
    assert_agreement(made, data)
    assert fed(made) <= len(TOOLS) + 3 * 50 + sampled(data) + 8
    assert made.sampler.stats()["prefix_hits"] == pytest.approx(1 - (200 + 3 * 50 + 5) / (8 * 250), abs=0.01)
    assert made.sampler.stats() == {"prefix_hits": 0.0}


def test_a_row_that_waits_keeps_what_it_has_while_others_are_sampled() -> None:
    """Free rows too: all rows are run together where nearly all are active, and each writes somewhere."""
    made = engine()

    async def turns() -> list[Datum]:
        first = await made.sample(task(1), SamplingParams(6), "a")
        await made.sample(task(2), SamplingParams(6), "b")
        made.release("b")
        several = [made.sample(task(n), SamplingParams(30), f"c{n}") for n in range(3, 9)]
        got = [datum(task(n), made) for n, made in zip(range(3, 9), await asyncio.gather(*several), strict=True)]
        grown = [*task(1), *first.tokens, *words(40, 77)]
        again: Sample = await made.sample(grown, SamplingParams(6), "a")
        late = await made.sample(task(2, 60), SamplingParams(6), "d")  # from the row that "b" left
        return [datum(task(1), first), datum(grown, again), datum(task(2, 60), late), *got]

    assert_agreement(made, asyncio.run(turns()))


def test_siblings_that_were_told_the_same_share_that_too() -> None:
    made = engine()
    result = words(60, 5)

    async def turns() -> list[Datum]:
        prompt = task(1)
        names = ("a", "b", "c")
        await asyncio.gather(*(made.sample(prompt, SamplingParams(1), name) for name in names))
        before = fed(made)
        grown = prompt + result
        got = [datum(grown, await made.sample(grown, SamplingParams(2), name)) for name in names]
        assert fed(made) - before <= len(result) + 3 * 2 + 3
        return got

    assert_agreement(made, asyncio.run(turns()))


def test_of_new_weights_nothing_is_shared_with_the_old() -> None:
    made = engine()
    together(made, [task(1)])
    with torch.no_grad():
        for p in made.trained:
            p.mul_(1.1)
    made._changed()
    assert_agreement(made, together(made, [task(2)]))


def test_rollouts_that_are_collected_again_find_an_empty_cache() -> None:
    """As a resumed run does: what is run then is the same, to the last digit."""
    made = engine()
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


def test_in_16_bits_too() -> None:
    made = engine(replace(CONFIG, dtype="bfloat16", lora_rank=2))
    data = together(made, [task(n) for n in (1, 1, 2, 3)])
    for d, trained in zip(data, made.logprobs(data), strict=True):
        assert [p for p, counts in zip(d.logprobs, d.mask, strict=True) if counts] == pytest.approx(trained, abs=0.2)


def test_the_common_beginning_is_found() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        left = [rng.randrange(3) for _ in range(rng.randrange(12))]
        right = [*left[: rng.randrange(12)], *[rng.randrange(3) for _ in range(rng.randrange(6))]]
        unlike = (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
        assert _common(left, right) == next(unlike, min(len(left), len(right)))
