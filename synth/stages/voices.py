"""Voices: a task's wordings as different people say them, with dates as people say them, and gold as it was.

A spec says each request plainly, in three wordings or so. Once the tasks stand, each gets the voice of one register
(terse, chatty, non-native, angry, elderly, by voice): phrases are put for others that say the same, something is said
before and after, some values are first said wrongly and corrected in the same breath. All words come from voices.yaml
and the spec's `talk`. Values stay opaque while that is done, and a wording that afterwards says another number, date or
time than the spec's is thrown away.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.domains.toolscale import grading
from toolorchestra.envs.domains.toolscale.user import sentences_of
from toolorchestra.envs.tools.tool_config import Half
from toolorchestra.synth.formats.spec import Spec, parsed
from toolorchestra.synth.proof.domain_player import looks_said
from toolorchestra.synth.proof.similarity import JOINTS

DATA = Path(__file__).with_name("voices.yaml")
_FIRST = 0xE000
_VALUE = "[\ue000-\uf8ff]"
_START = r"(?:^|(?<=[.!?:] ))"
_CLAUSE = r"(?:^|(?<=[.!?:;,] )|(?<=\band )|(?<=\bbut )|(?<=\bso ))"
_OPAQUE = re.compile(r"\w*\d(?:[\w.,:/-]*\w)?")
_DATE = re.compile(r"(?<![\w-])(\d{4})-(\d\d)-(\d\d)(?![\d-])")
_MONTH = re.compile(r"(?<![\w-])(\d{4})-(0[1-9]|1[0-2])(?![\w-])")
_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d")
_KEPT = frozenset(("I", "Dr", "OK", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"))
"""Words that begin with a capital wherever they stand."""
TRIES = 4
SHARES = {
    "phrase": 0.75, "order": 0.6, "open": 0.45, "close": 0.35, "talk": 0.3, "corrected": 0.1, "compound": 0.5,
    "more": 0.8,    "reordered": 0.1,
}  # fmt: skip
"""How often each thing is done where it can be."""
Rewrite = tuple[re.Pattern[str], tuple[str, ...]]


@dataclass(frozen=True)
class Register:
    """How one kind of people talks."""

    orders: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    swaps: tuple[Rewrite, ...] = ()
    weight: float = 1.0
    lower: float = 0.0
    """How often sentences begin without a capital."""
    flat: bool = False
    """Whether nothing stands between sentences."""


@dataclass(frozen=True)
class Words:
    """What voices.yaml holds."""

    phrases: tuple[tuple[re.Pattern[str], Mapping[str, tuple[str, ...]]], ...]
    """What finds a phrase, and all that may stand for it, the phrase itself among them."""
    shapes: tuple[Rewrite, ...]
    ends: tuple[Rewrite, ...]
    verbs: re.Pattern[str]
    registers: Mapping[str, Register]
    corrections: tuple[str, ...]
    joins: tuple[str, ...]
    compounds: tuple[str, ...]
    reorders: tuple[str, ...]
    asides: tuple[str, ...]


@lru_cache(maxsize=1)
def words() -> Words:
    """The words of all voices."""
    held = parsed(DATA.read_text(encoding="utf-8"), DATA)
    return Words(
        phrases=(
            _phrases(held["clauses"], _CLAUSE, r"(?! (?:to|you|not|that|still)\b)"),
            _phrases(held["phrases"], r"(?<![\w-])(?<!\byou )"),
        ),
        shapes=_rewrites(held["shapes"]),
        ends=_rewrites(held["ends"], held["verbs"]),
        verbs=re.compile(rf"{_START}(?:please )?(?=(?:{held['verbs']})\b(?! of\b|,))", re.IGNORECASE),
        registers={name: _register(row) for name, row in held["registers"].items()},
        **{key: tuple(held[key]) for key in ("corrections", "joins", "compounds", "reorders", "asides")},
    )


def _phrases(
    groups: Sequence[Sequence[str]], before: str, after: str = ""
) -> tuple[re.Pattern[str], dict[str, tuple[str, ...]]]:
    found = {}
    for group in groups:
        said = tuple(one.removeprefix("=") for one in group)
        found.update({one.lower(): said for one in group if not one.startswith("=")})
    longest = sorted(map(re.escape, found), key=len, reverse=True)
    ends = (rf"{one}(?![\w-])" + ("" if one.endswith("to") else after) for one in longest)
    return re.compile(rf"{before}(?:{'|'.join(ends)})", re.IGNORECASE), found


def _spelt(pattern: str, orders: str) -> str:
    stands = {"VALUE": _VALUE, "CLAUSE": _CLAUSE, "START": _START, "ORDER": rf"(?:\0|(?:{orders})\b)"}
    return re.sub("|".join(stands), lambda found: stands[found[0]], pattern)


def _rewrites(rows: Sequence[Sequence[str]], orders: str = "") -> tuple[Rewrite, ...]:
    return tuple((re.compile(_spelt(row[0], orders), re.IGNORECASE), tuple(row[1:])) for row in rows)


def _register(row: Mapping[str, Any]) -> Register:
    listed = {key: tuple(row[key]) for key in ("orders", "opens", "closes") if key in row}
    return Register(**{**row, **listed, "swaps": _rewrites(row.get("swaps", ()))})


def voiced(spec: Spec, shapes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tasks with each request said in a voice; all else is as it was."""
    forms = _forms(spec.intents)
    talk = tuple(spec.head.get("talk", ()))
    return [_Telling(spec, shape, forms, talk).told() for shape in shapes]


class _Form(NamedTuple):
    """A wording of a spec's, and what finds the values in a text that was made of it."""

    finder: re.Pattern[str]
    template: str
    more: tuple[str, ...]
    """Other wordings of the same request that say the same values."""

    def masked(self, template: str) -> str:
        """A text of this form, or one that says the same, with a mark in each value's place."""
        names = _HOLE.findall(self.template)
        return _HOLE.sub(lambda found: chr(_FIRST + names.index(found[1])), template)


def _forms(intents: Sequence[Mapping[str, Any]]) -> dict[str, list[_Form]]:
    """The forms of each intent."""
    found = {}
    for intent in intents:
        forms: dict[str, _Form] = {}
        for part in (intent, *intent.get("followed_by", ())):
            for text in _texts(part):
                alike = (one for one in part.get("more", ()) if text in part["say"] and same_holes(text, one))
                forms.setdefault(text, _Form(_finder(text), text, tuple(alike)))
        found[intent["intent"]] = list(forms.values())
    return found


def same_holes(one: str, other: str) -> bool:
    """Whether two wordings say the same values, and no other figure or date."""
    bare = (_HOLE.sub("", text) for text in (one, other))
    return set(_HOLE.findall(one)) == set(_HOLE.findall(other)) and same_values(*bare)


def _texts(part: Mapping[str, Any]) -> Iterator[str]:
    first = part.get("first", {})
    yield from (*part.get("say", ()), *first.get("say", ()), *first.get("then", ()))


_LED = re.compile(r"((?:^|[.!?] )(?:\w+ ){0,2}\w+, )(\w+)")
"""A word or three that lead to a sentence, and its first word."""
_HOLE = re.compile(r"\{(\w+)\}")
_ORDER = re.compile(r"\0(\w?)([^.!?\0]*)(\.?)")
"""A mark in an order's place, what is ordered, and the end of its sentence."""
_ASKS = re.compile(
    r"(?:(?!I |you|perhaps|maybe)\w+,? )?(?:could|can|would|might|how about|do you think)\b", re.IGNORECASE
)
_TWICE = re.compile(r"(\b(?:please|pls|plz|kindly)\b[^.!?]*?),? (?:please|pls|plz|kindly)\b", re.IGNORECASE)


def _finder(template: str) -> re.Pattern[str]:
    pieces = _HOLE.split(template)
    return re.compile("".join("(.+?)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces)), re.DOTALL)


class _Telling:
    """One task, as somebody tells it."""

    def __init__(self, spec: Spec, shape: Mapping[str, Any], forms: Mapping[str, Any], talk: tuple[str, ...]) -> None:
        self.shape, self.forms, self.words = shape, forms, words()
        self.rng = random.Random(f"{spec.name}/{shape['id']}/voice")
        names = list(self.words.registers)
        weights = [one.weight for one in self.words.registers.values()]
        self.register = self.words.registers[self.rng.choices(names, weights)[0]]
        self.half: Half = "heldout" if shape["toolscale"]["split"] in ("test", "heldout") else "train"
        self.year = int(spec.head["clock"][:4])
        self.talk = talk
        self.bare = set[str]()
        """Wordings with nothing said before the request."""
        self.open = set[str]()
        """Wordings with nothing said after the request."""
        actions = shape["evaluation_criteria"]["actions"]
        self.inform = shape["evaluation_criteria"]["communicate_info"]
        self.used = {str(value) for row in actions for value in row["arguments"].values()} | set(self.inform)

    def told(self) -> dict[str, Any]:
        """The task in this voice."""
        requests = self.shape["toolscale"]["requests"]
        made, exchanged = [], dict[str, str]()
        for number, request in enumerate(requests):
            intent = request["intent"].partition(".")[0]
            new, first = dict(request), request.get("first")
            holders = [("say", request, new)]
            if first:
                new["first"] = dict(first)
                holders += [("say", first, new["first"]), ("then", first, new["first"])]
            serious = request["ending"] == "transfer"  # who hands over an emergency makes no small talk
            for key, old, into in holders:
                around = key == "say" and not serious
                said = [self._said(intent, one, number, corrects=not first, around=around) for one in old[key]]
                into[key] = list(dict.fromkeys(said))
                exchanged.update(zip(old[key], said, strict=True))
            made.append(new)
        told = self.shape["user_scenario"]["instructions"]
        instructions = told["task_instructions"]
        for request in requests:
            for then in request.get("first", {}).get("then", ()):
                instructions = instructions.replace(repr(then), repr(exchanged[then]))
        told = {**told, "reason_for_call": self._reason(requests, exchanged), "task_instructions": instructions}
        scenario = {**self.shape["user_scenario"], "instructions": told}
        return {**self.shape, "user_scenario": scenario, "toolscale": {**self.shape["toolscale"], "requests": made}}

    def _reason(self, requests: Sequence[Mapping[str, Any]], exchanged: Mapping[str, str]) -> str:
        """The scenario's reason: the wordings as before, in this voice. Some stand in one sentence, some begin with
        the second of two requests, which is then taken back."""
        rest, said = self.shape["user_scenario"]["instructions"]["reason_for_call"], list[str]()
        for request in requests:
            wordings = sorted(request.get("first", request)["say"], key=len, reverse=True)
            joints = JOINTS if said else ("",)  # a wording may itself begin as a joint does
            joint, plain = next((j, one) for j in joints for one in wordings if rest.startswith(j + one))
            rest = rest[len(joint + plain) :].removeprefix(" ")
            said.append(exchanged[plain])
        if self._may_reorder(requests) and self._often("reordered"):
            form = self._flat(self._one(self.words.reorders))
            said[:2] = [form.format(later=said[1], first=said[0] if self.register.flat else _small(said[0]))]
        reason = said[0]
        for number, (before, one) in enumerate(pairwise(said)):
            joins = before in self.open and one in self.bare and before.endswith(".")
            if joins and self._often("compound"):
                reason = f"{reason[:-1]}{self._one(self.words.compounds)}{_small(one)}"
            else:
                reason = f"{reason} {self._flat(self._one(self.words.joins, number)).lstrip()}{one}"
        return reason

    def _may_reorder(self, requests: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the second request may be said first: it stands alone, and both are to be served."""
        alone = all(
            "." not in one["intent"] and "first" not in one and one["ending"] == "serve" for one in requests[:2]
        )
        return len(requests) > 1 and alone

    def _flat(self, text: str) -> str:
        """A text as this register writes it, for what is said between requests."""
        return re.sub("[.,:]", "", text.lower()) if self.register.flat else text

    def _one(self, options: tuple[str, ...], number: int | None = None) -> str:
        """One of the options that this split may say; with a request's number, one that no other request of it gets."""
        said = sentences_of(options, self.half)
        if number is not None:
            shuffled = random.Random(f"{self.shape['id']}{options[0]}").sample(said, len(said))
            said = tuple(shuffled[number :: len(self.shape["toolscale"]["requests"])]) or said
        return self.rng.choice(said)

    def _often(self, what: str) -> bool:
        return self.rng.random() < SHARES[what]

    # -- one wording ---------------------------------------------------------------------------------------------------

    def _said(self, intent: str, plain: str, number: int, *, corrects: bool, around: bool) -> str:
        """A wording in this voice that says the same values, or only with dates as people say them."""
        masked, values, more = self._masked(intent, plain)
        more = more if around and more and self._often("more") else ()
        for attempt in range(TRIES):
            written = more and not attempt  # in somebody's voice as it is
            text = begins = self._one(more) if written else self._reworded(masked)
            text = text if written or not around else self._surrounded(text, number)
            shown = [self._shown(value) for value in values]
            wrong = self._corrected(values, shown) if corrects and around and self._often("corrected") else None
            made = _filled(text, shown)
            if same_values(plain, made, wrong) and not self._tells(made, plain):
                self.bare.update([made] if text.startswith(begins) else [])
                self.open.update([made] if text.endswith(begins) and "That would" not in begins else [])
                return made
        made = _filled(masked, [self._shown(value) for value in values])
        return plain if self._tells(made, plain) else made

    def _tells(self, made: str, plain: str) -> bool:
        """Whether a wording tells what the agent must tell, which the plain one does not."""
        says = (grading.mentions, looks_said)
        return any(say(made, info) and not say(plain, info) for info in self.inform for say in says)

    def _masked(self, intent: str, plain: str) -> tuple[str, list[str], tuple[str, ...]]:
        """The wording with a mark in each value's place, the values, and others that say the same."""
        found = ((form.finder.fullmatch(plain), form) for form in self.forms.get(intent, ()))
        match, form = next(((match, form) for match, form in found if match), (None, None))
        values: list[str] = list(match.groups()) if match else []
        masked = form.masked(form.template) if form else plain
        more = tuple(map(form.masked, form.more)) if form else ()

        def opaque(found: re.Match[str]) -> str:
            values.append(found[0])
            return chr(_FIRST + len(values) - 1)

        return _OPAQUE.sub(opaque, masked), values, more

    def _reworded(self, text: str) -> str:
        orders = list[str]()
        text = self._marked(text, orders)
        for finder, said in self.words.phrases:
            text = finder.sub(partial(self._other, said), text)
        lowered = self.rng.random() < self.register.lower
        if lowered:
            text = re.sub(rf"{_START}\w+", lambda found: _small(found[0]), text)
        for finder, options in (*self.words.shapes, *self.register.swaps):
            text = finder.sub(partial(self._swapped, options), text)
        for finder, options in self.words.ends:
            if finder.search(text):
                text = finder.sub(partial(self._swapped, options), text)
                break
        text = _ORDER.sub(partial(self._ordered, orders, lowered), text)
        for _ in range(2):
            text = _TWICE.sub(r"\1", text)
        text = re.sub(r",* +(?=[.,!?;:])|,(?=[.!?;:])", "", " ".join(text.split()))
        return _LED.sub(lambda found: found[1] + _small(found[2]), text)

    def _marked(self, text: str, orders: list[str]) -> str:
        """The text with a mark where an order to do something begins in another way, and those ways."""

        def begun(found: re.Match[str]) -> str:
            if not self.register.orders or not self._often("order"):
                return found[0]
            orders.append(self._one(self.register.orders))
            return "\0"

        return re.sub(r"\0(\w)", lambda found: f"\0{found[1].lower()}", self.words.verbs.sub(begun, text))

    def _ordered(self, orders: list[str], lowered: bool, found: re.Match[str]) -> str:
        """An order in its mark's place; one that is a question ends as such."""
        order = orders.pop(0)
        begun = f"{order} {found[1]}".strip() if order else found[1]
        if found[3] and _ASKS.match(order):
            found_rest, end = re.sub(r", thanks$", "", found[2]), "?"
        else:
            found_rest, end = found[2], found[3]
        return f"{begun if lowered else _capital(begun)}{found_rest}{end}"

    def _other(self, said: Mapping[str, tuple[str, ...]], found: re.Match[str]) -> str:
        if not self._often("phrase"):
            return found[0]
        return _like(found, self.rng.choice([one for one in said[found[0].lower()] if one.lower() != found[0].lower()]))

    def _swapped(self, options: tuple[str, ...], found: re.Match[str]) -> str:
        return _like(found, found.expand(self.rng.choice(options)))

    def _surrounded(self, text: str, number: int) -> str:
        """Something before and after it. Who has come to the next request opens less."""
        if self._often("talk"):
            aside = self._one(self.talk if self.talk and self.rng.random() < 0.6 else self.words.asides, number)
            aside = aside.lower().rstrip(".") if self.register.flat else aside
            text = f"{aside} {text}" if self.rng.random() < 0.6 else f"{text} {aside}"
        if self.register.opens and self._often("open") and (not number or self.rng.random() < 0.5):
            lead = self._one(self.register.opens, number)
            text = f"{lead} {text if lead[-1] in '.!?:' else _small(text)}"
        if self.register.closes and self._often("close"):
            text = f"{text} {self._one(self.register.closes, number)}"
        return text

    # -- values --------------------------------------------------------------------------------------------------------

    def _shown(self, value: str) -> str:
        """A value as people say it: dates without a year that goes without saying, times of day."""
        value = _DATE.sub(self._dated, value)
        value = _MONTH.sub(lambda found: f"{date(2000, int(found[2]), 1):%B} {found[1]}", value)
        if _CLOCK.fullmatch(value) and self.rng.random() < 0.4:
            hour, minute = map(int, value.split(":"))
            return f"{(hour - 1) % 12 + 1}{f':{minute:02d}' if minute else ''} {'pm' if hour > 11 else 'am'}"
        return value

    def _dated(self, found: re.Match[str]) -> str:
        try:
            return self._day(date(*map(int, found.groups())))
        except ValueError:  # it only looks like a date
            return found[0]

    def _day(self, day: date) -> str:
        n = day.day
        nth = f"{n}{'th' if n in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
        told = {info[4:10] for info in self.inform}  # the same day of another year must not be said
        year = "" if day.year == self.year and str(day)[4:] not in told else f" {day.year}"
        forms = ("{n} {m}{y}", "the {nth} of {m}{y}", "{nth} {m}{y}", "{m} {nth}{cy}", "{m} {n}{cy}", "{w}, {n} {m}{y}")
        form = self.rng.choice((*forms, "{w} the {nth} of {m}{y}"))
        comma = year.replace(" ", ", ")
        return form.format(n=n, nth=nth, m=f"{day:%B}", y=year, cy=comma, w=f"{day:%A}")

    def _corrected(self, values: Sequence[str], shown: list[str]) -> str | None:
        """Say a date wrongly first; returns the wrong one. None where there is no date that nothing else is."""
        dates = [at for at, value in enumerate(values) if _DATE.fullmatch(value)]
        if len(dates) != 1:
            return None
        try:
            day = date.fromisoformat(values[dates[0]]) + timedelta(days=self.rng.choice((-2, -1, 1, 2, 7)))
        except (ValueError, OverflowError):  # there is no such day, or none next to it
            return None
        if str(day) in self.used or day.year != self.year:
            return None
        form = self._one(self.words.corrections)
        shown[dates[0]] = form.format(wrong=self._day(day), right=shown[dates[0]])
        return str(day)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _small(text: str) -> str:
    """A text whose first word has no capital, unless it always has one."""
    word = re.match(r"[A-Za-z]*", text)
    return text if word is None or word[0] in _KEPT else text[:1].lower() + text[1:]


def _like(found: re.Match[str], other: str) -> str:
    """Another text in a match's place, with a capital where a sentence begins."""
    begins = not found.start() or found.string[: found.start()].rstrip(" ")[-1:] in (".", "!", "?", ":")
    return _capital(other) if begins and found[0][:1].isupper() else other


def _filled(text: str, values: Sequence[str]) -> str:
    return re.sub(_VALUE, lambda found: values[ord(found[0]) - _FIRST], text)


def same_values(plain: str, made: str, wrong: str | None = None) -> bool:
    """Whether two texts say the same numbers, dates and times; the second also a date that it takes back."""
    if grading.figures(plain) != grading.figures(made) or grading.counts(plain) != grading.counts(made):
        return False
    if {one.value for one in grading.clocks(plain)} != {one.value for one in grading.clocks(made)}:
        return False
    days = {one.value[1:] for one in grading.days(plain)}
    taken_back = {tuple(int(part) for part in wrong.split("-")[1:])} if wrong else set()
    return {one.value[1:] for one in grading.days(made)} == days | taken_back
