"""How many young objects Python's garbage collector lets come together before it looks at them.

Python looks after 700 more objects were made than freed. A batch of 512 episodes holds thirty times as many alive while
their first calls are in the air and fifty times after a few turns, all of which are freed when they land or end, and so
is looked at dozens of times for nothing. While vector environments are open the collector waits until there are more
than they may hold, and then looks as ever. The user's own setting comes back when the last is closed; a higher one, or
0, is left alone.
"""

from __future__ import annotations

import gc
import threading

OBJECTS_PER_ENV = 100
"""Containers alive in the middle of an episode: 38 with its first call in flight, and five more for each turn that it
has played, in its transcript and its ledger."""


class Collector:
    """The process's one, for it has one collector."""

    def __init__(self) -> None:
        # Reentrant: a collection in here may close an environment that was dropped.
        self._lock = threading.RLock()
        self._envs = 0
        self._theirs: int | None = None
        """The threshold before ours, while ours holds."""
        self._ours = 0

    def open(self, envs: int) -> None:
        """So many more environments are at work."""
        with self._lock:
            self._envs += envs
            self._apply()

    def close(self, envs: int) -> None:
        """So many are no longer."""
        with self._lock:
            self._envs -= envs
            self._apply()

    def _apply(self) -> None:
        now, *others = gc.get_threshold()
        if self._theirs is None or now != self._ours:  # set by somebody else since: that is theirs now
            self._theirs = now
        wanted = max(self._theirs, self._envs * OBJECTS_PER_ENV) if self._theirs else 0
        if not self._envs:
            wanted, self._theirs = self._theirs, None
        self._ours = wanted
        if wanted != now:
            gc.set_threshold(wanted, *others)


COLLECTOR = Collector()
