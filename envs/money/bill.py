"""The bill of one call: what it has used so far, booked as soon as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolorchestra.envs.money.prices import EXPERT, PriceSheet, Tokens, Usage
from toolorchestra.envs.money.spend_cap import WAIT_SECONDS, Hold, SpendCap

if TYPE_CHECKING:
    from collections.abc import Iterable


class Bill:
    """What one call has used so far.

    Who learns of a usage adds it at once, before anything can raise. So it is billed however the call ends: with a
    result, with any exception, at its deadline, or cancelled. The spend cap counts it at the same moment.

    The same usage object is booked once. So a model may book what it used, and whoever asked the model may book the
    completion's usage again, for models that do not.
    """

    __slots__ = ("_above", "_beside", "_sheet", "cap", "usages")

    def __init__(self, sheet: PriceSheet | None = None, cap: SpendCap | None = None, above: Bill | None = None) -> None:
        self.usages: list[Usage] = []
        self.cap = cap
        self._sheet = sheet
        self._above = above
        self._beside: list[Bill] = []

    def add(self, usage: Usage) -> None:
        """Add what one call used to the bill."""
        if holds(self.usages, usage):
            return
        self.usages.append(usage)
        if self._above is not None:
            self._above.add(usage)
        elif self.cap is not None and self._sheet is not None:
            self.cap.add(self._sheet.charge(usage).nano_usd)

    def take(self) -> tuple[Usage, ...]:
        """What was booked, and the bill is empty again."""
        if not self.usages:
            return ()
        taken = tuple(self.usages)
        self.usages.clear()
        return taken

    def another(self) -> Bill:
        """An empty bill under the same prices and cap: for a call that runs beside others."""
        made = Bill(self._sheet, self.cap)
        self._beside = [other for other in self._beside if other.usages or other._beside]
        self._beside.append(made)
        return made

    def unsettled(self) -> tuple[Usage, ...]:
        """take(), with what calls beside have booked and nobody took: they were broken off."""
        beside, self._beside = self._beside, []
        return (*self.take(), *(usage for other in beside for usage in other.unsettled()))

    def part(self) -> Bill:
        """An empty bill within this one: what is added to it is added here too."""
        return Bill(self._sheet, self.cap, self)

    async def hold(self, item: str, into: int, out: int, seconds: float = WAIT_SECONDS) -> Hold | None:
        """Set aside under the spend cap the most that a request to a model may cost, by the most tokens that it may
        read and write; release() it when the request has ended.

        Waits while requests in flight hold what is missing, so many seconds at most: then it is an Outage. Raises
        SpendCapReached where it cannot be had. None: there is no cap, or no price to hold by.
        """
        if self.cap is None or self._sheet is None:
            return None
        return await self.cap.hold(most_nano_usd(self._sheet, item, into, out), seconds)


def most_nano_usd(sheet: PriceSheet, item: str, into: int, out: int) -> int:
    """The most that so many tokens can cost, whatever their classes."""
    classes = (Tokens(into, 0, out, 0), Tokens(into, 0, 0, out), Tokens(0, into, out, 0), Tokens(0, into, 0, out))
    price = sheet.price(item)
    return max(price.nano_usd(Usage(item, EXPERT, tokens)) for tokens in classes)


def holds(booked: Iterable[Usage], usage: Usage) -> bool:
    """Whether this very usage, not an equal one, is among these."""
    return any(usage is one for one in booked)
