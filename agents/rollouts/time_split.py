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
"""Kinds of seconds. Where two go on at the same time, a second counts for the first."""
IDLE = "idle"


class TimeSplit:
    """A stopwatch for each kind, of which one runs at a time. For coroutines of one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = [0.0] * (len(KINDS) + 1)
        """Seconds by the kind's place in KINDS. The last are idle."""
        self._runs, self._since = len(KINDS), clock()
        self._going_on = [0] * len(KINDS)
        """How many episodes do this now, in the same order."""
        self.tokenisation, self.sampling, self.tools = (_Stretch(self, place) for place in range(len(KINDS)))

    def change(self, place: int, by: int) -> None:
        """Count more episodes that do this."""
        going_on = self._going_on
        before = going_on[place]
        going_on[place] = before + by
        if not (before and going_on[place]):
            self._count()
            self._runs = next((kind for kind, count in enumerate(going_on) if count), len(KINDS))

    def _count(self) -> None:
        """Give the seconds since the last time to what ran."""
        now = self._clock()
        self._seconds[self._runs] += now - self._since
        self._since = now

    def taken(self) -> dict[str, float]:
        """Seconds by kind since the last call. Together they are the time since then."""
        self._count()
        made, self._seconds = self._seconds, [0.0] * len(self._seconds)
        return dict(zip((*KINDS, IDLE), made, strict=True))


class _Stretch:
    """What an episode does from entering to leaving."""

    def __init__(self, split: TimeSplit, place: int) -> None:
        self._split, self._place = split, place

    def __enter__(self) -> None:
        self._split.change(self._place, 1)

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self._split.change(self._place, -1)
