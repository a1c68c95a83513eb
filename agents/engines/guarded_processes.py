"""Processes that end when this one is gone, and an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Coroutine
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
MARK = "TOOLORCHESTRA_GUARDED"
_STRIKE = """read -r word
for again in 1 2 3; do
    for place in /proc/[0-9]*; do
        if grep -qas "$1" "$place/environ"; then kill -9 "${place#/proc/}" 2>/dev/null; fi
    done
done
shift
[ -n "$word" ] || rm -rf -- "$@"
"""


class ProcessGuard:
    """A shell that reads from a pipe which only this process holds, and kills what bears the mark when the pipe ends.

    Whatever is started with `environment` bears it, and all that it starts in turn, at whatever time. Folders are
    removed with it, but not by strike(). Linux only.
    """

    def __init__(self, *folders: Path) -> None:
        mark = uuid.uuid4().hex
        self.environment = {MARK: mark}
        plain = {name: value for name, value in os.environ.items() if name != MARK}
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _STRIKE, "guard", f"{MARK}={mark}", *map(str, folders)],
            stdin=subprocess.PIPE,
            env=plain,
            start_new_session=True,
        )

    def strike(self) -> None:
        """Kill what still bears the mark, now."""
        self._shell.communicate(b"now\n")


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

    def call(self, function: Callable[..., T], *given: Any) -> T:
        """Call a function there, from a thread that may block."""

        async def called() -> T:
            return function(*given)

        return self.wait(called())

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
