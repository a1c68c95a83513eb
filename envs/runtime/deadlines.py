"""Deadlines of many tasks of one event loop, with one timer for all that have the same patience.

`asyncio.timeout` makes a timer and three more objects for each call, and a timer that is cancelled stays in the loop's
heap; here a call costs an entry in a dict. Calls of equal patience are due in the order in which they began, so a timer
for the first of them is enough: when it fires it cancels who is due, and is set again for who is then the first.
"""

from __future__ import annotations

import asyncio
from typing import Any

IDLE_TIMERS = 16
"""Patiences that may keep their timer while nobody waits, so that calls one after another do not set one each."""

AnyTask = asyncio.Task[Any]


class SameDeadline:
    """The tasks that wait for so many seconds at most, and when each of them is due, the first due first."""

    __slots__ = ("due", "loop", "seconds", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop = loop
        self.seconds = seconds
        self.due: dict[AnyTask, float] = {}
        self.timer: asyncio.TimerHandle | None = None


class Deadlines:
    """Cancels tasks that are late. `enter` and `leave` are to asyncio.timeout what its `async with` is: a deadline is
    never early, and a cancellation from elsewhere stays one."""

    __slots__ = ("_loop", "_patiences")

    def __init__(self) -> None:
        self._patiences: dict[float, SameDeadline] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self, task: AnyTask, seconds: float) -> SameDeadline | None:
        """Watch the running task from now on. None: it is being watched already, for as many seconds."""
        loop = task.get_loop()
        if loop is not self._loop:  # whoever uses one object for several asyncio.run() left a dead loop's timers here
            self._loop, self._patiences = loop, {}
        patience = self._patiences.get(seconds)
        if patience is None:
            patience = self._patiences[seconds] = SameDeadline(loop, seconds)
        if task in patience.due:
            return None
        due = patience.due[task] = loop.time() + seconds
        if patience.timer is None:
            patience.timer = loop.call_at(due, self._strike, patience)
        return patience

    def leave(self, task: AnyTask, patience: SameDeadline, cancelling: int) -> bool:
        """Watch it no longer. True: the deadline cancelled it, and nobody else did since `cancelling` was counted."""
        due = patience.due
        if due.pop(task, None) is None:
            return task.uncancel() <= cancelling
        if not due and len(self._patiences) > IDLE_TIMERS and patience.timer is not None:
            patience.timer.cancel()
            self._forget(patience)
        return False

    @property
    def timers(self) -> int:
        """How many timers are set on the event loop."""
        return sum(p.timer is not None for p in self._patiences.values())

    def _strike(self, patience: SameDeadline) -> None:
        now, late = patience.loop.time(), []
        for task, due in patience.due.items():
            if due > now:
                patience.timer = patience.loop.call_at(due, self._strike, patience)
                break
            late.append(task)
        else:
            self._forget(patience)
        for task in late:
            del patience.due[task]
            task.cancel()

    def _forget(self, patience: SameDeadline) -> None:
        patience.timer = None
        if self._patiences.get(patience.seconds) is patience:
            del self._patiences[patience.seconds]
