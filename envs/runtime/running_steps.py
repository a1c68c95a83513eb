"""Calls in flight for many episodes at once: launched in batches on the background loop, landing in one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from toolorchestra.envs.episode.calls import CallResult, ReadyCall, failure
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.tools import ToolResult


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
    """Launching and landing, for one owner thread. It runs the background loop itself while it launches or waits, where
    it can have it; else the two threads hand the steps over."""

    def __init__(self) -> None:
        self._landed: SimpleQueue[list[RunningStep]] = SimpleQueue()
        self._landing: list[RunningStep] = []
        self._running: BackgroundLoop | None = None
        """The loop, while the owner runs it and waits for a landing."""

    def launch(self, steps: Sequence[RunningStep]) -> None:
        """Start them all at once."""
        if not steps:
            return
        background = BackgroundLoop.shared()
        with background.borrowed() as loan:
            if loan.held:
                self._start(background, steps)
                loan.run(0)
            else:
                background.loop.call_soon_threadsafe(self._start, background, list(steps))

    def _start(self, background: BackgroundLoop, steps: Sequence[RunningStep]) -> None:
        loop = background.loop
        for step in steps:  # not create_task(), which formats a name for each
            step.task = asyncio.Task(self._fly(background, step), loop=loop, name="step")

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
            self._land(background, step)
            if isinstance(err, KeyboardInterrupt):
                raise
            return
        self._land(background, step)

    def _land(self, background: BackgroundLoop, step: RunningStep) -> None:
        step.task = None
        if not self._landing:
            background.loop.call_soon(self._hand_over)
        self._landing.append(step)

    def _hand_over(self) -> None:
        # All that landed in one round of the loop goes over at once: waking the owner costs more than a landing.
        landed, self._landing = self._landing, []
        self._landed.put(landed)
        if self._running is not None:
            self._running.loop.stop()

    def land(self, timeout: float | None) -> list[RunningStep]:
        """What has landed, waiting up to `timeout` seconds for the first (None: as long as it takes, 0: not at all).
        It may come back with nothing before its time."""
        landed = self._arrived()
        if landed or timeout == 0:
            return landed
        background = BackgroundLoop.shared()
        with background.borrowed() as loan:
            borrowed = loan.held
            if borrowed:
                try:
                    self._running = background
                    if self._landed.empty():  # else they came while it still ran in its own thread
                        loan.run(timeout)
                finally:
                    self._running = None
        if not borrowed:
            try:
                landed = self._landed.get(timeout=timeout)
            except Empty:
                return []
        return landed + self._arrived()

    def _arrived(self) -> list[RunningStep]:
        landed: list[RunningStep] = []
        try:
            while True:
                landed += self._landed.get_nowait()
        except Empty:
            return landed

    @staticmethod
    def cancel(steps: Sequence[RunningStep]) -> None:
        """Stop what still flies; it will not land."""
        live = list(steps)
        for step in live:
            step.dropped = True
        if live:
            # A launch that is still queued runs before this does, so every step has its task by then.
            BackgroundLoop.shared().loop.call_soon_threadsafe(lambda: [f.task and f.task.cancel() for f in live])
