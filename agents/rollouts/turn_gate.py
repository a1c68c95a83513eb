"""A gate that turns pass: it can be closed while weights change.

Rollouts that go on beside the training must not sample while the sampler takes new weights, and not while an
evaluation samples. The gate is closed then: turns that are under way end with the weights they began with, new ones
wait, and tools go on working. It is nobody's fault that it was closed, so deadlines stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TurnGate:
    """For the episodes of one event loop. Everything here is called on that loop. It is closed at first."""

    def __init__(self, most: int) -> None:
        """`most`: turns that may be sampled at a time."""
        self._free = most
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of those that wait for a place, by their order and then by when they came."""
        self._numbers = itertools.count()
        self._open = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0
        self._deadlines: set[asyncio.Timeout] = set()
        self._left: dict[asyncio.Timeout, float] = {}
        """Seconds that were left of each deadline when the gate was closed."""
        self.step = 0
        """Of the weights that turns are sampled with now."""

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError when the gate has been open for so many seconds."""
        async with asyncio.timeout(seconds) as limit:
            self._deadlines.add(limit)
            if not self._open.is_set():
                self._stop_clock(limit)
            try:
                yield
            finally:
                self._deadlines.discard(limit)
                self._left.pop(limit, None)

    @asynccontextmanager
    async def turn(self, order: int = 0) -> AsyncIterator[int]:
        """One turn, once there is a place and the gate is open. Of those that wait the lowest order comes first. Gives
        the step of the weights that the turn is sampled with."""
        await self._take_place(order)
        try:
            while not self._open.is_set():
                await self._open.wait()
            self._inside += 1
            self._empty.clear()
            try:
                yield self.step
            finally:
                self._inside -= 1
                if not self._inside:
                    self._empty.set()
        finally:
            self._give_place()

    async def _take_place(self, order: int) -> None:
        if self._free:
            self._free -= 1
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (order, next(self._numbers), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():  # it was given a place in the same moment
                self._give_place()
            raise

    def _give_place(self) -> None:
        while self._queue:
            *_, waiting = heapq.heappop(self._queue)
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1

    async def close(self) -> None:
        """Let nobody in any more, and wait until all turns that are under way have ended."""
        self._open.clear()
        for limit in self._deadlines - self._left.keys():
            self._stop_clock(limit)
        await self._empty.wait()

    async def open(self, step: int) -> None:
        """Let turns in again, which are sampled with the weights of that step."""
        now = asyncio.get_running_loop().time()
        for limit, seconds in self._left.items():
            if not limit.expired():
                limit.reschedule(now + seconds)
        self._left.clear()
        self.step = step
        self._open.set()

    def _stop_clock(self, limit: asyncio.Timeout) -> None:
        if (at := limit.when()) is not None and not limit.expired():
            self._left[limit] = at - asyncio.get_running_loop().time()
            limit.reschedule(None)
