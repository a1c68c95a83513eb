"""When another trial may begin under a spend cap, so that the cap buys results and not halves of them."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Hashable, Iterable

from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap

FIRST_AT_ONCE = 4
"""Trials side by side while none has ended, so while nobody knows what one costs. Each that fails lets one more begin:
else a run whose first trials all fail would go on at this pace to its end."""
_QUANTILE = 0.9


class Spending:
    """Lets a trial begin when what is left of the cap pays for it, beside what those that run may still cost.

    What a trial costs is estimated by those that have ended: nine of ten cost at most so much. `known` are the costs of
    those that ended before, in nano-dollars. Without a cap every trial may begin. Requests in flight are held to the
    cap by the cap itself.
    """

    def __init__(self, cap: SpendCap | None, known: Iterable[int] = ()) -> None:
        self._cap = cap
        self._costs = sorted(known)
        self._failed = 0
        self._running: dict[Hashable, Episode | None] = {}
        self._changed = asyncio.Event()

    async def begin(self, trial: Hashable) -> bool:
        """Wait until the trial may begin; False: the cap pays for none any more."""
        while self._cap is not None:
            allowed = self._allowed(self._cap)
            if allowed is not None:
                if not allowed:
                    return False
                break
            self._changed.clear()
            await self._changed.wait()
        self._running[trial] = None
        return True

    def watch(self, trial: Hashable, episode: Episode) -> None:
        """The trial's episode, whose bill is looked at while it runs."""
        self._running[trial] = episode

    def ended(self, trial: Hashable, nano_usd: int | None) -> None:
        """The trial is over; None: it failed or was broken off, and says nothing of what one costs."""
        self._running.pop(trial, None)
        if nano_usd is None:
            self._failed += 1
        else:
            insort(self._costs, nano_usd)
        self._changed.set()

    @property
    def each(self) -> int | None:
        """What a trial may cost, in nano-dollars; None while nobody knows."""
        return self._costs[min(len(self._costs) - 1, int(_QUANTILE * len(self._costs)))] if self._costs else None

    def _allowed(self, cap: SpendCap) -> bool | None:
        """Whether another may begin now; None: not while these run."""
        if cap.used_up:
            return False
        each = self.each
        if each is None:
            return True if len(self._running) < FIRST_AT_ONCE + self._failed else None
        spent = [episode.ledger.nano_usd if episode is not None else 0 for episode in self._running.values()]
        left = round((cap.usd - cap.spent_usd) * NANO) - sum(max(0, each - own) for own in spent)
        if left >= each:
            return True
        return None if self._running else False
