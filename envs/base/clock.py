"""Episode time. Simulated tools advance a virtual clock: a call of 96 s takes microseconds and is billed as 96 s."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some start, and whether it is real."""

    @property
    def virtual(self) -> bool: ...
    def now(self) -> float: ...
    def advance(self, seconds: float) -> None: ...


class VirtualClock:
    """Stands still except when advanced."""

    __slots__ = ("_now",)
    virtual = True

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class WallClock:
    """The machine's monotonic time. Advancing it does nothing: real time has passed already."""

    __slots__ = ("_start",)
    virtual = False

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __getstate__(self) -> tuple[None, dict[str, float]]:
        return None, {"_start": self.now()}

    def __setstate__(self, state: tuple[None, dict[str, float]]) -> None:
        """A copy goes on from the time that had passed: the start of another machine's clock says nothing here."""
        self._start = time.monotonic() - state[1]["_start"]

    def now(self) -> float:
        return time.monotonic() - self._start

    def advance(self, seconds: float) -> None:
        del seconds
