"""Deadlines of calls: when they strike, what they tell apart, what they leave behind. On a loop whose time is made."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
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


@pytest.mark.parametrize("seconds", [0.001, 120.0])
def test_a_deadline_strikes_when_it_is_due_and_not_before(seconds: float) -> None:
    done, took = run(timed(Gates(), sleeping(10 * seconds, seconds)))
    assert missed(done)
    assert -ROUNDING <= took - seconds <= TICK
    done, took = run(timed(Gates(), sleeping(0.999 * seconds, seconds)))
    assert not missed(done)
    assert done.result.content == "done"


@pytest.mark.parametrize("after", [1.0, 5.0])
def test_a_cancellation_from_outside_stays_one(after: float) -> None:
    async def go() -> bool:
        task = asyncio.create_task(Gates().perform(sleeping(60.0, 5.0)))
        asyncio.get_running_loop().call_later(after, task.cancel)  # at 5.0 in the moment of the deadline
        await asyncio.wait([task])
        return task.cancelled()

    assert run(go())


@pytest.mark.parametrize("own", [TimeoutError("the server is slow")])
def test_a_tools_own_error_before_the_deadline_is_its_own(own: Exception) -> None:
    async def work() -> None:
        await asyncio.sleep(1.0)
        raise own

    done = run(Gates().perform(ready(work, 5.0)))
    assert done.failure is not None
    assert str(own) in done.failure.error


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
