"""When a trial may begin under a spend cap: by what those before it cost, and what to do while nobody knows."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

from tests.agents.evaluation.test_runs import Plays, contest, made, played
from toolorchestra.agents.evaluation.trials import FIRST_AT_ONCE, Spending
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap


async def begun(spending: Spending, names: list[str]) -> list[str]:
    """Which of these trials begin at once."""
    tasks = {name: asyncio.create_task(spending.begin(name)) for name in names}
    for _ in range(3):
        await asyncio.sleep(0)
    at_once = [name for name, task in tasks.items() if task.done()]
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    return at_once


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_a_few_begin_while_nobody_knows_what_one_costs_and_more_once_one_has_ended() -> None:
    async def run() -> None:
        spending = Spending(SpendCap(100))
        first = await begun(spending, names("a", 20))
        assert len(first) == FIRST_AT_ONCE
        spending.ended(first[0], NANO)
        assert len(await begun(spending, names("b", 20))) == 20

    asyncio.run(run())


def test_a_run_whose_first_trials_all_fail_does_not_stay_slow() -> None:
    async def run() -> list[int]:
        spending, running, widths = Spending(SpendCap(100)), list[str](), list[int]()
        for turn in range(5):
            running = await begun(spending, names(f"t{turn}-", 64))
            widths.append(len(running))
            for name in running:
                spending.ended(name, None)
        return widths

    assert asyncio.run(run()) == [4, 8, 16, 32, 64]


def test_what_is_known_from_before_counts_from_the_first_trial_on() -> None:
    async def run() -> None:
        spending = Spending(SpendCap(10), [2 * NANO] * 5)
        assert len(await begun(spending, names("a", 20))) == 5  # what the cap pays for, not the first guess
        expensive = Spending(SpendCap(1), [2 * NANO])
        assert await expensive.begin("one") is False

    asyncio.run(run())


def test_nine_of_ten_cost_at_most_what_is_expected_in_whatever_order_they_end() -> None:
    costs = [*range(1, 101)]
    random.Random(3).shuffle(costs)
    spending = Spending(SpendCap(100), costs[:50])
    for number, cost in enumerate(costs[50:]):
        spending.ended(number, cost)
    assert spending.each == 91


def test_many_who_wait_do_not_sort_all_costs_each_time() -> None:
    async def run() -> float:
        spending = Spending(SpendCap(1), random.Random(0).choices(range(NANO // 2, NANO), k=200_000))
        assert await spending.begin("first")
        waiting = [asyncio.create_task(spending.begin(f"w{number}")) for number in range(500)]
        await asyncio.sleep(0)
        began = time.perf_counter()
        spending.ended("none of them", NANO // 2)
        for _ in range(3):
            await asyncio.sleep(0)
        took = time.perf_counter() - began
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return took

    assert asyncio.run(run()) < 0.5  # sorting them for each would take over a second


def test_a_resumed_run_knows_what_its_trials_cost(tmp_path: Path) -> None:
    """A cap that pays for one trial and a half: whoever knew nothing would begin four at once."""
    together = most = 0
    calm = player("cheapest", made())

    async def slowly(episode: Episode) -> Any:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1
        return await calm.move(episode)

    first = played(contest(made(), calm, 6), folder=tmp_path)
    each = max(row.nano_usd for row in first.rows.values())
    cap = SpendCap(1.5 * each / NANO)
    played(contest(made(spend_cap=cap), Plays(slowly), 20), folder=tmp_path, resume=True)
    assert most == 1
