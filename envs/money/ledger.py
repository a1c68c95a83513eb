"""The ledger of an episode: every charge, in order, with exact sums. The bill of one call, which becomes charges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import EXPERT, NANO, REWARDED_ROLES, Charge, PriceSheet, Tokens, Usage
from toolorchestra.envs.money.spend_cap import WAIT_SECONDS, Hold, SpendCap


class Ledger:
    """Append-only. Sums are whole nano-dollars, so they are exact in any order; dollars are only how they are shown."""

    __slots__ = ("_by_role", "_charges", "elapsed_ns", "nano_usd")

    def __init__(self) -> None:
        self._charges: list[Charge] = []
        self._by_role: dict[str, int] = {}
        self.nano_usd = 0
        self.elapsed_ns = 0
        """Time that passed. Calls made at the same time overlap, so it may be less than the charges' sum."""

    def add(self, charge: Charge) -> None:
        """Append one charge, such as a call of an expert, to the ledger."""
        nano, role, by_role = charge.nano_usd, charge.usage.role, self._by_role
        self._charges.append(charge)
        by_role[role] = by_role.get(role, 0) + nano
        self.nano_usd += nano

    def __len__(self) -> int:
        return len(self._charges)

    def __iter__(self) -> Iterator[Charge]:
        return iter(self._charges)

    def since(self, mark: int) -> list[Charge]:
        """The charges from number `mark` on."""
        return self._charges[mark:]

    @property
    def usd(self) -> float:
        return self.nano_usd / NANO

    @property
    def seconds(self) -> float:
        return self.elapsed_ns / NANO

    def nano_usd_of(self, roles: Collection[str]) -> int:
        """Exact spend of some roles."""
        return sum(self._by_role.get(role, 0) for role in roles)

    @property
    def unconfirmed_nano_usd(self) -> int:
        """Spend that nobody has confirmed, of the whole: of requests whose replies nobody read to the end, or
        counted."""
        return unconfirmed_nano_usd(self._charges)

    def usd_by_role(self) -> dict[str, float]:
        """Dollars by role, of the roles that appear."""
        return {role: nano / NANO for role, nano in self._by_role.items()}

    def usd_by_tool(self) -> dict[str, float]:
        """Dollars by the countable key of the tool; the orchestrator's own under ""."""
        sums: dict[str, int] = {}
        for charge in self._charges:
            sums[charge.tool] = sums.get(charge.tool, 0) + charge.nano_usd
        return {tool: nano / NANO for tool, nano in sums.items()}

    def tokens(self) -> Tokens:
        """How many tokens were billed in all, by class, such as input and output."""
        return total_tokens(self._charges)

    def summary(self) -> dict[str, Any]:
        """The cumulative bill as `info["ledger"]` shows it."""
        by_role = {}
        for role, nano in self._by_role.items():  # half the time of a comprehension, and each step shows one
            by_role[role] = nano / NANO
        return {"usd": self.nano_usd / NANO, "seconds": self.elapsed_ns / NANO, "usd_by_role": by_role}

    def reprice(self, sheet: PriceSheet) -> Ledger:
        """Gives a ledger of the same usage, billed by another price sheet."""
        other = Ledger()
        other.elapsed_ns = self.elapsed_ns
        for charge in self._charges:
            other.add(sheet.charge(charge.usage._replace(told_nano_usd=None), charge.tool))
        return other


def total_tokens(charges: Sequence[Charge]) -> Tokens:
    """Tokens of some charges, by class."""
    if len(charges) == 1:
        return charges[0].usage.tokens
    used = [c.usage.tokens for c in charges]
    return Tokens(*map(sum, zip(*used, strict=True))) if used else Tokens()


def unconfirmed_nano_usd(charges: Iterable[Charge]) -> int:
    """The part of some charges that nobody has confirmed."""
    return sum(charge.nano_usd for charge in charges if charge.usage.unconfirmed)


def charge_row(charge: Charge) -> dict[str, Any]:
    """A charge in plain words and numbers, as `info["charges"]` and recorded trajectories have it. One that nobody has
    confirmed says so, and one of which the server told another cost than the price has both."""
    (item, role, tokens, units, seconds, estimated, unconfirmed, _), tool, nano_usd, sheet, by_price = charge
    row = {
        "item": item,
        "role": role,
        "tool": tool,
        "tokens": by_class(tokens),
        "units": units,
        "seconds": seconds,
        "estimated": estimated,
        "nano_usd": nano_usd,
        "sheet": sheet,
    }
    if by_price is not None:
        row["by_price_nano_usd"] = by_price
    return {**row, "unconfirmed": True} if unconfirmed else row


def by_price_nano_usd(charges: Iterable[Charge]) -> int:
    """Some charges by the sheet's prices alone, whatever their servers told."""
    return sum(one.nano_usd if one.by_price_nano_usd is None else one.by_price_nano_usd for one in charges)


def rewarded_usd(charges: Iterable[Charge]) -> float:
    """Dollars of some charges that a reward counts: not the judges' and simulated users'."""
    return sum(c.nano_usd for c in charges if c.usage.role in REWARDED_ROLES) / NANO


def by_class(tokens: Tokens) -> dict[str, int]:
    """Tokens as a dict by class: input, cached, output and reasoning, as in `info["cost"]["tokens"]`."""
    return {"input": tokens[0], "cached": tokens[1], "output": tokens[2], "reasoning": tokens[3]}


class Replies(NamedTuple):
    """How many requests there were to a model, and how many of them had no good reply."""

    asked: int = 0
    refused: int = 0
    """The agent reads why."""
    failed: int = 0
    """No reply came."""
    empty: int = 0
    """The reply says nothing."""
    cut: int = 0
    """The reply broke off at the limit of its length."""

    def plus(self, more: Sequence[int]) -> Replies:
        """Both together."""
        return Replies(*map(int.__add__, self, more))


NO_REPLIES = Replies()


class Bill:
    """What one call has used so far.

    Who learns of a usage adds it at once, before anything can raise. So it is billed however the call ends: with a
    result, with any exception, at its deadline, or cancelled. The spend cap counts it at the same moment.
    """

    __slots__ = ("_above", "_beside", "_sheet", "_taken", "cap", "replies", "usages")

    def __init__(self, sheet: PriceSheet | None = None, cap: SpendCap | None = None, above: Bill | None = None) -> None:
        self.usages: list[Usage] = []
        self.replies: dict[str, Replies] = {}
        """What came of the requests to each model, of this call and of those beside it. It is never emptied."""
        self.cap = cap
        self._sheet = sheet
        self._above = above
        self._beside: list[Bill] = []
        self._taken = False

    def add(self, usage: Usage) -> None:
        """Add what one call used to the bill."""
        if type(usage) is not Usage:
            raise TypeError(f"what a call used is a Usage, got {usage!r:.60}")
        self.usages.append(usage)
        if self._above is not None:
            self._above.add(usage)
        elif self._sheet is not None and (self.cap is not None or JOURNAL.get() is not None):
            charge, (cap, journal) = self._sheet.charge(usage), self._counted_by()
            if cap is not None:
                cap.add(charge.nano_usd, unconfirmed=usage.unconfirmed)
            if journal is not None:
                journal.booked(charge)

    def _counted_by(self) -> tuple[SpendCap | None, SpendJournal | None]:
        journal = JOURNAL.get()
        return (self.cap if self.cap is not None or journal is None else journal.cap), journal

    def add_unread(self, item: str, role: str, into: int, out: int) -> None:
        """Add the most that a request can have cost whose reply nobody read to its end, or counted: by the most tokens
        that it can have read and written beside those that stand on the bill. It is unconfirmed until somebody counts
        it. What costs nothing is left out."""
        most = Tokens(into, 0, out, 0) if self._sheet is None else most_tokens(self._sheet, item, into, out)
        used = Usage(item, role, most, estimated=True, unconfirmed=True)
        if self._sheet is None or self._sheet.charge(used).nano_usd:
            self.add(used)

    def asked(self, model: str, *, refused: bool = False, failed: bool = False, empty: bool = False,
              cut: bool = False) -> None:  # fmt: skip
        """Count a request to a model, and what came of it."""
        before = self.replies.get(model, NO_REPLIES)
        self.replies[model] = before.plus(Replies(1, int(refused), int(failed), int(empty), int(cut)))

    def take(self) -> tuple[Usage, ...]:
        """What was booked, and the bill is empty again: its call has ended."""
        self._taken = True
        if not self.usages:
            return ()
        taken = tuple(self.usages)
        self.usages.clear()
        return taken

    def another(self) -> Bill:
        """An empty bill under the same prices and cap: for a call that runs beside others."""
        made = Bill(self._sheet, self.cap)
        made.replies = self.replies
        self._beside = [other for other in self._beside if not other._taken or other.usages or other._beside]
        self._beside.append(made)
        return made

    def put_back(self, taken: Iterable[Usage]) -> None:
        """Take back what was taken and reaches no ledger. The cap counts it already."""
        self.usages.extend(taken)

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
        SpendCapReached where it cannot be had. None: there is no cap and no journal, or no price to hold by.
        """
        if self._sheet is None or self._counted_by() == (None, None):
            return None
        tokens = most_tokens(self._sheet, item, into, out)
        return await self.hold_for(Usage(item, EXPERT, tokens, estimated=True, unconfirmed=True), seconds)

    async def hold_for(self, usage: Usage, seconds: float = WAIT_SECONDS) -> Hold | None:
        """The same for the most that a request may use, whatever is counted: tokens, searches, pages, calls."""
        cap, journal = self._counted_by()
        if self._sheet is None or (cap is None and journal is None):
            return None
        most = self._sheet.charge(usage)
        hold = Hold(None, 0) if cap is None else await cap.hold(most.nano_usd, seconds)
        if journal is not None:
            hold.ended = partial(journal.done, journal.sent(most))
        return hold


def most_tokens(sheet: PriceSheet, item: str, into: int, out: int) -> Tokens:
    """Tokens in the classes in which they cost the most."""
    classes = (Tokens(into, 0, out, 0), Tokens(into, 0, 0, out), Tokens(0, into, out, 0), Tokens(0, into, 0, out))
    price = sheet.price(item)
    return max(classes, key=lambda tokens: price.nano_usd(Usage(item, EXPERT, tokens)))


def most_nano_usd(sheet: PriceSheet, item: str, into: int, out: int) -> int:
    """The most that so many tokens can cost, whatever their classes."""
    return sheet.charge(Usage(item, EXPERT, most_tokens(sheet, item, into, out))).nano_usd
