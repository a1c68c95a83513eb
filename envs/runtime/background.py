"""The one event loop that all environments of a process share for what has to be waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from toolorchestra.envs.runtime.invoke import Gates

T = TypeVar("T")
PATIENCE_SECONDS = 0.005
"""How long a borrower waits for the loop: as long as Python lets a thread wait for its turn."""


class BackgroundLoop:
    """The loop runs in a daemon thread of its own, so that calls go on while the caller does something else.

    Where the main thread can only wait, it may borrow the loop and run it itself meanwhile: handing each call over from
    one thread to the other costs more than making it.
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

    def borrowed(self) -> BorrowedLoop:
        """`with background.borrowed() as loan:` and, where `loan.held`, `loan.run(seconds)` as often as needed."""
        return BorrowedLoop(self)

    def _take(self) -> bool:
        """Take the loop over from its thread. False: a tool that blocks keeps it."""
        try:
            with ExitStack() as undo:
                with self._mutex:
                    if self._lent:
                        return False
                    self._lent = True
                    undo.callback(self._give_back)
                    served = self._served
                if served:
                    handed: SimpleQueue[None] = SimpleQueue()
                    self.loop.call_soon_threadsafe(self._hand_over, handed)
                    handed.get(timeout=PATIENCE_SECONDS)
                undo.pop_all()
        except Empty:
            return False
        return True

    def _give_back(self) -> None:
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


class BorrowedLoop:
    """The loop in the main thread's hands, if it can have it: another thread cannot (calls may start processes, which
    must not end with their thread), nor one that runs a loop already.

    Ctrl-C is held back meanwhile, or the loop might never be given back: it stops what runs between two callbacks, so
    that no call is torn, and is raised when the loop is back. A second one breaks into what runs. A handler that is not
    Python's own is left alone.
    """

    __slots__ = ("_background", "_holding_back", "_interrupts", "_raised", "_running", "held")

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._interrupts = 0
        self._running = self._raised = self._holding_back = False
        self.held = False

    def __enter__(self) -> BorrowedLoop:
        if threading.current_thread() is threading.main_thread() and asyncio._get_running_loop() is None:
            with ExitStack() as undo:
                undo.push(self)
                if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    signal.signal(signal.SIGINT, self._note)
                    self._holding_back = True
                self.held = self._background._take()
                undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self.held:
            self.held = False
            self._background._give_back()
        if self._holding_back:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._interrupts and not self._raised:
                raise KeyboardInterrupt

    def run(self, seconds: float | None) -> None:
        """Run the loop until something stops it, for so many seconds at most; 0: what is ready now, once."""
        loop, timer = self._background.loop, None
        if seconds is not None:
            timer = loop.call_later(seconds, loop.stop) if seconds > 0 else loop.call_soon(loop.stop)
        try:
            self._running = True
            if not self._interrupts:
                loop.run_forever()
        finally:
            self._running = False
            if timer is not None:
                timer.cancel()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if not self._running:
            return
        if self._interrupts > 1:
            self._raised = True
            raise KeyboardInterrupt
        self._background.loop.call_soon_threadsafe(self._background.loop.stop)
