"""What each of the vector environment's three small machines is worth: `bench.py --table vector-parts`. Wall times.

512 episodes of seven tool calls of 10 ms through `send` and `recv`, as it is and with parts left out, in turn in each
round, so that a machine that is slow for a while is so for all of them.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from toolorchestra.envs.episode.calls import CallResult, ReadyCall
from toolorchestra.envs.runtime import background, invoke
from toolorchestra.envs.runtime.background import BackgroundLoop, BorrowedLoop

EPISODES, SECONDS, ROUNDS = 512, 0.01, 10
PYTHONS_OWN = gc.get_threshold()[0]
"""The collector's threshold before any vector environment changes it."""


class NotBorrowed(BorrowedLoop):
    """The main thread waits, and the loop's own thread runs the calls."""

    def __enter__(self) -> BorrowedLoop:
        return self


@contextmanager
def replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    """An attribute, for a while. Only here: the product has no switch for its parts."""
    before = getattr(owner, name)
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, before)


def without_loan() -> AbstractContextManager[None]:
    """No borrowed loop."""
    return replaced(background.BackgroundLoop, "borrowed", lambda self: NotBorrowed(self))


def without_deadlines() -> AbstractContextManager[None]:
    """asyncio.timeout for each call, in place of shared deadlines."""

    async def run(self: invoke.Gates, ready: ReadyCall) -> CallResult:
        tool, arguments, context = ready
        try:
            async with asyncio.timeout(tool.deadline_seconds):
                out = await tool.run(context, **arguments)
            return invoke._finished(out, 0.0, context)
        except (Exception, CancelledError) as err:
            raise RuntimeError("no call of this benchmark fails") from err

    return replaced(invoke.Gates, "_run", run)


@contextmanager
def without_all() -> Iterator[None]:
    """None of the three."""
    with ExitStack() as stack:
        for part in (without_loan, without_deadlines):
            stack.enter_context(part())
        yield


def rows(play: Callable[..., list[float]]) -> Iterator[tuple[str, str, str]]:
    """`play` is bench.free_running. The collector is left out by its own argument, so that closing stays balanced."""
    BackgroundLoop.shared()

    def timed(part: Callable[[], AbstractContextManager[None]] | None, collector: int | None = None) -> float:
        with part() if part else ExitStack():
            return max(play(EPISODES, SECONDS, SECONDS, collector=collector))

    variants: dict[str, Callable[[], float]] = {
        "as it is": lambda: timed(None),
        "without the borrowed loop": lambda: timed(without_loan),
        "without shared deadlines": lambda: timed(without_deadlines),
        "without the collector's threshold": lambda: timed(None, PYTHONS_OWN),
        "without all three": lambda: timed(without_all, PYTHONS_OWN),
    }
    found: dict[str, list[float]] = {name: [] for name in variants}
    for warm in range(ROUNDS + 1):
        for name, run in variants.items():
            seconds = run()
            if warm:
                found[name].append(seconds)
    best = min(found["as it is"])
    for name, seconds in found.items():
        shown = f"{1000 * min(seconds):.0f} ms at best, {1000 * statistics.median(seconds):.0f} at the median"
        yield f"512 episodes x 7 calls of 10 ms, {name}", shown, f"{min(seconds) / best:.2f} x"
