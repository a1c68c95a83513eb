"""Runs tool calls and turns, and is the one place where a failure is told from a refusal."""

from __future__ import annotations

import asyncio
import json
import math
import time
from asyncio import CancelledError, current_task
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Sequence
from contextlib import suppress
from types import CoroutineType, NoneType
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import Observation, build
from toolorchestra.envs.episode.calls import CallResult, ReadyCall, error_text, failure
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.tools import ToolContext, ToolResult


def any_waits(calls: Sequence[ReadyCall]) -> bool:
    """Whether one of these calls needs a loop."""
    for ready in calls:  # noqa: SIM110 - a generator costs three times as much, and this is asked at each step
        if ready.tool.suspends:
            return True
    return False


def perform_here(ready: ReadyCall) -> CallResult:
    """Run one call of a tool that does not wait, in place."""
    tool, arguments, context = ready
    try:
        out = tool.run(context, **arguments)
        if type(out) is CoroutineType:
            out = _drive(out)
        return _finished(out, context)
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # noqa: BLE001 - a failed call is recorded, see _explain
        return _explain(err, ready)


def _explain(err: BaseException, ready: ReadyCall) -> CallResult:
    """ToolError becomes a refusal; any other exception becomes a Failure."""
    tool, _, context = ready
    booked = context.bill.take()
    if isinstance(err, ToolError):
        seconds = float(sum([usage.seconds for usage in booked]))
        return CallResult(ToolResult(f"Error: {error_text(err)}", seconds=seconds), refused=True, booked=booked)
    return CallResult(ToolResult(""), failure=failure(tool.name, err), booked=booked)


def _finished(out: object, context: ToolContext) -> CallResult:
    if not isinstance(out, ToolResult):
        out = build(ToolResult, (_read(out), (), 0.0, False, None, None, "tool"))
    bill = context.bill
    for usage in out.usages:
        bill.add(usage)
    if out.seconds is None:
        out = out._replace(seconds=float(sum([usage.seconds for usage in bill.usages])))
    if not 0 <= out.seconds < math.inf:  # type: ignore[operator]
        raise ValueError(f"a result's seconds are a number from 0 up, got {out.seconds!r}")
    return build(CallResult, (out, False, None, bill.take()))


def _read(out: object) -> str:
    """What the agent reads of a plain value: JSON, but for a text and what JSON has no word for."""
    if isinstance(out, str):
        return str(out)
    if isinstance(out, dict | list | tuple | bool | NoneType):
        with suppress(TypeError, ValueError):  # a dict's key may be what JSON has no word for
            return json.dumps(out, ensure_ascii=False, default=str)
    if isinstance(out, AsyncIterator | Awaitable | Iterator):
        kind = type(out).__name__
        raise TypeError(f"a tool gives a text or a value, got {kind}, which has none yet; await it, or give a list")
    return str(out)


def _missed(ready: ReadyCall) -> CallResult:
    """Tell what a missed deadline is. Of a tool with something paid behind it, it is an outage: the agent did not cause
    it. Of any other it is a refusal, for the agent's own arguments may be what takes so long."""
    tool, _, context = ready
    text = f"{tool.name} did not answer within {tool.deadline_seconds:g} s"
    booked = context.bill.take()
    if tool.bills:
        return CallResult(ToolResult(""), failure=failure(tool.name, Outage(text)), booked=booked)
    return CallResult(ToolResult(f"Error: {text}", seconds=0.0), refused=True, booked=booked)


def _drive(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Run a coroutine that never really waits, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise ConfigError("a tool that says it does not suspend waited for I/O; make it an `async def` with suspends=True")


class Gates:
    """Runs calls on one event loop: how many to a backend may be in flight, and how long each may take."""

    def __init__(self) -> None:
        self._by_backend: dict[str, asyncio.Semaphore] = {}

    def perform(self, ready: ReadyCall) -> Coroutine[Any, Any, CallResult]:
        """Run one call, waiting for a place first. The deadline starts when the call does."""
        return self._in_turn(ready) if ready.tool.backend else self._run(ready)

    async def perform_all(self, calls: Sequence[ReadyCall]) -> list[CallResult]:
        """Run calls at the same time, unless one of them asks for their order; their results in their order."""
        done: list[CallResult] = []
        running: list[asyncio.Task[CallResult]] = []
        try:
            if any(ready.tool.in_order for ready in calls):
                for ready in calls:
                    done.append(await self.perform(ready))
                return done
            running = [asyncio.create_task(self.perform(ready)) for ready in calls]
            return await asyncio.gather(*running)
        except BaseException:  # broken off: what the calls that had ended have cost is on no bill any more
            done += [task.result() for task in running if task.done() and not task.cancelled() and not task.exception()]
            calls[0].context.bill.put_back(usage for one in done for usage in one.booked)
            raise

    async def _in_turn(self, ready: ReadyCall) -> CallResult:
        tool = ready.tool
        gate = self._by_backend.get(tool.backend)
        if gate is None:
            gate = self._by_backend[tool.backend] = asyncio.Semaphore(tool.max_in_flight)
        async with gate:
            return await self._run(ready)

    async def _run(self, ready: ReadyCall) -> CallResult:
        if not ready.tool.suspends:
            return perform_here(ready)
        ready = ready._replace(context=ready.context.beside())
        tool, arguments, context = ready
        started, deadline = time.monotonic(), asyncio.timeout(tool.deadline_seconds)
        try:
            async with deadline:
                out = await tool.run(context, **arguments)
            return _finished(out, context)
        except CancelledError as err:
            task = current_task()
            if task is None or task.cancelling():
                raise
            # The tool cancelled itself. Let through, it would end the step before its results are handed over, and
            # recv() would wait on.
            return CallResult(ToolResult(""), failure=failure(tool.name, err), booked=context.bill.take())
        except (KeyboardInterrupt, GeneratorExit):  # the latter is how a coroutine is closed
            raise
        except BaseException as err:  # noqa: BLE001 - a failed call is recorded, see _explain
            late = time.monotonic() - started >= tool.deadline_seconds  # a tool's own error may come when it is due
            if isinstance(err, TimeoutError) and (deadline.expired() or late):
                return _missed(ready)
            return _explain(err, ready)


# -- the asyncio driver: rollouts are made of it; thousands of episodes run side by side -------------------------------


async def begin(episode: Episode, gates: Gates) -> Observation:
    """The first observation of an episode that was just started: most have it, some wait for a user's first words."""
    if episode.opening:
        return episode.begin([await gates.perform(ready) for ready in episode.opening])
    return episode.observation


async def advance(episode: Episode, text: str, gates: Gates, usage: Usage | None = None) -> Step:
    """One turn of an episode. `gates` limits calls in flight for all episodes that share it."""
    moved: Pending | Step = episode.act(text, usage)
    while isinstance(moved, Pending):
        calls = moved.calls
        if not any_waits(calls):
            moved = episode.resolve([perform_here(ready) for ready in calls])
        elif len(calls) == 1:
            moved = episode.resolve((await gates.perform(calls[0]),))
        else:
            moved = episode.resolve(await gates.perform_all(calls))
    return moved
