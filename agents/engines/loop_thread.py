"""An event loop in a thread of its own, for what outlives the short loops that rollouts run on."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from multiprocessing import resource_tracker
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """The loop. Processes that are started from it never see Ctrl-C: whoever started them decides when they end."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # A terminal sends SIGINT to the whole group of processes, and a blocked signal is inherited by children. The
        # tracker first: where multiprocessing starts it later, it unblocks the signal behind itself.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, from a thread that may block."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def until_done(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, from another loop. Being cancelled here cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if not self._thread.is_alive():
            return
        self.wait(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
