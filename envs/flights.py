"""Calls in flight for many episodes at once: launched in batches on the background loop, landing in one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from toolorchestra.envs.invoke import BackgroundLoop, CallResult, Ready


class Flight:
    """The calls of one turn of one episode; their results, once it has landed."""

    __slots__ = ("calls", "results", "slot", "task")

    def __init__(self, slot: int, calls: Sequence[Ready]) -> None:
        self.slot = slot
        self.calls = calls
        self.results: Sequence[CallResult] = ()
        self.task: asyncio.Task[None] | None = None


class Flights:
    """Launching and landing. One owner thread; the waiting is the background loop's."""

    def __init__(self) -> None:
        self._landed: SimpleQueue[list[Flight]] = SimpleQueue()
        self._landing: list[Flight] = []

    def launch(self, flights: Sequence[Flight]) -> None:
        """Start them all with one wake-up of the loop."""
        if flights:
            background = BackgroundLoop.shared()
            background.loop.call_soon_threadsafe(self._start, background, list(flights))

    def _start(self, background: BackgroundLoop, flights: list[Flight]) -> None:
        loop = background.loop
        for flight in flights:  # not create_task(), which formats a name for each
            flight.task = asyncio.Task(self._fly(background, flight), loop=loop, name="flight")

    async def _fly(self, background: BackgroundLoop, flight: Flight) -> None:
        calls = flight.calls
        if len(calls) == 1:
            flight.results = (await background.gates.perform(calls[0]),)
        else:
            flight.results = await background.gates.perform_all(calls)
        flight.task = None
        if not self._landing:
            background.loop.call_soon(self._hand_over)
        self._landing.append(flight)

    def _hand_over(self) -> None:
        # All that landed in one round of the loop goes over at once: waking the owner costs more than a landing.
        landed, self._landing = self._landing, []
        self._landed.put(landed)

    def land(self, timeout: float | None) -> list[Flight]:
        """What has landed, waiting up to `timeout` seconds for the first (None: as long as it takes, 0: not at all)."""
        landed: list[Flight] = []
        try:
            landed += self._landed.get(block=timeout != 0, timeout=timeout)
            while True:
                landed += self._landed.get_nowait()
        except Empty:
            return landed

    @staticmethod
    def cancel(flights: Sequence[Flight]) -> None:
        """Stop what still flies; it will not land."""
        live = list(flights)
        if live:
            # A launch that is still queued runs before this does, so every flight has its task by then.
            BackgroundLoop.shared().loop.call_soon_threadsafe(lambda: [f.task and f.task.cancel() for f in live])
