"""Price sheets: dated data files that render the prices in tool descriptions and bill what was used.

Inside, money is whole nano-dollars (10^-9 $). A price is held in whole pico-dollars per token, so sheets may be as fine
as 0.000001 $ per million tokens; each charge is rounded once, half up, to a nano-dollar, and sums are exact.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError, PriceError, no_such
from toolorchestra.envs.base.types import build

NANO = 1_000_000_000
MOST_USD = 1_000_000_000
"""Limit of one price, whatever it is for."""
CLASSES = ("input", "cached", "output", "reasoning")


ORCHESTRATOR, EXPERT, TOOL, JUDGE, USER = ROLES = ("orchestrator", "expert", "tool", "judge", "user")
REWARDED_ROLES = (ORCHESTRATOR, EXPERT, TOOL)
"""The roles whose spending a reward counts by default: judges and simulated users are the experiment's cost, not the
agent's."""


class Tokens(NamedTuple):
    """Tokens by class. The classes are disjoint: cached is not in input, reasoning is not in output."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


NO_TOKENS = Tokens()
CHARACTERS_PER_TOKEN = 4
"""An estimate, where nobody has counted them; simulated models count so."""


def _without_none(row: Any) -> str:
    """A row as text, without what nobody told: digests of plays are made of it."""
    told = ", ".join(f"{name}={value!r}" for name, value in zip(row._fields, row, strict=True) if value is not None)
    return f"{type(row).__name__}({told})"


class Usage(NamedTuple):
    """What one call used of one priced item (a model, a search service, a sandbox), and in whose role."""

    item: str
    role: str
    tokens: Tokens = NO_TOKENS
    units: int = 0
    """Things counted by the piece: searches, pages."""
    seconds: float = 0.0
    estimated: bool = False
    """True when tokens were estimated from characters, since nobody counted them."""
    unconfirmed: bool = False
    """True when a request went out and its reply was not read to the end, or nobody counted it: this is the most that
    may have been paid beside what is counted."""
    told_nano_usd: int | None = None
    """What the server itself says that it cost, where the backends file has that booked in place of the price."""

    def __repr__(self) -> str:
        return _without_none(self)


def _in_plain_numbers(usage: Usage) -> Usage:
    """Convert to Python's own numbers: a count from an array (numpy's int32) overflows where it is multiplied by a
    price."""
    *tokens, units = (*usage.tokens, usage.units)
    if not all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in (*tokens, units)):
        raise PriceError(f"{usage.item!r}: tokens and units are counted in whole numbers, got {usage}")
    if not isinstance(usage.seconds, numbers.Real) or isinstance(usage.seconds, bool):
        raise PriceError(f"{usage.item!r}: seconds are a number from 0 up, got {usage}")
    return usage._replace(tokens=Tokens(*map(int, tokens)), units=int(units), seconds=float(usage.seconds))


class Charge(NamedTuple):
    """A usage with its price: one line of the ledger."""

    usage: Usage
    tool: str
    """Countable key of the tool that incurred it (an alias such as `search-1`), or "" for the orchestrator itself."""
    nano_usd: int
    sheet: str
    by_price_nano_usd: int | None = None
    """What the sheet's price comes to, where the server told another cost, which is what is booked."""

    def __repr__(self) -> str:
        return _without_none(self)

    @property
    def role(self) -> str:
        return self.usage.role

    @property
    def usd(self) -> float:
        return self.nano_usd / NANO

    @property
    def seconds(self) -> float:
        return self.usage.seconds


def _scaled(value: Any, scale: int, where: str) -> int:
    try:
        exact = Decimal(str(value)) * scale
    except ArithmeticError:
        raise PriceError(f"{where}: a price is a number, got {value!r:.40}") from None
    if not exact.is_finite() or exact < 0:
        raise PriceError(f"{where}: a price is finite and not negative, got {value!r:.40}")
    if exact > MOST_USD * scale:  # before it is made an int, which takes seconds for 100,000 digits
        raise PriceError(f"{where}: a price is at most {MOST_USD} $, got {value!r:.40}")
    if exact != exact.to_integral_value():
        raise PriceError(f"{where}: {value!r:.40} is finer than the ledger can bill; round it to {1 / Decimal(scale)}")
    return int(exact)


def plain(value: int, places: int) -> str:
    """value / 10**places with all its digits: a price that is shown is the price that is billed."""
    return f"{Decimal(value).scaleb(-places).normalize():f}"


def in_digits(usd: float) -> str:
    """Dollars as they were set, with all their digits and no exponent."""
    return f"{Decimal(str(usd)).normalize():f}"


Amount = float | str
"""Dollars as a file has them; a text has all its digits."""


@dataclass
class _DollarsPerMillion:
    input: Amount
    output: Amount
    cached: Amount = ""
    reasoning: Amount = ""


@dataclass
class _PriceRow:
    usd_per_mtok: _DollarsPerMillion | None = None
    usd_per_unit: Amount | None = None
    usd_per_second: Amount | None = None
    free: str = ""


@dataclass
class _SheetFile:
    """The shape of a price sheet's file."""

    id: str
    date: str
    source: str
    prices: Mapping[str, _PriceRow]


@dataclass(frozen=True, slots=True)
class Price:
    """One item's price. None means that the item is not sold that way, and billing it that way is an error."""

    pico_usd_per_token: tuple[int, int, int, int] | None = None
    nano_usd_per_unit: int | None = None
    nano_usd_per_second: int | None = None
    free: str = ""
    """Why it costs nothing, in words. A price of 0 without words is refused: it would hide a forgotten price."""

    def __post_init__(self) -> None:
        amounts = (*(self.pico_usd_per_token or ()), self.nano_usd_per_unit or 0, self.nano_usd_per_second or 0)
        for amount in amounts:
            if type(amount) is not int or amount < 0:
                raise PriceError(f"a price is whole pico- or nano-dollars from 0 up, got {self}; use Price.read")

    @classmethod
    def read(cls, row: Mapping[str, Any], where: str) -> Price:
        """Read a sheet's row: usd_per_mtok {input, output, cached?, reasoning?}, usd_per_unit, usd_per_second, free."""
        shapes.read(_PriceRow, row, where, PriceError)
        return cls.of(row, where)

    @classmethod
    def of(cls, row: Mapping[str, Any], where: str) -> Price:
        """Read a row whose shape is known. Raises PriceError for what cannot be billed exactly."""
        tokens = None
        if (mtok := row.get("usd_per_mtok")) is not None:
            full = {"cached": mtok["input"], "reasoning": mtok["output"], **mtok}
            tokens = tuple(_scaled(full[c], 1_000_000, f"{where}.usd_per_mtok.{c}") for c in CLASSES)
        sold = ((name, row.get(name)) for name in ("usd_per_unit", "usd_per_second"))
        unit, second = (None if usd is None else _scaled(usd, NANO, f"{where}.{name}") for name, usd in sold)
        price = cls(tokens, unit, second, row.get("free", "").strip())  # type: ignore[arg-type]
        costs = any((*(tokens or ()), unit, second))
        if not price.free and not costs:
            raise PriceError(f'{where} costs nothing; if that is meant, say why: {{"free": "runs on our own machine"}}')
        if price.free and costs:
            raise PriceError(f"{where} is free ({price.free}) and has a price; take one of them out")
        return price

    def nano_usd(self, usage: Usage) -> int:
        """The bill for one usage, rounded once, half up."""
        used, units, seconds = usage[2:5]
        if (used is not NO_TOKENS and min(used) < 0) or units < 0 or not 0 <= seconds < math.inf:
            raise PriceError(f"{usage.item!r}: a usage counts from 0 up, got {usage}")
        if self.free:
            return 0
        pico = 0
        if used != NO_TOKENS:
            rate = self.pico_usd_per_token or self._rate(None, usage, "token")
            pico = used[0] * rate[0] + used[1] * rate[1] + used[2] * rate[2] + used[3] * rate[3]
        if units:
            pico += 1000 * units * self._rate(self.nano_usd_per_unit, usage, "unit")
        if self.nano_usd_per_second is None:
            return (pico + 500) // 1000
        atto = pico * 1_000_000 + round(seconds * NANO) * self.nano_usd_per_second
        return (atto + NANO // 2) // NANO

    @staticmethod
    def _rate(rate: Any, usage: Usage, kind: str) -> Any:
        if rate is None:
            raise PriceError(f"{usage.item!r} was used by the {kind}, but the sheet has no price per {kind} for it")
        return rate

    def times(self, factor: Decimal) -> Price:
        """The price scaled, on the grid of the ledger."""

        def scale(value: int | None) -> int | None:
            # Not down to 0: what costs something would then be billed as nothing.
            return None if value is None else max(min(value, 1), int((value * factor).to_integral_value()))

        tokens = self.pico_usd_per_token
        scaled = None if tokens is None else tuple(scale(v) or 0 for v in tokens)
        return Price(scaled, scale(self.nano_usd_per_unit), scale(self.nano_usd_per_second), self.free)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PriceSheet:
    """Prices by item, with a name and a date. The one source of every dollar shown and billed."""

    sheet_id: str
    date: str
    source: str
    prices: Mapping[str, Price] = field(repr=False)

    def __post_init__(self) -> None:
        for item, price in self.prices.items():
            if not isinstance(price, Price):
                raise PriceError(f"sheet {self.sheet_id}: {item} needs a Price, got {price!r:.60}; use Price.read")

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str) -> PriceSheet:
        """Read parsed JSON: {"id", "date", "source", "prices": {item: row}}."""
        shapes.read(_SheetFile, data, where, PriceError)
        return cls.of(data, where)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str) -> PriceSheet:
        """Read a file whose shape is known, as that of a packaged one is."""
        rows = {item: Price.of(row, f"{where}: prices.{item}") for item, row in data["prices"].items()}
        return cls(data["id"], data["date"], data["source"], rows)

    @classmethod
    def again(cls, data: Mapping[str, Any]) -> PriceSheet:
        """Read a sheet file's parsed JSON, or from what `dataclasses.asdict` made of a sheet for a spec's JSON."""
        return shapes.read(cls, data, "prices", PriceError) if "sheet_id" in data else cls.read(data, "prices")

    def price(self, item: str) -> Price:
        """The item's price. A missing one is an error, never 0."""
        try:
            return self.prices[item]
        except KeyError:
            raise PriceError(f"price sheet {self.sheet_id}: {no_such('price for', item, self.prices)}") from None

    def require(self, items: Iterable[str], who: str) -> None:
        """Refuse at construction what could not be billed later."""
        if missing := sorted(set(items) - set(self.prices)):
            hint = no_such("price for", missing[0], self.prices)
            raise PriceError(
                f"{who}: price sheet {self.sheet_id} cannot bill {missing}: {hint} Give the sheet a row for it"
            )

    def require_tokens(self, items: Iterable[str], who: str) -> None:
        """Refuse models that are not sold by the token either, as they are used."""
        models = list(items)
        self.require(models, who)
        for item in models:
            price = self.prices[item]
            if not price.free and price.pico_usd_per_token is None:
                sold = "unit" if price.nano_usd_per_unit is not None else "second"
                raise PriceError(
                    f"{who}: price sheet {self.sheet_id} sells {item} by the {sold} alone; give it usd_per_mtok"
                )

    def charge(self, usage: Usage, tool: str = "") -> Charge:
        """The charge for what one call used, by this sheet's prices."""
        price = self.prices.get(usage.item) or self.price(usage.item)
        (into, cached, out, thought), units, seconds = usage[2:5]
        # One look at what is nearly always so: each step pays for it.
        whole = type(into) is type(cached) is type(out) is type(thought) is type(units) is int
        if not (whole and type(seconds) is float):
            usage = _in_plain_numbers(usage)
        by_price, told = price.nano_usd(usage), usage.told_nano_usd
        if told is None or told == by_price:
            return build(Charge, (usage, tool, by_price, self.sheet_id, None))
        if told < 0:
            raise PriceError(f"{usage.item!r}: a told cost counts from 0 up, got {usage}")
        return Charge(usage, tool, told, self.sheet_id, by_price)

    def with_factors(self, factors: Mapping[str, Decimal], sheet_id: str) -> PriceSheet:
        """A sheet where the named items cost factor times as much: the sampled price schedules."""
        for item, factor in factors.items():
            self.price(item)
            if not (factor.is_finite() and factor > 0):
                raise PriceError(
                    f"price sheet {self.sheet_id}: a factor is finite and above 0, got {factor} for {item}"
                )
        rows = {item: p.times(factors[item]) if item in factors else p for item, p in self.prices.items()}
        return PriceSheet(sheet_id, self.date, f"{self.source}; scaled", rows)


def sheet_names() -> list[str]:
    """The sheets that come with the package."""
    folder = resources.files("toolorchestra.envs") / "data" / "prices"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_sheet(name: str | Path | PriceSheet | Mapping[str, Any]) -> PriceSheet:
    """A sheet by its name, by the path of a JSON file, as it is, or from the mapping that JSON made of it."""
    if isinstance(name, PriceSheet):
        return name
    if isinstance(name, Mapping):
        return PriceSheet.again(name)
    if str(name) in _loaded:
        return _loaded[str(name)]
    if str(name).endswith(".json"):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"no file {str(name)!r}; name a price sheet's file, or one of: {', '.join(sheet_names())}"
            )
        return PriceSheet.read(_parsed(path.read_bytes(), str(path)), str(path))
    if str(name) not in sheet_names():
        raise ConfigError(no_such("price sheet", name, sheet_names()))
    text = (resources.files("toolorchestra.envs") / "data" / "prices" / f"{name}.json").read_text(encoding="utf-8")
    return _loaded.setdefault(str(name), PriceSheet.of(_parsed(text, str(name)), str(name)))


_loaded: dict[str, PriceSheet] = {}  # packaged sheets only: a user's file may change between two reads


def _parsed(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as err:
        raise PriceError(f"price sheet {where} is not valid JSON: {err}{_comma(err)}") from None


def _comma(err: Exception) -> str:
    """A hint at the usual fault: a comma behind the last row."""
    before = err.doc[: err.pos].rstrip() if isinstance(err, json.JSONDecodeError) else ""
    return "; a comma too many before it?" if before.endswith(",") else ""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's keys. JSON keeps the last of two alike, and the other price would be gone unseen."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands there twice; take one of them out")
    return made


# -- prices as an agent reads them: what is shown is what is billed ----------------------------------------------------


def in_words(price: Price) -> str:
    """A price: "$1.25 in ($0.125 cached), $10 out per million tokens"."""
    if price.free:
        return f"free ({price.free})"
    parts = []
    if price.pico_usd_per_token is not None:
        into, cached, out, reasoning = (f"${plain(pico, 6)}" for pico in price.pico_usd_per_token)
        into += f" in ({cached} cached)" if cached != into else " in"
        out += f" out ({reasoning} reasoning)" if reasoning != out else " out"
        parts.append(f"{into}, {out} per million tokens")
    if price.nano_usd_per_unit is not None:
        parts.append(f"${plain(price.nano_usd_per_unit, 9)} each")
    if price.nano_usd_per_second is not None:
        parts.append(f"${plain(price.nano_usd_per_second, 9)} per second")
    return ", ".join(parts)


def item_prices(sheet: PriceSheet, items: Sequence[str]) -> str:
    """Several items, each with its name: "retriever: $0.001 each; sandbox: $0.0001 per second"."""
    return "; ".join(f"{item}: {in_words(sheet.price(item))}" for item in items)


def tool_price(sheet: PriceSheet, items: Sequence[str]) -> str:
    """What a tool of a user's own bills: one item goes without its name."""
    shown = in_words(sheet.price(items[0])) if len(items) == 1 else item_prices(sheet, items)
    return f"Price: {shown}."


def offer_line(sheet: PriceSheet, alias: str, item: str, note: str, time: str = "") -> str:
    """A model on offer: "- search-1: strong; $1.25 in, $10 out per million tokens; about 8 s a call"."""
    return f"- {alias}: " + "; ".join(filter(None, (note, in_words(sheet.price(item)), time)))


def brief_offer(sheet: PriceSheet, alias: str, item: str, seconds: float) -> str:
    """A model on offer in three words: alias, dollars per million output tokens (two digits), seconds."""
    price = sheet.price(item)
    rate = price.pico_usd_per_token
    told = f"{float(f'{rate[2] / 1_000_000:.2g}'):g}" if rate else in_words(price)
    return f"{alias} {told} {seconds:g}"
