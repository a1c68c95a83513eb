"""Where the seconds of rollouts went: into sampling, into tokenisation, or into waiting for tools.

Many episodes run side by side, so their own seconds add up to more than a clock shows. Each second of the clock is
given to one kind instead: to tokenisation while that runs, else to sampling while any turn is being sampled, else to
tools while any episode waits for one, and else to nothing ("idle").

split = TimeSplit()
with split.sampling: ...
split.taken()  # seconds by kind since the last call
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

KINDS = ("tokenisation", "sampling", "tools")
"""Of two that go on at the same time, the first is what a second counts for."""
IDLE = "idle"


class TimeSplit:
    """A stopwatch for each kind, of which one runs at a time. For coroutines of one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._going_on = [0] * len(KINDS)
        self._seconds = dict.fromkeys((*KINDS, IDLE), 0.0)
        self._runs, self._since = IDLE, clock()
        self.tokenisation, self.sampling, self.tools = (_Stretch(self, place) for place in range(len(KINDS)))

    def begin(self, place: int) -> None:
        """One more episode does this."""
        self._going_on[place] += 1
        if self._going_on[place] == 1:
            self._switch()

    def end(self, place: int) -> None:
        """One episode fewer does this."""
        self._going_on[place] -= 1
        if not self._going_on[place]:
            self._switch()

    def _switch(self) -> None:
        now = self._clock()
        self._seconds[self._runs] += now - self._since
        self._since = now
        self._runs = IDLE
        for kind, count in zip(KINDS, self._going_on, strict=True):
            if count:
                self._runs = kind
                return

    def taken(self) -> dict[str, float]:
        """Seconds by kind since the last call. Together they are the time since then."""
        self._switch()
        made, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return made


class _Stretch:
    """What an episode does from entering to leaving."""

    def __init__(self, split: TimeSplit, place: int) -> None:
        self._split, self._place = split, place

    def __enter__(self) -> None:
        self._split.begin(self._place)

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self._split.end(self._place)
