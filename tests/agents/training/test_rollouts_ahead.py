"""Rollouts beside the training: how far they go ahead, whom a step waits for; each group is learnt from once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.agents.training.even_source import ENV_ID
from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig
from toolorchestra.agents.configuration.environments import ChosenTask
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.rollouts_ahead import RolloutsAhead, TurnGate
from toolorchestra.agents.training.step_log import far_from_sampler
from toolorchestra.agents.training.trainer import train
from toolorchestra.agents.training.training_run import TrainingRun, rollout_params
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap

EVEN = EnvMix(ENV_ID, 1.0, {"max_turns": 2, "preference": "accurate"}, validation="test")
AHEAD = replace(
    COLD,
    steps=6,
    groups=3,
    rollouts=2,
    environments=(EVEN,),
    advantage=AdvantageParams(least_spread=0.0),
    max_staleness=1,
    evaluate_every=4,
)


def run(folder: Path, config: TrainConfig = AHEAD, *, resume: bool = False) -> TrainingRun:
    return train(config, folder, *build(config), resume=resume, say=lambda _: None)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read(folder / "metrics.jsonl") if row["kind"] == "train"]


def taken(folder: Path) -> list[int]:
    return [number for row in rows(folder) for number in row["groups_taken"]]


# -- which groups ------------------------------------------------------------------------------------------------------


class StandInEngine:
    """Publishes, and samples nothing: the groups of these tests are scripted."""

    def __init__(self) -> None:
        self.published = 0

    def publish(self) -> StandInEngine:
        self.published += 1
        return self

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        raise NotImplementedError

    def release(self, session: str) -> None:
        raise NotImplementedError


class Scripted(RolloutsAhead):
    """Each group ends when the test says so."""

    def __init__(self, config: TrainConfig, state: dict[str, Any] | None = None) -> None:
        chat = build(config)[1]
        super().__init__(config, StandInEngine(), chat, rollout_params(config), state or {})
        self.begun: list[int] = []
        self.may_end: dict[int, asyncio.Event] = {}
        self.breaks: set[int] = set()

    async def _group(self, task: ChosenTask, number: int) -> Any:
        self.begun.append(number)
        event = self.may_end.setdefault(number, asyncio.Event())
        await event.wait()
        if number in self.breaks:
            raise OSError(f"group {number} broke")
        return _Group()

    def end(self, *numbers: int) -> None:
        async def let() -> None:
            for number in numbers:
                self.may_end.setdefault(number, asyncio.Event()).set()
                await asyncio.sleep(0.01)  # they end in this order

        self._thread.wait(let())


class _Group:
    trajectories: Sequence[Any] = ()


@pytest.fixture
def ahead() -> Iterator[Scripted]:
    with contextlib.closing(Scripted(AHEAD)) as made:
        made.publish(0)
        yield made


def taking(ahead: Scripted, step: int) -> Future[list[int]]:
    """take() in another thread, and the groups that it gives."""
    taken: Future[list[int]] = Future()

    def take() -> None:
        try:
            taken.set_result(ahead.take(step).metrics["groups_taken"])
        except OSError as err:
            taken.set_exception(err)

    threading.Thread(target=take).start()
    return taken


def test_a_step_takes_what_ended_first_and_later_waits_for_what_is_due(ahead: Scripted) -> None:
    given = taking(ahead, 0)
    ahead.end(4, 1, 5)
    assert given.result(20) == [1, 4, 5]  # 0, 2 and 3 still go on: the trainer does not wait for them
    assert sorted(ahead.begun) == [0, 1, 2, 3, 4, 5]  # those of two steps, and no more
    ahead.publish(1)
    given = taking(ahead, 1)
    ahead.end(6, 7, 8, 0, 2)  # enough for a step, but 3 was begun with the weights of step 0
    with pytest.raises(TimeoutError):
        given.result(0.5)
    ahead.end(3)
    assert given.result(20) == [0, 2, 3]
    assert sorted(ahead.begun) == list(range(9))


def test_younger_groups_wait_for_older_ones() -> None:
    """Where younger ones went first, more older ones were due at step 2 than a step takes, and it waited for ever."""
    with contextlib.closing(Scripted(replace(AHEAD, max_staleness=2))) as ahead:
        for step, before, late, took in (
            (0, (0, 1, 2), (), [0, 1, 2]),
            (1, (9, 10, 11, 8), (5, 7), [5, 7, 8]),  # the slow ones of step 0 are 3 to 7
            (2, (12, 13, 14, 3, 4, 6), (), [3, 4, 6]),
        ):
            ahead.publish(step)
            given = taking(ahead, step)
            ahead.end(*before)
            if late:
                with pytest.raises(TimeoutError):
                    given.result(0.5)
                ahead.end(*late)
            assert given.result(20) == took


def test_what_was_played_last_under_a_cap_that_is_used_up_is_not_taken(ahead: Scripted, tmp_path: Path) -> None:
    """The step is played again under a higher one."""
    ahead.end(0, 1, 2)
    cap = SpendCap(1.0)
    cap.add(NANO)
    token = JOURNAL.set(SpendJournal(tmp_path / "paid.jsonl", cap))
    try:
        with pytest.raises(SpendCapReached):
            ahead.take(0)
    finally:
        JOURNAL.reset(token)
    assert ahead.numbers.left(4) == [0, 1, 2, 3]


def test_what_breaks_in_a_group_breaks_the_step(ahead: Scripted) -> None:
    ahead.breaks.add(2)
    given = taking(ahead, 0)
    ahead.end(2)
    with pytest.raises(OSError, match="group 2 broke"):
        given.result(20)


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", [1, 2])
def test_each_group_is_learnt_from_once_and_no_token_is_too_old(tmp_path: Path, staleness: int) -> None:
    run(tmp_path, replace(AHEAD, max_staleness=staleness))
    assert sorted(taken(tmp_path)) == list(range(AHEAD.steps * AHEAD.groups))
    found = rows(tmp_path)
    assert all(0 <= row["staleness"] <= row["oldest"] <= staleness for row in found)
    assert any(row["oldest"] > 0 for row in found)
    evaluated = [row["step"] for row in read(tmp_path / "metrics.jsonl") if row["kind"] == "eval"]
    assert evaluated == [0, 4, 6]  # one of them while groups were under way
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"rollouts"})


def test_what_was_sampled_before_an_update_is_learnt_from_with_its_own_probabilities(tmp_path: Path) -> None:
    """The first step's data are the sampler's own; those that are a step old are told apart from them."""
    config = replace(AHEAD, learning_rate=0.05, final_learning_rate=0.05, evaluate_every=6)
    run(tmp_path, config)
    made = rows(tmp_path)
    first = made[0]
    assert first["oldest"] == 0
    assert first["loss/mismatch"] < 1e-4
    updated = [(before, row) for before, row in pairwise(made) if "loss/mismatch" in before and "loss/mismatch" in row]
    stale = [row for _, row in updated if row["staleness"] > 0.5]
    assert stale
    assert all(row["loss/mismatch"] > 10 * first["loss/mismatch"] for row in stale)


def test_a_step_says_where_the_time_went(tmp_path: Path) -> None:
    run(tmp_path / "ahead")
    run(tmp_path / "before", replace(AHEAD, max_staleness=0))
    parts = ("sampling", "tools", "tokenisation", "sync", "training", "idle")
    for row in rows(tmp_path / "before"):
        assert sum(row[f"time/{part}"] for part in parts) == pytest.approx(row["time/step"], rel=1e-6, abs=1e-6)
        assert row["time/sampling"] > 0 < row["time/tokenisation"]
    for row in rows(tmp_path / "ahead"):
        together = sum(row[f"time/{part}"] for part in ("idle", "training", "sync"))
        assert together == pytest.approx(row["time/step"], rel=1e-6, abs=1e-6)
        assert row["time/rollouts_idle"] >= 0


def test_a_run_is_stopped_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-C while groups are under way: these are played again, and each is learnt from once."""

    def interrupt(said: str) -> None:
        if "held out, step 4" in said:
            signal.raise_signal(signal.SIGINT)

    stopped = train(AHEAD, tmp_path, *build(AHEAD), resume=False, say=interrupt)
    assert stopped.step == 4
    went_on = run(tmp_path, resume=True)
    assert went_on.step == AHEAD.steps
    assert sorted(taken(tmp_path)) == list(range(AHEAD.steps * AHEAD.groups))


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"set model\.processes=1; got 2"):
        replace(AHEAD, model=ModelConfig(processes=2))
    with pytest.raises(ConfigError, match="max_staleness"):
        replace(preset("tiny"), max_staleness=-1)


def test_a_policy_far_from_what_sampled_is_warned_of() -> None:
    assert far_from_sampler({}) == []
    assert far_from_sampler({"mismatch": 0.03}) == []
    (said,) = far_from_sampler({"mismatch": 0.463})
    assert said.startswith("the policy is 0.46 nats a token from what sampled")
    assert "lower learning_rate, updates or max_staleness" in said


# -- the gate that turns pass ------------------------------------------------------------------------------------------


T = TypeVar("T")


def at_the_gate(story: Callable[[TurnGate], Coroutine[Any, Any, T]], places: int = 8, *, opened: bool = True) -> T:
    """What a story at a gate comes to."""

    async def play() -> T:
        gate = TurnGate(places)
        if opened:
            await gate.open(0)
        return await asyncio.wait_for(story(gate), 20)

    return asyncio.run(play())


async def some_turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_closing_waits_for_the_turns_that_are_under_way() -> None:
    async def story(gate: TurnGate) -> list[str]:
        said, may_end = list[str](), asyncio.Event()

        async def turn() -> None:
            async with gate.turn():
                await may_end.wait()
                said.append("the turn ended")

        async def close() -> None:
            await gate.close()
            said.append("it is closed")

        tasks = [asyncio.create_task(turn()), asyncio.create_task(turn())]
        await some_turns_of_the_loop()
        tasks.append(asyncio.create_task(close()))
        await some_turns_of_the_loop()
        assert not said
        may_end.set()
        await asyncio.gather(*tasks)
        return said

    assert at_the_gate(story) == ["the turn ended", "the turn ended", "it is closed"]


def test_of_those_that_wait_for_a_place_the_lowest_order_comes_first() -> None:
    async def story(gate: TurnGate) -> list[int]:
        seen, may_end, tasks = list[int](), asyncio.Event(), []

        async def turn(order: int) -> None:
            async with gate.turn(order):
                seen.append(order)
                await may_end.wait()

        for order in (9, 5, 7, 5, 1):
            tasks.append(asyncio.create_task(turn(order)))
            await some_turns_of_the_loop()
        may_end.set()
        await asyncio.gather(*tasks)
        return seen

    assert at_the_gate(story, 1) == [9, 1, 5, 5, 7]


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "as it is given a place"])
def test_who_is_cancelled_takes_no_place_along(given: bool) -> None:
    async def story(gate: TurnGate) -> list[str]:
        seen, may_end = list[str](), asyncio.Event()

        async def turn(name: str) -> None:
            async with gate.turn():
                seen.append(name)
                if name == "first":
                    await may_end.wait()

        first, second, third = [asyncio.create_task(turn(name)) for name in ("first", "second", "third")]
        await some_turns_of_the_loop()
        if given:
            may_end.set()
            while not first.done():
                await asyncio.sleep(0)
        second.cancel()
        may_end.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        async with gate.turn():
            seen.append("later")
        return seen

    seen = at_the_gate(story, 1)
    assert seen[0] == "first"
    assert seen[-2:] == ["third", "later"]


@pytest.mark.parametrize("begun_closed", [False, True])
def test_deadlines_stand_still_while_it_is_closed(begun_closed: bool) -> None:
    async def story(gate: TurnGate) -> None:
        async with gate.deadline(0.2):
            if not begun_closed:
                await gate.close()
            await asyncio.sleep(0.4)  # would be too long
            await gate.open(1)
            await asyncio.sleep(0)

    at_the_gate(story, opened=not begun_closed)
