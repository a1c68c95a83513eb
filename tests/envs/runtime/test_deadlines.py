"""Deadlines of calls: when they strike, what they tell apart, what they leave behind. On a loop whose time is made."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from toolorchestra.envs.episode.calls import CallResult, ReadyCall
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.tools import Tool, ToolContext

T = TypeVar("T")
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TICK, ROUNDING = 1e-6, 1e-9


class Skipping(selectors.DefaultSelector):
    """Waits for nothing: the loop's time jumps to the next timer."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class MadeTime(asyncio.SelectorEventLoop):
    """An event loop on which an hour passes at once."""

    def __init__(self) -> None:
        self.skipping = Skipping()
        super().__init__(self.skipping)

    def time(self) -> float:
        return self.skipping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=MadeTime) as runner:
        return runner.run(main)


def ready(work: Callable[[], Awaitable[object]], deadline_seconds: float) -> ReadyCall:
    async def working(context: ToolContext) -> object:
        return await work()

    tool = Tool("work", "Works.", NOTHING, working, deadline_seconds=deadline_seconds)
    return ReadyCall(tool, {}, ToolContext(None, 0))


def sleeping(seconds: float, deadline_seconds: float) -> ReadyCall:
    async def work() -> str:
        await asyncio.sleep(seconds)
        return "done"

    return ready(work, deadline_seconds)


async def timed(gates: Gates, call: ReadyCall) -> tuple[CallResult, float]:
    """A call's result, and how long it took on the loop's clock."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await gates.perform(call), loop.time() - began


def missed(done: CallResult) -> bool:
    assert done.failure is None
    assert done.refused == done.result.content.startswith("Error: work did not answer within ")
    return done.refused


# -- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.001, 0.25, 3.0, 120.0, 86_400.0])
def test_a_deadline_strikes_when_it_is_due_and_not_before(seconds: float) -> None:
    done, took = run(timed(Gates(), sleeping(10 * seconds, seconds)))
    assert missed(done)
    assert -ROUNDING <= took - seconds <= TICK
    done, took = run(timed(Gates(), sleeping(0.999 * seconds, seconds)))
    assert not missed(done)
    assert done.result.content == "done"


def test_many_calls_with_their_own_deadlines_are_each_ended_by_theirs() -> None:
    rng = random.Random(3)
    rows = [(rng.uniform(0, 50), rng.choice([1.0, 5.0, rng.uniform(0, 50)]), rng.uniform(0, 20)) for _ in range(500)]

    async def late_start(gates: Gates, start: float, patience: float, needs: float) -> tuple[CallResult, float]:
        await asyncio.sleep(start)
        return await timed(gates, sleeping(needs, patience))

    async def together() -> list[tuple[CallResult, float]]:
        gates = Gates()
        return await asyncio.gather(*(late_start(gates, *row) for row in rows))

    ended = run(together())
    assert [missed(done) for done, _ in ended] == [needs > patience for _, patience, needs in rows]
    assert all(abs(took - min(row[1:])) <= TICK for (_, took), row in zip(ended, rows, strict=True))
    assert 100 < sum(done.refused for done, _ in ended) < 400


def test_who_is_done_in_time_is_not_cancelled_later() -> None:
    async def go() -> str:
        gates = Gates()
        assert not missed(await gates.perform(sleeping(1.0, 2.0)))
        await asyncio.sleep(60.0)
        return "not cancelled"

    assert run(go()) == "not cancelled"


def test_one_object_serves_loop_after_loop() -> None:
    gates = Gates()
    for _ in range(3):
        assert not missed(run(timed(gates, sleeping(1.0, 5.0)))[0])
        assert missed(run(timed(gates, sleeping(50.0, 5.0)))[0])


# -- what is told apart ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1.0, 5.0])
def test_a_cancellation_from_outside_stays_one(after: float) -> None:
    async def go() -> bool:
        task = asyncio.create_task(Gates().perform(sleeping(60.0, 5.0)))
        asyncio.get_running_loop().call_later(after, task.cancel)  # at 5.0 in the moment of the deadline
        await asyncio.wait([task])
        return task.cancelled()

    assert run(go())


def test_a_tool_that_cancels_itself_has_failed() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    done = run(Gates().perform(ready(work, 5.0)))
    assert done.failure is not None
    assert done.failure.error == "CancelledError: "


@pytest.mark.parametrize("own", [TimeoutError("the server is slow"), ValueError("a bug")])
def test_a_tools_own_error_before_the_deadline_is_its_own(own: Exception) -> None:
    async def work() -> None:
        await asyncio.sleep(1.0)
        raise own

    done = run(Gates().perform(ready(work, 5.0)))
    assert done.failure is not None
    assert str(own) in done.failure.error


def test_a_tool_may_have_shorter_and_longer_timeouts_of_its_own() -> None:
    async def patient(seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(60.0)
        except TimeoutError:
            return "gave up"
        return "slept"

    done, took = run(timed(Gates(), ready(lambda: patient(2.0), 5.0)))
    assert (done.result.content, took) == ("gave up", 2.0)
    done, took = run(timed(Gates(), ready(lambda: patient(9.0), 5.0)))
    assert missed(done)
    assert took == 5.0


def test_a_tool_that_answers_although_it_was_late_is_heard() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            return "after all"
        return "slept"

    async def go() -> tuple[CallResult, int]:
        done = await Gates().perform(ready(stubborn, 5.0))
        await asyncio.sleep(1.0)
        task = asyncio.current_task()
        return done, task.cancelling() if task else -1

    done, cancelling = run(go())
    assert (done.result.content, done.refused, cancelling) == ("after all", False, 0)


@pytest.mark.parametrize(("inner", "took"), [(2.0, 2.0), (5.0, 5.0), (9.0, 5.0)])
def test_a_tool_that_runs_tools_has_both_deadlines(inner: float, took: float) -> None:
    gates = Gates()

    async def nested() -> str:
        return f"inside: {(await gates.perform(sleeping(60.0, inner))).result.content}"

    done, spent = run(timed(gates, ready(nested, 5.0)))
    assert spent == took
    if inner < 5.0:
        assert done.result.content == "inside: Error: work did not answer within 2 s"
    else:
        assert "did not answer within 5 s" in done.result.content


# -- what is left --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 3])
def test_cancelled_and_failed_calls_are_forgotten_too(limit: int) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    def limited(call: ReadyCall) -> ReadyCall:
        tool = replace(call.tool, backend="narrow", max_in_flight=limit) if limit else call.tool
        return call._replace(tool=tool)

    async def go() -> None:
        gates = Gates()
        tasks = [asyncio.create_task(gates.perform(limited(sleeping(50.0, 60.0)))) for _ in range(20)]
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (await gates.perform(limited(ready(broken, 60.0)))).failure
        assert len(asyncio.all_tasks()) == 1

    run(go())
