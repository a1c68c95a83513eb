"""What a run may spend, over all its episodes."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NoReturn, Self

from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached
from toolorchestra.envs.money.prices import NANO, plain

WAIT_SECONDS = 3_600.0
"""How long a request waits for money that others have set aside, where nothing else is said."""


class SpendCap:
    """A limit on what all episodes of a run may spend together.

    A request to a model first sets aside the most that it may cost, and gives it back when it has ended. So requests in
    flight cannot spend more than the cap together. A request that does not fit waits for those in flight, and who came
    first is served first, so an expensive request is not overtaken for ever by cheap ones. Where nothing is in flight
    and the first still does not fit, the cap counts as used up: that request and all later ones are refused.
    """

    def __init__(self, usd: float) -> None:
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < math.inf:
            raise ConfigError(f"a spend cap is a positive, finite number of dollars, got {usd!r}; None sets no cap")
        self.usd = usd
        self._process = os.getpid()
        self._nano_cap = round(usd * NANO)
        self._nano_spent = 0
        self._nano_unconfirmed = 0
        self._nano_held = 0
        self._refused = 0
        """The most that the first refused request might have cost; 0 while none was refused."""
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    @property
    def spent_usd(self) -> float:
        return self._nano_spent / NANO

    @property
    def unconfirmed_usd(self) -> float:
        """The part of what counts as spent that nobody has confirmed: of requests whose replies nobody read to the end,
        or counted."""
        return self._nano_unconfirmed / NANO

    @property
    def held_usd(self) -> float:
        """Set aside for requests in flight."""
        return self._nano_held / NANO

    @property
    def free_nano_usd(self) -> int:
        """Neither spent nor set aside; below 0 where more was spent than the cap."""
        return self._nano_cap - self._nano_spent - self._nano_held

    @property
    def used_up(self) -> bool:
        """Whether nothing more may be spent."""
        return self._refused > 0 or self._nano_spent >= self._nano_cap

    def _require_own_process(self) -> None:
        """Raise in a process that a fork made: it would spend the whole cap once more, and nobody would see it."""
        if os.getpid() != self._process:
            raise ConfigError(
                f"this spend cap counts in process {self._process}, and a fork copied it into process {os.getpid()}, "
                "where it would be spent once more; make a SpendCap of its own in each process, or play in one"
            )

    def check(self) -> None:
        """Raise when the cap is used up."""
        self._require_own_process()
        if self.used_up:
            raise SpendCapReached(self.told())

    def told(self) -> str:
        """What the run has spent of its cap, in words, and what it could not pay."""
        spent, cap = plain(self._nano_spent, 9), plain(self._nano_cap, 9)
        text = f"the run has spent {spent} $ of its cap of {cap} $"
        if self._nano_unconfirmed:
            text += f" ({plain(self._nano_unconfirmed, 9)} $ of it unconfirmed: no reply was read whole and counted)"
        return f"{text}, and the next request may cost {plain(self._refused, 9)} $" if self._refused else text

    def add(self, nano_usd: int, *, unconfirmed: bool = False) -> None:
        """Adds what was billed to what the run has spent."""
        self._require_own_process()
        with self._lock:
            self._nano_spent += nano_usd
            self._nano_unconfirmed += nano_usd if unconfirmed else 0
            self._serve()

    async def hold(self, nano_usd: int, seconds: float = WAIT_SECONDS) -> Hold:
        """Set so much aside, waiting in turn for requests in flight where it does not fit beside them. Raises
        SpendCapReached where it cannot be had, and Outage where nothing came back in so many seconds."""
        self._require_own_process()
        waiter = self._held_or_waits(nano_usd)
        if waiter is None:  # by far the commonest
            return Hold(self, nano_usd)
        late = False
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()
        except TimeoutError:
            late = self._leave(waiter)
        except BaseException:
            if not self._leave(waiter) and waiter.holds:
                self._release(nano_usd)
            raise
        if waiter.refused:
            raise SpendCapReached(waiter.refused)
        if late:
            wanted, held = plain(nano_usd, 9), plain(self._nano_held, 9)
            raise Outage(
                f"the spend cap had no {wanted} $ free for {seconds:.3g} s: {held} $ are set aside for requests that "
                "have not ended; nothing was sent"
            )
        return Hold(self, nano_usd)

    def _held_or_waits(self, nano_usd: int) -> _Waiter | None:
        """None: it is set aside. Else whose turn is to come. Raises SpendCapReached where it cannot come."""
        with self._lock:
            if not self._waiting and not self.used_up and nano_usd <= self.free_nano_usd:
                self._nano_held += nano_usd
                return None
            waiter = _Waiter(nano_usd, asyncio.get_running_loop())
            self._waiting.append(waiter)
            self._serve()
        if waiter.refused:
            raise SpendCapReached(waiter.refused)
        return waiter

    def _serve(self) -> None:
        """Give those who wait what is free, in their order; where no money can come back, refuse them."""
        while self._waiting:
            first = self._waiting[0]
            free = self.free_nano_usd
            if self.used_up or (first.nano_usd > free and not self._nano_held):
                self._refused = self._refused or (0 if self._nano_spent >= self._nano_cap else first.nano_usd)
                first.refused = self.told()
            elif first.nano_usd > free:
                return
            self._waiting.popleft()
            first.holds = not first.refused
            if first.wake() and first.holds:
                self._nano_held += first.nano_usd

    def _leave(self, waiter: _Waiter) -> bool:
        """Wait no more. False: it had been served."""
        with self._lock:
            if waiter not in self._waiting:
                return False
            self._waiting.remove(waiter)
            self._serve()
            return True

    def _release(self, nano_usd: int) -> None:
        with self._lock:
            self._nano_held -= nano_usd
            self._serve()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        # The copy of a run's settings, such as env.spec, still speaks of the one cap of the run.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a spend cap counts within one process and cannot be sent to another; make one there")


class _Waiter:
    """A request that waits for its turn."""

    __slots__ = ("_loop", "holds", "nano_usd", "refused", "woken")

    def __init__(self, nano_usd: int, loop: asyncio.AbstractEventLoop) -> None:
        self.nano_usd = nano_usd
        self.holds = False
        """Whether the money is set aside for it."""
        self.refused = ""
        """Why it cannot be had."""
        self.woken = asyncio.Event()
        self._loop = loop

    def wake(self) -> bool:
        """Say that it has been served. False: its loop is closed, and nobody waits there any more."""
        try:
            self._loop.call_soon_threadsafe(self.woken.set)
        except RuntimeError:
            return False
        return True


class Hold:
    """Money set aside for one request in flight."""

    __slots__ = ("_cap", "_nano_usd", "ended")

    def __init__(self, cap: SpendCap | None, nano_usd: int) -> None:
        self._cap = cap
        self._nano_usd = nano_usd
        self.ended: Callable[[], None] | None = None
        """Called at the first release."""

    def release(self) -> None:
        """Give it back; what the request really cost has been added by then. A second release does nothing."""
        held, self._nano_usd = self._nano_usd, 0
        if held and self._cap is not None:
            self._cap._release(held)
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()
