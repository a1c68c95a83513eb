"""Places for a number of calls at once, which threads and event loops may share."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Places:
    """A semaphore whose waiters may sit on different event loops."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._free = most
        self._waiting: deque[Waiter] = deque()

    async def take(self) -> None:
        """Wait for a place, first come first served."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            waiter = (loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            with self._lock:
                still_waiting = waiter in self._waiting
                if still_waiting:
                    self._waiting.remove(waiter)
            if not still_waiting:
                self.give()  # the place came at the moment of the cancellation
            raise

    def give(self) -> None:
        """Hand a place to the next in line."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                loop, future = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # that loop is closed, and its waiter gone with it
                continue
            return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
