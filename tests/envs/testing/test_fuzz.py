"""The fuzzer finds nothing in the suite, the same seed makes the same turns, and it notices each kind of fault."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.support.fuzz import CORPUS, SHAPES, FuzzReport, Turns, as_json, cases, fuzz_episodes, fuzz_parser, growth
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.actions import Action, parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.money.prices import Charge, PriceSheet, Usage, load_sheet
from toolorchestra.envs.registration import register

CASES = [pytest.param(*case, marks=needs_package if "Tau2" in case[0] else ()) for case in cases()]


def test_eight_thousand_turns_are_read_or_refused() -> None:
    report = fuzz_parser(8_000, seed=11)
    assert not report.findings
    assert report.turns == 8_000
    assert min(report.refused, report.calls) > 1_600, "both what can be read and what cannot is among them"


@pytest.mark.parametrize(("env_id", "settings"), CASES)
def test_what_an_agent_may_write_breaks_no_episode(env_id: str, settings: dict[str, Any]) -> None:
    report = fuzz_episodes(env_id, 150, 12, settings)
    assert not report.findings
    assert report.turns == 150
    assert report.episodes > 3
    assert min(report.refused, report.calls) > 30


def test_time_grows_with_the_size_and_no_faster() -> None:
    slow = [name for name, _, fine in growth() if not fine]
    assert not slow or not [name for name, _, fine in growth() if not fine and name in slow], slow


def test_the_same_seed_makes_the_same_turns() -> None:
    one, same, other = Turns(3), Turns(3), Turns(4)
    made = [one.next() for _ in range(500)]
    assert made == [same.next() for _ in range(500)]
    assert made != [other.next() for _ in range(500)]
    assert sum(text in CORPUS for text in made) > 50
    assert all(100 <= len(shape(1_000)) < 1_100 for shape in SHAPES.values())


def _wrong(report: FuzzReport) -> str:
    assert report.findings
    assert not report.full or report.turns < 20_000
    return str(report.findings[0])


def raises(text: str) -> Action:
    if "\ud800" in text:
        raise KeyError("half a pair")
    return parse(text)


def forgets_a_call(text: str) -> Action:
    action = parse(text)
    return action._replace(calls=action.calls[:1], thought=action.thought + " ")


def complains_at_length(text: str) -> Action:
    try:
        return parse(text)
    except ActionError:
        raise ActionError(f"cannot read {text}") from None


def dawdles(text: str) -> Action:
    if len(text) > 2_000:
        until = time.thread_time() + 0.08
        while time.thread_time() < until:
            pass
    return parse(text)


@pytest.mark.parametrize(
    ("read", "seen"),
    [
        (raises, "KeyError: 'half a pair'"),
        (forgets_a_call, "another action"),
        (complains_at_length, "surrogates not allowed|a complaint of"),
        (dawdles, r"0\.0\d* s for \d+ characters"),
    ],
)
def test_a_parser_with_a_fault_is_found_out(read: Any, seen: str) -> None:
    assert re.search(seen, _wrong(fuzz_parser(500, 0, read)))


def test_a_parser_that_takes_quadratic_time_is_found_out() -> None:
    def quadratic(text: str) -> None:
        for _ in range(0, len(text), 1_000):
            text.count("zz")

    assert not all(fine for _, _, fine in growth(quadratic))


class OffSheet(PriceSheet):
    """Bills a nano-dollar too much where tokens are many."""

    def charge(self, usage: Usage, tool: str = "") -> Charge:
        made = super().charge(usage, tool)
        return made._replace(nano_usd=made.nano_usd + (usage.tokens.input > 1_500))


def test_a_bill_that_is_a_nano_dollar_off_is_found_out() -> None:
    sheet = load_sheet("paper-2025-11")
    off = OffSheet(sheet.sheet_id, sheet.date, sheet.source, sheet.prices)
    assert "its charges come to" in _wrong(fuzz_episodes("ToolOrchestra/HLE-v0", 200, 0, {"prices": off}))


@pytest.mark.parametrize("way", ["raises", "absorb", "grade", "unpriced"])
def test_an_episode_that_fails_is_found_out(way: str) -> None:
    register("Tests/Broken-v0", "tests.sources:BrokenSource")
    assert "the episode failed" in _wrong(fuzz_episodes("Tests/Broken-v0", 100, 0, {"way": way}))


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
def test_what_is_no_json_or_no_utf8_is_found_out(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        as_json({"messages": [value]})
