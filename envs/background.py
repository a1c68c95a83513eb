"""The one event loop that all environments of a process share for what has to be waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from toolorchestra.envs.invoke import Gates

T = TypeVar("T")
PATIENCE_SECONDS = 0.005
"""How long a borrower waits for the loop: as long as Python lets a thread wait for its turn."""


class BackgroundLoop:
    """The loop runs in a daemon thread of its own, so that calls go on while the caller does something else.

    Where the main thread can only wait, it may borrow the loop and run it itself meanwhile: handing each call over from
    one thread to the other costs more than making it. `borrow`, then `run` as often as needed, then `give_back`.
    """

    _shared: BackgroundLoop | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.gates = Gates()
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._lent = self._served = False
        self._returned: SimpleQueue[None] = SimpleQueue()
        self._waiting: SimpleQueue[None] | None = None
        threading.Thread(target=self._serve, name="toolorchestra-io", daemon=True).start()

    @classmethod
    def shared(cls) -> BackgroundLoop:
        """The process's loop, started at first use; a forked child starts its own."""
        with cls._lock:
            if cls._shared is None or cls._shared._pid != os.getpid():
                cls._shared = cls()
            return cls._shared

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine there. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def borrow(self) -> bool:
        """Take the loop over. False: it stays where it is, for this is another thread (calls may start processes, which
        must not end with their thread), or runs a loop already, or a tool that blocks keeps the loop."""
        if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None:
            return False
        with self._mutex:
            if self._lent:
                return False
            self._lent = True
            served = self._served
        if not served:
            return True
        handed: SimpleQueue[None] = SimpleQueue()
        got = False
        try:
            self.loop.call_soon_threadsafe(self._hand_over, handed)
            handed.get(timeout=PATIENCE_SECONDS)
            got = True
        except Empty:
            pass
        finally:
            if not got:
                self.give_back()
        return got

    def run(self, seconds: float | None) -> None:
        """Run the borrowed loop until something stops it, for so many seconds at most; 0: what is ready now, once."""
        loop, timer = self.loop, None
        if seconds is not None:
            timer = loop.call_later(seconds, loop.stop) if seconds > 0 else loop.call_soon(loop.stop)
        try:
            with Interrupts(loop):
                loop.run_forever()
        finally:
            if timer is not None:
                timer.cancel()

    def give_back(self) -> None:
        """The daemon thread goes on with it."""
        with self._mutex:
            self._lent = False
        self._returned.put(None)

    def _serve(self) -> None:
        """The daemon thread: run the loop while nobody has borrowed it."""
        while True:
            with self._mutex:
                self._served = not self._lent
            if not self._served:
                self._returned.get()
                continue
            self.loop.run_forever()
            with self._mutex:
                self._served = False
                waiting, self._waiting = self._waiting, None
            if waiting is not None:
                waiting.put(None)

    def _hand_over(self, to: SimpleQueue[None]) -> None:
        self._waiting = to
        self.loop.stop()


class Interrupts:
    """For the main thread: Ctrl-C stops the loop that it runs between two callbacks and is raised then, so that no call
    is torn; a second one is raised at once. A handler that is not Python's own is left alone."""

    __slots__ = ("_loop", "_ours", "_seen")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._seen = 0
        self._ours = False

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._seen == 1:
                raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._seen += 1
        if self._seen > 1:
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._loop.stop)
