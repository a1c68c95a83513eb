"""The fuzzer finds nothing in the suite, the same seed makes the same turns, and it notices each kind of fault."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.fuzz import cases, fuzz_episodes, fuzz_parser, growth
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
    slow = {name for name, _, fine in growth() if not fine}
    assert not slow or not slow & {name for name, _, fine in growth() if not fine}


def raises(text: str) -> Action:
    if "\ud800" in text:
        raise KeyError("half a pair")
    return parse(text)


def complains_at_length(text: str) -> Action:
    try:
        return parse(text)
    except ActionError:
        raise ActionError(f"cannot read {text}") from None


@pytest.mark.parametrize(
    ("read", "seen"),
    [
        (raises, "KeyError: 'half a pair'"),
        (complains_at_length, "surrogates not allowed|a complaint of"),
    ],
)
def test_a_parser_with_a_fault_is_found_out(read: Any, seen: str) -> None:
    assert re.search(seen, str(fuzz_parser(500, 0, read).findings[0]))


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
    assert "its charges come to" in str(fuzz_episodes("ToolOrchestra/HLE-v0", 200, 0, {"prices": off}).findings[0])


def test_an_episode_that_fails_is_found_out() -> None:
    register("Tests/Broken-v0", "tests.sources:BrokenSource")
    found = fuzz_episodes("Tests/Broken-v0", 100, 0, {"way": "absorb"}).findings
    assert "the episode failed" in str(found[0])
