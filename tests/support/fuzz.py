"""Fuzzing: what an agent may write does what is declared and nothing else, whatever it is.

    print(fuzz_parser(turns=20_000, seed=0))
    print(fuzz_episodes("ToolOrchestra/HLE-v0", turns=2_000, seed=0))

The parser raises ActionError or reads what it would write again. A step raises nothing and fails no episode, every
observation is JSON and UTF-8, and the bill is the sum of its charges, worked out here once more with decimals. Time
grows with the size of a turn and no faster. `make robustness` runs the full size; docs/results/engine.md
has what came of it.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import gymnasium as gym

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, parse, render, render_call
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.marks import KNOWN
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import Charge, PriceSheet
from toolorchestra.envs.registration import ids, register
from toolorchestra.envs.testing.rehearsal import RandomCaller

MOST_CHARACTERS = 20_000
"""Of a turn; hostile shapes have sizes of their own."""

_ONE = render_call("search", {"model": "search-1"})
CORPUS: Sequence[str] = (
    _ONE,
    f"{THINK}Let me see.{UNTHINK}\n{_ONE}",
    f"thought without a beginning{UNTHINK}{_ONE}",
    f"First this:\n{_ONE}\n{render_call('answer', {'model': 'answer-2', 'n': [1, 2.5, None, True]})}\nThen.",
    render_call("place", {"place": {"city": "größe 表 😀", "tags": ["<a>", "}{", '"', "\\"]}, "price": -1.5e-7}),
    f"{THINK}I might {_ONE}{UNTHINK}The answer is 42.",
    "Plain words: größe, π, 表, 😀.",
    f'{OPEN}\n {{"arguments": {{}}, "name": "done"}} \n{CLOSE}',
    f'{OPEN}{{"name": "a", "arguments": {{"a": 1, "a": 2}}}}{CLOSE}',
    f'{OPEN}{{"name": "a", "arguments": {{"a": "\\ud83d"}}}}{CLOSE}',
)
PIECES: Sequence[str] = (
    *KNOWN,
    *(OPEN, CLOSE, THINK, UNTHINK) * 4,
    *('{"name": ', '"arguments": ', "{", "}", "[", "]", '"', "\\", ",", ":", "\\u0000", "\\ud800", '{"name": "a"}'),
    *("null", "true", "NaN", "-Infinity", "1e999", "-0", "1e-999", "9" * 400, "9" * 5000, "0x1", "1_000", "01", "'"),
    *("\x00", "\x1b[31m", "\ud800", "\udfff", "\ufeff", "\u202e", "\u2028", "\x85", "\r", "\n", "\t", " "),
    *("é", "\U0010ffff", "<|im_end|>", "<|im_start|>system\n", "answer", "submit", "DROP TABLE", "../../etc/passwd"),
    *("%s%n", "{0.__class__}"),
)  # fmt: skip


def _with(value: str) -> str:
    """A call with one argument, whose JSON is given."""
    return f'{OPEN}{{"name": "a", "arguments": {{"a": {value}}}}}{CLOSE}'


SHAPES: Mapping[str, Callable[[int], str]] = {
    "open tags": lambda size: OPEN * (size // len(OPEN)),
    "close tags": lambda size: CLOSE * (size // len(CLOSE)),
    "thoughts": lambda size: (THINK + UNTHINK) * (size // 15),
    "thoughts that only end": lambda size: UNTHINK * (size // 8),
    "calls": lambda size: _ONE * (size // len(_ONE)),
    "calls thought of": lambda size: (_ONE + UNTHINK) * (size // (len(_ONE) + 8)),
    "blanks": lambda size: OPEN + " " * size + CLOSE,
    "blanks and words": lambda size: " \n" * (size // 2) + "word",
    "arrays": lambda size: _with("[" * (size // 2) + "]" * (size // 2)),
    "objects": lambda size: _with('{"a":' * (size // 6) + "1" + "}" * (size // 6)),
    "unclosed": lambda size: _with('{"a":[' * (size // 6))[: -len(CLOSE) - 2],
    "a long text": lambda size: render_call("a", {"a": "x" * size}),
    "quotes": lambda size: _with('"' + '\\"' * (size // 2) + '"'),
    "escapes": lambda size: _with('"' + "\\ud83d" * (size // 6) + '"'),
    "a long number": lambda size: _with("9" * size),
    "many keys": lambda size: render_call("a", {f"k{number}": number for number in range(size // 14)}),
    "one key often": lambda size: _with('{"a": 1' + ', "a": 1' * (size // 8) + "}"),
    "a long list": lambda size: render_call("a", {"a": [0] * (size // 3)}),
    "half surrogates": lambda size: "\ud800" * size,
    "wide text": lambda size: "表😀é" * (size // 3),
}


class Turns:
    """Endless turns; the same seed gives the same."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)
        self._shapes = tuple(SHAPES.values())
        self._mutations = (self._cut, self._insert, self._repeat, self._drop, self._swap, self._letter, self._splice)

    def next(self, valid: str = "") -> str:
        """One turn, made of a valid one where that is given: about one in four stays as it is."""
        rng = self._rng
        if rng.random() < 0.03:
            return rng.choice(self._shapes)(rng.choice((10, 200, 3000)))
        text = valid or rng.choice(CORPUS)
        for _ in range(rng.choice((0, 1, 1, 2, 3, 6, 0, 1))):
            text = rng.choice(self._mutations)(text)[:MOST_CHARACTERS]
        return text

    def _span(self, text: str) -> tuple[int, int]:
        start = self._rng.randint(0, len(text))
        return start, min(len(text), start + self._rng.choice((1, 2, 5, 20, 200)))

    def _cut(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        return text[:at] if self._rng.random() < 0.5 else text[at:]

    def _insert(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        return text[:at] + self._rng.choice(PIECES) + text[at:]

    def _repeat(self, text: str) -> str:
        start, end = self._span(text)
        return text[:end] + text[start:end] * self._rng.choice((1, 2, 17, 150)) + text[end:]

    def _drop(self, text: str) -> str:
        start, end = self._span(text)
        return text[:start] + text[end:]

    def _swap(self, text: str) -> str:
        (start, middle), end = self._span(text), self._rng.randint(0, len(text))
        return text[:start] + text[middle : max(middle, end)] + text[start:middle] + text[max(middle, end) :]

    def _letter(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        code = self._rng.choice((0x20, 0x80, 0x300, 0x10000, sys.maxunicode))
        return text[:at] + chr(self._rng.randrange(code + 1)) + text[at + 1 :]

    def _splice(self, text: str) -> str:
        other = self._rng.choice(CORPUS)
        return text[: self._rng.randint(0, len(text))] + other[self._rng.randint(0, len(other)) :]


MOST_FINDINGS = 20
"""After so many a run ends: more would say the same."""
COMPLAINT_CHARACTERS = 500
SMALL, LARGE = 16_000, 128_000
"""Characters of the hostile shapes between which time may grow as much as they do."""
TOY = "Toy/Adder-v0"
_SLACK = 3.0
_PARSE_SECONDS, _PARSE_SECONDS_PER_CHARACTER = 0.05, 5e-6
_STEP_SECONDS = 3.0
"""Of CPU: a program for the interpreter may take its whole bound."""
_EXACT = Context(prec=60, rounding=ROUND_HALF_UP)
_NANO = Decimal("1e-9")


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Every id of the suite with arguments that need nothing from outside, and the toy to copy."""
    register(TOY, "tests.support.toy:AdderSource")
    hle, *others = ids()
    more: dict[str, dict[str, Any]] = {"ToolOrchestra/Tau2-v0": {"domain": "all", "user": "scripted"}}
    hles: list[dict[str, Any]] = [{}, {"tools": "plain", "history": "state"}]
    return [*((hle, settings) for settings in hles), *((name, more.get(name, {})) for name in (*others, TOY))]


class BrokenPromise(AssertionError):
    """A promise is broken. The text says which one, and what was seen."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise, and the turn that broke it."""

    number: int
    """Of the turn, from 1: the same seed makes it again."""
    text: str
    wrong: str

    def __str__(self) -> str:
        return f"turn {self.number}: {self.wrong}; the text: {self.text!r:.300}"


@dataclass
class FuzzReport:
    """What was tried, and what was wrong."""

    what: str
    turns: int = 0
    refused: int = 0
    """Turns that could not be read, and said so."""
    calls: int = 0
    episodes: int = 0
    seconds: float = 0.0
    """Of CPU, making the turns and checking included."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.findings) >= MOST_FINDINGS


def fuzz_parser(turns: int, seed: int, read: Callable[[str], Any] = parse) -> FuzzReport:
    """Read so many turns. `read` stands for the parser."""
    report = FuzzReport("parser")
    made, started = Turns(seed), time.process_time()
    while report.turns < turns and not report.full:
        text = made.next()
        report.turns += 1
        try:
            _read(report, text, read)
        except Exception as err:  # noqa: BLE001 - any exception is what is looked for
            report.findings.append(Finding(report.turns, text, _said(err)))
    report.seconds = time.process_time() - started
    return report


def _read(report: FuzzReport, text: str, read: Callable[[str], Any]) -> None:
    before = time.thread_time()
    try:
        action = read(text)
    except ActionError as err:
        report.refused += 1
        complaint = str(err)
        complaint.encode()
        if not 0 < len(complaint) <= COMPLAINT_CHARACTERS:
            raise BrokenPromise(f"a complaint of {len(complaint)} characters") from None
        action = None
    took = time.thread_time() - before
    if took > _PARSE_SECONDS + len(text) * _PARSE_SECONDS_PER_CHARACTER:
        raise BrokenPromise(f"{took:.3f} s for {len(text)} characters")
    if action is None:
        return
    report.calls += len(action.calls)
    as_json([list(action.calls), action.said, action.thought])
    try:
        again = render(action.calls, action.said, action.thought)
    except ValueError:  # tags in what is said have no other spelling
        return
    if parse(again) != action:
        raise BrokenPromise(f"written and read again it is another action: {parse(again)!r:.300}")


def as_json(value: Any) -> bytes:
    """As a server or a file would take it. Raises ValueError or TypeError where it would not."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def growth(read: Callable[[str], Any] = parse) -> Iterator[tuple[str, float, bool]]:
    """For each hostile shape: nanoseconds of CPU per character, and whether the time grows no faster than the size."""
    for name, shape in SHAPES.items():
        small, large = (_fastest(read, shape(size)) for size in (SMALL, LARGE))
        yield name, large / LARGE * 1e9, large <= 0.002 + _SLACK * small * LARGE / SMALL


def _fastest(read: Callable[[str], Any], text: str) -> float:
    best = math.inf
    for _ in range(5):
        started = time.thread_time()
        with suppress(ActionError):
            read(text)
        best = min(best, time.thread_time() - started)
    return best


def fuzz_episodes(env_id: str, turns: int, seed: int, settings: Mapping[str, Any] | None = None) -> FuzzReport:
    """Play so many turns, one episode after the other."""
    told = ", ".join(f"{key}={value}" for key, value in (settings or {}).items())
    report = FuzzReport(env_id.removeprefix("ToolOrchestra/") + (f" {told}" if told else ""))
    env = gym.make(env_id, **(settings or {})).unwrapped
    if not isinstance(env, OrchestraEnv):
        raise TypeError(f"{env_id} makes a {type(env).__name__}; register it with registration.register()")
    made, caller, started = Turns(f"{report.what}, {seed}"), RandomCaller(seed), time.process_time()
    while report.turns < turns and not report.full:
        _play(report, env, seed * 1_000_000 + report.episodes, turns, lambda e: made.next(caller(e)))
    env.close()
    report.seconds = time.process_time() - started
    return report


def _play(report: FuzzReport, env: OrchestraEnv, seed: int, turns: int, policy: Callable[[Episode], str]) -> None:
    """One episode, until it ends or something is wrong."""
    text = "(reset)"
    try:
        observation, _ = env.reset(seed=seed)
        as_json(observation)
        report.episodes += 1
        episode, over = env.episode, False
        while episode is not None and not over and report.turns < turns:
            text = policy(episode)
            report.turns += 1
            before = time.process_time()
            observation, reward, terminated, truncated, info = env.step(text)
            if (took := time.process_time() - before) > _STEP_SECONDS:
                raise BrokenPromise(f"a step of {took:.1f} s of CPU")
            over = terminated or truncated
            as_json(observation)
            as_json(info)
            _check_step(episode.sheet, list(episode.ledger), reward, info)
            names = [message.get("name") for message in info["new_messages"]]
            report.refused += "parser" in names
            report.calls += sum(name not in (None, "parser") for name in names)
    except Exception as err:  # noqa: BLE001 - any exception is what is looked for
        report.findings.append(Finding(report.turns, text, _said(err)))


def _check_step(sheet: PriceSheet, charges: Sequence[Charge], reward: Any, info: Mapping[str, Any]) -> None:
    if info.get("failed"):
        raise BrokenPromise(f"the episode failed: {info['failed']}")
    if not math.isfinite(reward):
        raise BrokenPromise(f"the reward is {reward}")
    by_role: dict[str, Decimal] = {}
    for charge in charges:
        role = charge.usage.role
        by_role[role] = by_role.get(role, Decimal(0)) + billed(sheet, charge)
    shown = info["ledger"]
    if {role: float(usd) for role, usd in by_role.items()} != shown["usd_by_role"]:
        raise BrokenPromise(f"the ledger shows {shown['usd_by_role']}, its charges come to {by_role}")
    if float(sum(by_role.values(), Decimal(0))) != shown["usd"]:
        raise BrokenPromise(
            f"the ledger shows {shown['usd']} $, its charges come to {sum(by_role.values(), Decimal(0))} $"
        )


def billed(sheet: PriceSheet, charge: Charge) -> Decimal:
    """Dollars of one charge, worked out from the sheet's price in decimals, apart from the ledger's whole numbers."""
    usage, price = charge.usage, sheet.prices[charge.usage.item]
    parts = [
        Decimal(count) * Decimal(rate) * Decimal("1e-12")
        for count, rate in zip(usage.tokens, price.pico_usd_per_token or (0, 0, 0, 0), strict=True)
    ]
    parts.append(Decimal(usage.units) * Decimal(price.nano_usd_per_unit or 0) * _NANO)
    parts.append(Decimal(round(usage.seconds * 1e9)) * _NANO * Decimal(price.nano_usd_per_second or 0) * _NANO)
    return _EXACT.quantize(sum(parts, Decimal(0)), _NANO) if not price.free else Decimal(0)


def _said(err: Exception) -> str:
    return str(err) if isinstance(err, BrokenPromise) else f"{type(err).__name__}: {err!s:.300}"
