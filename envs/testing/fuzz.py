"""Fuzzing: what an agent may write does what is declared and nothing else, whatever it is.

    from toolorchestra.envs.testing.fuzz import fuzz_episodes, fuzz_parser

    print(fuzz_parser(turns=20_000, seed=0))
    print(fuzz_episodes("ToolOrchestra/HLE-v0", turns=2_000, seed=0))

The parser raises ActionError or reads what it would write again. A step raises nothing and fails no episode, every
observation is JSON and UTF-8, and the bill is the sum of its charges, worked out here once more with decimals. Time
grows with the size of a turn and no faster. `make fuzz` runs the full size; docs/results/fuzz.md has what came of it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import gymnasium as gym

from toolorchestra.envs.base.actions import parse, render
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import Charge, PriceSheet
from toolorchestra.envs.registration import ids, register
from toolorchestra.envs.testing.fuzz_turns import SHAPES, Turns
from toolorchestra.envs.testing.rehearsal import RandomCaller

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
    register(TOY, "toolorchestra.envs.domains.toy:AdderSource")
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
