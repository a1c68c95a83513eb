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
    it can have it; else the two threads hand the flights over."""

    def __init__(self) -> None:
        self._landed: SimpleQueue[list[RunningStep]] = SimpleQueue()
        self._landing: list[RunningStep] = []
        self._running: BackgroundLoop | None = None
        """The loop, while the owner runs it and waits for a landing."""

    def launch(self, flights: Sequence[RunningStep]) -> None:
        """Start them all at once."""
        if not flights:
            return
        background = BackgroundLoop.shared()
        with background.borrowed() as loan:
            if loan.held:
                self._start(background, flights)
                loan.run(0)
            else:
                background.loop.call_soon_threadsafe(self._start, background, list(flights))

    def _start(self, background: BackgroundLoop, flights: Sequence[RunningStep]) -> None:
        loop = background.loop
        for flight in flights:  # not create_task(), which formats a name for each
            flight.task = asyncio.Task(self._fly(background, flight), loop=loop, name="flight")

    async def _fly(self, background: BackgroundLoop, flight: RunningStep) -> None:
        calls = flight.calls
        try:
            if len(calls) == 1:
                flight.results = (await background.gates.perform(calls[0]),)
            else:
                flight.results = await background.gates.perform_all(calls)
        except BaseException as err:
            if flight.dropped:
                raise
            flight.results = [CallResult(ToolResult(""), failure=failure(c.tool.name, err)) for c in calls]
            self._land(background, flight)
            if isinstance(err, KeyboardInterrupt):
                raise
            return
        self._land(background, flight)

    def _land(self, background: BackgroundLoop, flight: RunningStep) -> None:
        flight.task = None
        if not self._landing:
            background.loop.call_soon(self._hand_over)
        self._landing.append(flight)

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
    def cancel(flights: Sequence[RunningStep]) -> None:
        """Stop what still flies; it will not land."""
        live = list(flights)
        for flight in live:
            flight.dropped = True
        if live:
            # A launch that is still queued runs before this does, so every flight has its task by then.
            BackgroundLoop.shared().loop.call_soon_threadsafe(lambda: [f.task and f.task.cancel() for f in live])
