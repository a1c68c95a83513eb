"""The one event loop that all environments of a process share for what has to be waited for, in a thread of its own.

The calls of many episodes at once are launched on it in batches, and land in one queue.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.calls import CallResult, ReadyCall, failure
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.tools import ToolResult

T = TypeVar("T")
BREAK_OFF_SECONDS = 1.0
"""How long an interrupted caller waits for the end of what it broke off."""


class BackgroundLoop:
    """The loop runs in a daemon thread, so that calls go on while the caller does something else."""

    _shared: BackgroundLoop | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.gates = Gates()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self.loop.run_forever, name="toolorchestra-io", daemon=True)
        self._thread.start()

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

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait here for what a coroutine gives there. Where the caller is interrupted nothing is left running, and what
        was broken off has booked what it cost."""
        try:
            self.refuse_own_thread()
        except ConfigError:
            coroutine.close()
            raise
        ended = threading.Event()

        async def told() -> T:
            try:
                return await coroutine
            finally:
                ended.set()

        future = self.submit(told())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            ended.wait(BREAK_OFF_SECONDS)
            raise

    def refuse_own_thread(self) -> None:
        """Raise ConfigError in the loop's thread: what waits for the loop there waits for ever, and all others with
        it."""
        if threading.current_thread() is self._thread:
            raise ConfigError(
                "a tool that runs on the shared event loop may not step an environment there, whose calls wait for the "
                "same loop; write it as `async def`, and in it `await asyncio.to_thread(env.step, action)`"
            )


class RunningStep:
    """The calls of one turn of one episode; their results, once it has landed."""

    __slots__ = ("calls", "dropped", "results", "slot", "task")

    def __init__(self, slot: int, calls: Sequence[ReadyCall]) -> None:
        self.slot = slot
        self.calls = calls
        self.results: Sequence[CallResult] = ()
        self.task: asyncio.Task[None] | None = None
        self.dropped = False
        """Nobody waits for it any more."""


class RunningSteps:
    """Launching and landing, for one owner thread."""

    def __init__(self) -> None:
        self.landed: deque[RunningStep] = deque()
        """Steps that came down, for the owner to take."""
        self._landing: list[RunningStep] = []
        self._none = threading.Lock()
        """Held while nothing has landed since the owner last waited."""
        self._none.acquire()

    def launch(self, steps: Sequence[RunningStep]) -> None:
        """Start them all at once."""
        if steps:
            background = BackgroundLoop.shared()
            background.refuse_own_thread()
            background.loop.call_soon_threadsafe(self._start, background, list(steps))

    def _start(self, background: BackgroundLoop, steps: Sequence[RunningStep]) -> None:
        for step in steps:  # not create_task(), which formats a name for each
            step.task = asyncio.Task(self._fly(background, step), loop=background.loop, name="step")

    async def _fly(self, background: BackgroundLoop, step: RunningStep) -> None:
        calls = step.calls
        try:
            if len(calls) == 1:
                step.results = (await background.gates.perform(calls[0]),)
            else:
                step.results = await background.gates.perform_all(calls)
        except BaseException as err:
            if step.dropped:
                raise
            step.results = [CallResult(ToolResult(""), failure=failure(c.tool.name, err)) for c in calls]
        step.task = None
        if not self._landing:
            background.loop.call_soon(self._hand_over)
        self._landing.append(step)

    def _hand_over(self) -> None:
        # All that landed in one round of the loop goes over at once: waking the owner costs more than a landing.
        landed, self._landing = self._landing, []
        self.landed += landed
        if self._none.locked():
            self._none.release()

    def wait(self, timeout: float | None) -> None:
        """Wait for the first landing, up to `timeout` seconds (None: as long as it takes). It may come back early."""
        if not self.landed and timeout != 0:
            self._none.acquire(timeout=-1 if timeout is None or timeout > threading.TIMEOUT_MAX else timeout)

    @staticmethod
    def cancel(steps: Sequence[RunningStep]) -> None:
        """Stop what still flies; it will not land."""
        live = list(steps)
        for step in live:
            step.dropped = True
        if live:
            # A launch that is still queued runs before this does, so every step has its task by then.
            BackgroundLoop.shared().loop.call_soon_threadsafe(lambda: [f.task and f.task.cancel() for f in live])


OBJECTS_PER_ENV = 100
"""Containers alive in the middle of an episode, all of which are freed when it ends."""


class Collector:
    """Python looks for garbage after 700 objects more were made than freed, in vain while many episodes are at work. So
    it waits until there are more than they may hold. The user's setting comes back; a higher one, or 0, stays."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection in here may close an environment that was dropped
        self._envs = self._theirs = self._ours = 0

    def at_work(self, envs: int) -> None:
        """Count more environments at work; below 0: fewer."""
        with self._lock:
            now, *others = gc.get_threshold()
            if not self._envs or now != self._ours:  # set by somebody else since: that is theirs now
                self._theirs = now
            self._envs += envs
            self._ours = max(self._theirs, self._envs * OBJECTS_PER_ENV) if self._theirs else 0
            gc.set_threshold(self._ours, *others)


COLLECTOR = Collector()
