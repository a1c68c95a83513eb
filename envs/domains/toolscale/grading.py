"""The parts of the outcome: right end state, needed information told, entities of the gold path touched, and the rules
of process kept where the domain's verdict has some: identify first, confirm before a change, and leave the data of
others alone.

A domain has rules of process where its manifest says so (`process`). They are judged by what was done: a call that was
refused showed and changed nothing, so it breaks no rule.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, ToolError, no_such
from toolorchestra.envs.domains.toolscale.database import DatabaseSession, SqlDatabase
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called, Runner

_CURRENCY = r"(?:AUD|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|NOK|NZD|PLN|SEK|USD)"
_SIGNS = r"[$€£¥]"
_MONEY_WORDS = r"(?:euros?|cents?|pounds?|francs?|dollars?|crowns?|kroner|kronor|zloty)"
_UNITS = (
    rf"(?:{_CURRENCY}|{_SIGNS}|%|‰|°\s?[CF]?|k?m/h|m/s|km/?h|mph|hPa|mbar|kWh?|MWh?|[cmk]?m|m[gl]|k?g|l|C|F"
    r"|h|hrs?|mins?|s|secs?|pts?|points?|credits?|days?|weeks?|months?|years?|nights?|people|persons?)"
)
_PLAIN = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NUMBER = re.compile(
    # No part of a word, a range, a version, a time or a date; a currency may touch it, and a unit may follow at once.
    rf"(?:(?<=\b{_CURRENCY})|(?<![\w.-])(?<!\d[:/]))(-?)({_PLAIN})(?={_UNITS}(?![^\W_])|(?!\w|\.\d|:\d|-\d|/\d+/|,\d\d\s?(?:€|EUR\b)))"
)
_DECIMAL_COMMA = re.compile(
    rf"(?<![\w.,:-])(?P<before>(?:{_CURRENCY}|{_SIGNS})\s?)?(?P<sign>-?)(?P<whole>\d{{1,3}}(?:\.\d{{3}})+|\d+),(?P<part>\d\d)"
    rf"(?![\w,.:]*\d)(?P<after>\s?(?:{_CURRENCY}\b|{_SIGNS}|{_MONEY_WORDS}\b))?"
)
_MINUS = re.compile(r"\b(?:minus|negative)\s+(?=[$€£¥]?\d)", re.IGNORECASE)
_COUNTS = {
    word: number
    for number, word in enumerate(
        """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen twenty""".split(),
        start=1,
    )
}
_IN_WORDS = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(_COUNTS, key=len, reverse=True))})(?![\w-])(?! (?:hundred|thousand|million|point))"
)
_NO_COUNT = re.compile(
    r"\b(?:no|any|every|some|each|this|that|which|the|another|last) one\b"
    r"|\bone (?:moment|second|sec|minute|of|more|another|by one)\b|\bat one\b"
)
_ZERO = re.compile(
    r"(?<!below )(?<!above )(?<!sub-)\bzero\b"
    r"|(?<!feel )(?<!-)\bfree\b(?! (?:to|up|text|slots?|seats?|tables?|places?|rooms?|time)\b)(?!-)"
    r"|\bnothing\b(?! (?:else|more|further|i|we|you|can|to do|wrong|new|about)\b)"
    r"|\b(?:no|without|without any) (?:extra |further |additional )?(?:charges?|fees?|costs?)\b"
)
_MAY_COUNT = re.compile(rf"{'|'.join(_COUNTS)}|zero|free|nothing|charge|fee|cost")
"""What no text that says a number in words does without."""
_FIGURE = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")

_MONTHS = {
    name[:3]: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), start=1
    )
}
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may(?! (?:i|we)\b)|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?<![\w.:,-])(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,? (?P<year>\d{4})(?![\w:]))?"
_DATES = (
    re.compile(r"(?<![\w-])(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d|-\d)"),
    re.compile(rf"{_DAY}\.? (?:of )?{_MONTH}{_YEAR}", re.IGNORECASE),
    re.compile(rf"\b{_MONTH} (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?![\w:])(?!\.\d){_YEAR}", re.IGNORECASE),
    re.compile(r"(?<![\w.-])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})(?!\w|\.\d)"),
)
_SLASHED = re.compile(r"(?<![\w/])(\d{1,2})/(\d{1,2})/(\d{4})(?![\w/])")
_TIME = re.compile(
    r"(?<![\d:.,-])(?P<hour>\d{1,2})(?:(?P<mark>[:.])(?P<minute>\d\d))?(?::(?P<second>\d\d))?"
    r"(?:\s?(?P<half>[ap])\.?m\b\.?)?(?![\d:])",
    re.IGNORECASE,
)
_NAMED_TIMES = re.compile(r"\b(?:noon|midday|midnight)\b", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,;(]*(?:t|at|on|from|on the|the|,)?[\s,]*", re.IGNORECASE)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DIGITS = re.compile(r"\d+")
_CLOCK = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d")


class SaidMoment(NamedTuple):
    """A date or a time of day as a text says it, and where."""

    value: tuple[int | None, ...]
    """Year (None where it is left out), month and day; or hour and minute."""
    start: int
    end: int

    def is_(self, value: tuple[int, ...]) -> bool:
        """Whether it is this date or time."""
        return self.value in (value, (None, *value[1:]))


def says(text: str, value: str, *, in_words: bool = True) -> bool | None:
    """Whether a text says a value; None for a value that is no number, date or time. `in_words=False` hears numbers in
    figures alone."""
    read = _read(value)
    if read is None:
        return None
    number, date, time = read
    if number is not None:
        return number in figures(text) or (in_words and number in counts(text))
    if not (date and time):
        return any(said.is_(date or time) for said in (days if date else clocks)(text))
    whole = plain(text)
    times = sorted((clock.start, clock.end) for clock in clocks(text) if clock.is_(time))
    for day in ((day.start, day.end) for day in days(text) if day.is_(date)):
        at = bisect(times, day)
        for clock in times[max(0, at - 1) : at + 1]:  # the date and the time must stand side by side
            (_, start), (end, _) = sorted((day, clock))
            if start >= end or _BETWEEN.fullmatch(whole, start, end):
                return True
    return False


@lru_cache(maxsize=4096)
def _read(value: str) -> tuple[float | None, tuple[int, ...], tuple[int, ...]] | None:
    """A value as a number, or as a date, a time or both; None where it is none of them."""
    value = plain(value)
    if _FIGURE.fullmatch(value):
        return float(value.replace(",", "")), (), ()
    if _ISO_DATE.fullmatch(value):
        date, time = value, ""
    elif _CLOCK.fullmatch(value):
        date, time = "", value
    else:
        date, _, time = value.partition(" ")
        if not (_ISO_DATE.fullmatch(date) and _CLOCK.fullmatch(time)):
            return None
    return None, tuple(map(int, _DIGITS.findall(date))), tuple(map(int, _DIGITS.findall(time)))


_TYPED = str.maketrans("\u2212\u2011\u2010\u2019\u2018", "---''")


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """A text with plain minus signs, hyphens and apostrophes, and without Markdown's emphasis around its words."""
    text = text.translate(_TYPED)
    text = re.sub(r"(?<=\d)[\u00a0\u202f](?=\d{3}(?!\d))", ",", text)
    return re.sub(r"(?<!\w)_+(?=[\w$€£¥-])|(?<=[^\W_])_+(?!\w)|\*\*|`", "", text)


@lru_cache(maxsize=1024)
def figures(text: str) -> frozenset[float]:
    """The numbers that a text says in figures."""
    return frozenset(_figures(_MINUS.sub("-", plain(text))))


@lru_cache(maxsize=1024)
def counts(text: str) -> frozenset[float]:
    """The numbers that a text says in words: up to twenty, and nothing."""
    lowered = text.lower()
    if not _MAY_COUNT.search(lowered):
        return frozenset()
    said = [float(_COUNTS[found[0]]) for found in _IN_WORDS.finditer(_NO_COUNT.sub(" ", lowered))]
    return frozenset([*said, 0.0] if _ZERO.search(lowered) else said)


def _figures(text: str) -> Iterator[float]:
    spent = []
    for found in _DECIMAL_COMMA.finditer(text):
        if found["before"] or found["after"] or "." in found["whole"]:
            spent.append(found.span())
            yield float(f"{found['sign']}{found['whole'].replace('.', '')}.{found['part']}")
    spent += [(one.start, one.end) for one in (*days(text), *clocks(text))]
    spent.sort(reverse=True)
    reached = 0
    for found in _NUMBER.finditer(text):
        while spent and spent[-1][0] <= found.start():
            reached = max(reached, spent.pop()[1])
        if found.start() >= reached:
            yield float(found[1] + found[2].replace(",", ""))


@lru_cache(maxsize=1024)
def days(text: str) -> tuple[SaidMoment, ...]:
    """The dates that a text says."""
    text = plain(text)
    found: list[SaidMoment] = []

    def note(year: int | None, month: int, day: int, where: re.Match[str]) -> None:
        if 1 <= month <= 12 and 1 <= day <= 31:
            found.append(SaidMoment((year, month, day), *where.span()))

    for shape in _DATES:
        for match in shape.finditer(text):
            month = match["month"]
            if month in ("may", "march", "mar"):
                continue  # "you may 3 times"
            number = int(month) if month.isdigit() else _MONTHS[month[:3].lower()]
            note(int(match["year"]) if match["year"] else None, number, int(match["day"]), match)
    for match in _SLASHED.finditer(text):
        first, second, year = (int(part) for part in match.groups())
        if first == second or max(first, second) > 12:
            note(year, min(first, second), max(first, second), match)
    return tuple(found)


@lru_cache(maxsize=1024)
def clocks(text: str) -> tuple[SaidMoment, ...]:
    """The times of day that a text says; 7.30 is a time only with am or pm."""
    text = plain(text)
    found = []
    for match in _TIME.finditer(text):
        hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()
        if not half and match["mark"] != ":":
            continue
        if half and 1 <= hour <= 12:
            hour = hour % 12 + 12 * (half == "p")
        elif half == "a" and hour != 0:
            continue
        if hour < 24 and minute < 60 and not int(match["second"] or 0):
            found.append(SaidMoment((hour, minute), *match.span()))
    for match in _NAMED_TIMES.finditer(text):
        found.append(SaidMoment((0 if match[0].lower() == "midnight" else 12, 0), *match.span()))
    return tuple(found)


_ID = "_id"


def entities(path: Iterable[GoldCall]) -> set[str]:
    """The ids among a path's arguments, those of rows that the path itself made included."""
    return {
        value
        for action in path
        for name, value in action.arguments.items()
        if name.endswith(_ID) and isinstance(value, str)
    }


def touched(calls: Iterable[Called]) -> set[str]:
    """Every id in the arguments and results of calls."""
    seen: set[str] = set()
    for called in calls:
        _collect(called.arguments, seen)
        _collect(called.value, seen)
    return seen


def _collect(value: Any, seen: set[str]) -> None:
    if type(value) is dict or isinstance(value, Mapping):  # the first is told much sooner, and nearly always so
        for name, part in value.items():
            if isinstance(part, str):
                if name.endswith(_ID):
                    seen.add(part)
            elif part is not None and not isinstance(part, int | float):
                _collect(part, seen)
    elif isinstance(value, list):
        for part in value:
            _collect(part, seen)


@dataclass(frozen=True)
class ProcessRules:
    """What a domain's policy asks of the order of things."""

    ways: tuple[frozenset[str], ...]
    """Sets of tools; somebody is identified once all tools of one of them have found the caller."""
    confirm: bool
    owners: Mapping[str, str]
    """Id of a seed row -> whose it is."""


@lru_cache(maxsize=64)
def rules(domain: SqlDomain) -> ProcessRules | None:
    """A domain's rules; None where its verdict has none."""
    stated = domain.manifest.get("process")
    if stated is None:
        return None
    owners: dict[str, str] = {}
    # Tables are listed in an order in which each leads to one before it, or to the caller's own column.
    for name, column in stated["own"].items():
        if name not in domain.tables:
            raise ConfigError(f"{domain.folder}: process.own: {no_such('table', name, domain.tables)}")
        table = domain.tables[name]
        if column not in table.columns:
            raise ConfigError(f"{domain.folder}: process.own.{name}: {no_such('column', str(column), table.columns)}")
        key, leads = table.columns.index(table.key), table.columns.index(column)
        for row in table.rows:
            owner = row[leads] if column == stated["caller"] else owners.get(str(row[leads]))
            if owner is not None:
                owners[str(row[key])] = str(owner)
    return ProcessRules(tuple(map(frozenset, stated["ways"])), stated["confirm"], owners)


def broken(
    domain: SqlDomain, task: SqlTask, calls: Iterable[tuple[Called, set[str]]], unasked: Sequence[str]
) -> Iterator[str]:
    """The rules that an episode broke, in words. Each call stands beside the ids in its arguments and its result;
    `unasked` names the writes that the user had not agreed to."""
    stated = rules(domain)
    if stated is None:
        return
    found: set[str] = set()
    identified = False
    for called, ids in calls:
        owned = {value: stated.owners[value] for value in ids if value in stated.owners}
        if strangers := sorted(value for value, owner in owned.items() if owner != task.caller):
            yield f"{called.name} touched {strangers[0]}, which is another person's"
        if any(called.name in way for way in stated.ways):
            if task.caller and (task.caller in ids or task.caller in owned.values()):
                found.add(called.name)
                identified = identified or any(way <= found for way in stated.ways)
        elif (owned or domain.tools[called.name].kind == "write") and not identified:
            yield f"{called.name} came before the user was identified"
    if stated.confirm:
        yield from (f"{name} came without the user's yes" for name in unasked)


class SqlVerdict(NamedTuple):
    """What holds of an episode's end."""

    execution: bool
    """The database ended as after a gold path."""
    fidelity: bool
    """The user was told all that had to be told, in messages of the agent's."""
    completeness: bool
    """Every entity that the gold path works on stands in the arguments or results of successful calls."""
    missing: tuple[str, ...]
    """What was not told, then what was not touched."""
    broken: tuple[str, ...] = ()
    """The rules of process that were broken, in words."""

    @property
    def process(self) -> bool:
        """The rules of process were kept."""
        return not self.broken

    @property
    def value(self) -> float:
        return float(self.execution and self.fidelity and self.completeness and self.process)


def judge(
    task: SqlTask, session: DatabaseSession, calls: Sequence[Called], told: Sequence[str], unasked: Sequence[str] = ()
) -> SqlVerdict:
    """Judge an episode by its end state, its successful calls, the agent's messages to the user, and the writes that
    the user had not agreed to."""
    state = digest(session)
    untold = [info for info in task.communicate if not _is_told(task, info, told)]
    if untold and state in task.end_states:
        places = task.once(_places, session.database)
        untold = [i for i in untold if not any(_is_told(task, v, told) for v in _as_it_came(places.get(i, ()), calls))]
    ids = [touched([called]) for called in calls]
    seen = set().union(*ids)
    keys = session.database.keys
    gaps = [sorted((needed - seen) & keys) for needed in task.once(_needed)]
    fewest = min(gaps, key=len)
    rules = dict.fromkeys(broken(session.database.domain, task, zip(calls, ids, strict=True), unasked))
    return SqlVerdict(state in task.end_states, not untold, not fewest, (*untold, *fewest), tuple(rules))


def _needed(task: SqlTask) -> tuple[set[str], ...]:
    """The ids that each path works on."""
    return tuple(entities(path) for path in (task.actions, *task.alternatives))


def _is_told(task: SqlTask, info: str, told: Sequence[str]) -> bool:
    """Whether a message says it. Where the user's own request holds the number in words ("every five weeks"), only
    figures count: an agent that repeats the request tells nothing."""
    asked = task.shape["user_scenario"]["instructions"]["reason_for_call"]
    in_words = not mentions(asked, info)
    return any(mentions(text, info, in_words=in_words) for text in told)


class _ShownField(NamedTuple):
    """A field of the gold path's results that shows what must be told."""

    call: GoldCall
    path: tuple[str, ...]
    before: tuple[GoldCall, ...]
    """What the same request changes before this call."""
    after: tuple[GoldCall, ...]


def _places(task: SqlTask, database: SqlDatabase) -> dict[str, list[_ShownField]]:
    """Where, for each value that must be told, the gold path's results show it. A running figure, such as a balance, is
    another one there for an agent that takes the requests in another order."""
    domain, found = database.domain, dict[str, list[_ShownField]]()
    session = DatabaseSession(database)
    try:
        for number, call in enumerate(task.actions):
            fields = [*_fields(Runner(domain.tools[call.name], domain.clock).call(session, call.arguments).value)]
            for request in task.requests if fields else ():
                if number in request.actions:
                    writes = [n for n in request.actions if n != number and task.actions[n].name in domain.writes]
                    before = tuple(task.actions[n] for n in writes if n < number)
                    after = tuple(task.actions[n] for n in writes if n > number)
                    for info in request.inform:
                        shown = (path for path, value in fields if mentions(value, info))
                        found.setdefault(info, []).extend(_ShownField(call, path, before, after) for path in shown)
    except ToolError:
        return {}  # a task that nobody has proven
    finally:
        session.close()
    return found


def _fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The fields of a result that is an object, and their values as text; a list's places change with the order."""
    for name, part in value.items() if isinstance(value, Mapping) else ():
        if isinstance(part, Mapping):
            yield from _fields(part, (*path, name))
        elif isinstance(part, str | int | float):
            yield (*path, name), str(part)


def _as_it_came(places: Iterable[_ShownField], calls: Sequence[Called]) -> Iterator[str]:
    """The values that an agent's own results show in the same fields."""
    made = [called.action for called in calls]
    for place in places:
        for number, call in enumerate(made):
            in_turn = all(one in made[:number] for one in place.before)
            if call == place.call and in_turn and not any(one in made[:number] for one in place.after):
                yield from (value for path, value in _fields(calls[number].value) if path == place.path)


def mentions(text: str, info: str, *, in_words: bool = True) -> bool:
    """Whether a text says it: numbers, dates and times by value (12.5 in "$12.50"), anything else in
    whole words, in any case. `in_words=False` hears numbers in figures alone."""
    said = says(text, info, in_words=in_words)
    return _stands_in(_spaced(info), _spaced(text)) if said is None else said


@lru_cache(maxsize=1024)
def _spaced(text: str) -> str:
    return " ".join(plain(text).lower().split())


def _stands_in(info: str, text: str) -> bool:
    """Whether it stands in the text and is no part of a longer word ("fish" in "shellfish") or number ("Hill Street 9"
    in 91)."""
    if not info:
        return True
    at = text.find(info)
    while at >= 0:
        end = at + len(info)
        if not _goes_on(info[0], text[at - 1 : at]) and not _goes_on(info[-1], text[end : end + 1]):
            return True
        at = text.find(info, at + 1)
    return False


def _goes_on(edge: str, beside: str) -> bool:
    """Whether a character makes the word or number longer whose edge is beside it."""
    if edge.isdecimal():
        return beside.isdecimal()
    return edge.isalpha() and beside.isalnum() and not beside.isdecimal()
