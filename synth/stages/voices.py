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
from pathlib import Path
from typing import Any

import yaml

from toolorchestra.envs.domains.toolscale import grading
from toolorchestra.envs.domains.toolscale.user import sentences_of
from toolorchestra.envs.tools.tool_config import Half
from toolorchestra.synth.formats.spec import Spec
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
SHARES = {"phrase": 0.75, "order": 0.6, "open": 0.45, "close": 0.35, "talk": 0.3, "corrected": 0.1}
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
    asides: tuple[str, ...]


@lru_cache(maxsize=1)
def words() -> Words:
    """The words of all voices."""
    held = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return Words(
        phrases=(
            _phrases(held["clauses"], _CLAUSE, r"(?! (?:to|you|not|that)\b)"),
            _phrases(held["phrases"], r"(?<![\w-])"),
        ),
        shapes=_rewrites(held["shapes"]),
        ends=_rewrites(held["ends"]),
        verbs=re.compile(rf"{_START}(?:please )?(?=(?:{held['verbs']})\b(?! of\b))", re.IGNORECASE),
        registers={name: _register(row) for name, row in held["registers"].items()},
        corrections=tuple(held["corrections"]),
        joins=tuple(held["joins"]),
        asides=tuple(held["asides"]),
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


def _rewrites(rows: Sequence[Sequence[str]]) -> tuple[Rewrite, ...]:
    return tuple(
        (re.compile(row[0].replace("VALUE", _VALUE).replace("CLAUSE", _CLAUSE), re.IGNORECASE), tuple(row[1:]))
        for row in rows
    )


def _register(row: Mapping[str, Any]) -> Register:
    listed = {key: tuple(row[key]) for key in ("orders", "opens", "closes") if key in row}
    return Register(**{**row, **listed, "swaps": _rewrites(row.get("swaps", ()))})


def voiced(spec: Spec, shapes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tasks with each request said in a voice; all else is as it was."""
    forms = _forms(spec.intents)
    talk = tuple(spec.head.get("talk", ()))
    return [_Telling(spec, shape, forms, talk).told() for shape in shapes]


def _forms(intents: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[re.Pattern[str], str]]]:
    """What finds the values in an intent's texts, and the text with a mark for each."""
    found = {}
    for intent in intents:
        parts = [*(intent, *intent.get("followed_by", ()))]
        texts = [text for part in parts for text in _texts(part)]
        found[intent["intent"]] = [(_finder(text), text) for text in dict.fromkeys(texts)]
    return found


def _texts(part: Mapping[str, Any]) -> Iterator[str]:
    first = part.get("first", {})
    yield from (*part.get("say", ()), *first.get("say", ()), *first.get("then", ()))


_LED = re.compile(r"((?:^|[.!?] )(?:\w+ ){0,2}\w+, )(\w+)")
"""A word or three that lead to a sentence, and its first word."""
_HOLE = re.compile(r"\{(\w+)\}")


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
            for key, old, into in holders:
                said = [self._said(intent, one, number, corrects=not first, around=key == "say") for one in old[key]]
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
        """The scenario's reason: the same wordings as before, in this voice."""
        rest, said = self.shape["user_scenario"]["instructions"]["reason_for_call"], list[str]()
        for request in requests:
            rest = next((rest.removeprefix(joint) for joint in JOINTS if rest.startswith(joint)), rest)
            wordings = sorted(request.get("first", request)["say"], key=len, reverse=True)
            plain = next(one for one in wordings if rest.startswith(one))
            rest = rest[len(plain) :].lstrip()
            join = self._one(self.words.joins) if said else ""
            said.append((join.lower().replace(":", "") if self.register.flat else join) + exchanged[plain])
        return " ".join(said)

    def _one(self, options: tuple[str, ...]) -> str:
        return self.rng.choice(sentences_of(options, self.half))

    def _often(self, what: str) -> bool:
        return self.rng.random() < SHARES[what]

    # -- one wording ---------------------------------------------------------------------------------------------------

    def _said(self, intent: str, plain: str, number: int, *, corrects: bool, around: bool) -> str:
        """A wording in this voice that says the same values, or only with dates as people say them."""
        masked, values = self._masked(intent, plain)
        for _ in range(TRIES):
            text = self._reworded(masked)
            text = self._surrounded(text, number) if around else text
            shown = [self._shown(value) for value in values]
            wrong = self._corrected(values, shown) if corrects and around and self._often("corrected") else None
            made = _filled(text, shown)
            if same_values(plain, made, wrong) and not self._tells(made, plain):
                return made
        made = _filled(masked, [self._shown(value) for value in values])
        return plain if self._tells(made, plain) else made

    def _tells(self, made: str, plain: str) -> bool:
        """Whether a wording tells what the agent must tell, which the plain one does not."""
        says = (grading.mentions, looks_said)
        return any(say(made, info) and not say(plain, info) for info in self.inform for say in says)

    def _masked(self, intent: str, plain: str) -> tuple[str, list[str]]:
        """The wording with a mark in each value's place, and the values."""
        found = ((finder.fullmatch(plain), template) for finder, template in self.forms.get(intent, ()))
        match, template = next(((match, template) for match, template in found if match), (None, plain))
        values: list[str] = list(match.groups()) if match else []
        numbers = iter(range(len(values)))
        masked = _HOLE.sub(lambda _: chr(_FIRST + next(numbers)), template) if match else plain

        def opaque(found: re.Match[str]) -> str:
            values.append(found[0])
            return chr(_FIRST + len(values) - 1)

        return _OPAQUE.sub(opaque, masked), values

    def _reworded(self, text: str) -> str:
        text = self._ordered(text)
        for finder, said in self.words.phrases:
            text = finder.sub(partial(self._other, said), text)
        if self.rng.random() < self.register.lower:
            text = re.sub(rf"{_START}\w+", lambda found: _small(found[0]), text)
        for finder, options in (*self.words.shapes, *self.register.swaps, *self.words.ends):
            text = finder.sub(partial(self._swapped, options), text)
        text = re.sub(r",* +(?=[.,!?;:])|,(?=[.!?;:])", "", " ".join(text.split()))
        return _LED.sub(lambda found: found[1] + _small(found[2]), text)

    def _ordered(self, text: str) -> str:
        """Orders to do something begin in another way."""

        def begun(found: re.Match[str]) -> str:
            if not self.register.orders or not self._often("order"):
                return found[0]
            return f"{_capital(self._one(self.register.orders))} \0"

        made = self.words.verbs.sub(begun, text)
        return re.sub(r" \0(\w)", lambda found: f" {found[1].lower()}", made).replace("\0", "")

    def _other(self, said: Mapping[str, tuple[str, ...]], found: re.Match[str]) -> str:
        if not self._often("phrase"):
            return found[0]
        return _like(found, self.rng.choice([one for one in said[found[0].lower()] if one.lower() != found[0].lower()]))

    def _swapped(self, options: tuple[str, ...], found: re.Match[str]) -> str:
        return _like(found, found.expand(self.rng.choice(options)))

    def _surrounded(self, text: str, number: int) -> str:
        """Something before and after it. Who has come to the next request opens less."""
        if self._often("talk"):
            aside = self._one(self.talk if self.talk and self.rng.random() < 0.6 else self.words.asides)
            aside = aside.lower().rstrip(".") if self.register.flat else aside
            text = f"{aside} {text}" if self.rng.random() < 0.6 else f"{text} {aside}"
        if self.register.opens and self._often("open") and (not number or self.rng.random() < 0.5):
            lead = self._one(self.register.opens)
            text = f"{lead} {text if lead[-1] in '.!?:' else _small(text)}"
        if self.register.closes and self._often("close"):
            text = f"{text} {self._one(self.register.closes)}"
        return text

    # -- values --------------------------------------------------------------------------------------------------------

    def _shown(self, value: str) -> str:
        """A value as people say it: dates without a year that goes without saying, times of day."""
        value = _DATE.sub(lambda found: self._day(date(*map(int, found.groups()))), value)
        value = _MONTH.sub(lambda found: f"{date(int(found[1]), int(found[2]), 1):%B %Y}", value)
        if _CLOCK.fullmatch(value) and self.rng.random() < 0.4:
            hour, minute = map(int, value.split(":"))
            return f"{(hour - 1) % 12 + 1}{f':{minute:02d}' if minute else ''} {'pm' if hour > 11 else 'am'}"
        return value

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
        day = date.fromisoformat(values[dates[0]]) + timedelta(days=self.rng.choice((-2, -1, 1, 2, 7)))
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
