"""How far play follows a preference, by hand: the same tasks under a preference and under none."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row
from toolorchestra.agents.evaluation.controllability import controllability_of
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.summary import PreferenceEffect, summarise
from toolorchestra.agents.evaluation.summary_tables import as_markdown, as_text

WEIGHTS: dict[str, dict[str, float]] = {
    "accurate": {"outcome": 1.0, "usd": 0.0, "seconds": 0.0},
    "balanced": {"outcome": 1.0, "usd": 0.5, "seconds": 0.5},
    "frugal": {"outcome": 1.0, "usd": 1.0, "seconds": 0.0},
    "lean": {"outcome": 1.0, "usd": 1.0, "seconds": 1.0},
    "favour": {"outcome": 1.0, "usd": 0.5, "seconds": 0.0, "answer-1": 1.0},
}


def preferring(kind: str, task: str, right: float | None = 1.0, **fields: Any) -> EvaluationRow:
    """A trial under a preference of the bank, as `--preset preferences` labels it."""
    preference = {"kind": kind, "weights": WEIGHTS[kind], "sentence": f"Be {kind}."}
    return made_row(task, right, **{"env": f"HLE-v0, preference={kind}", "preference": preference, **fields})


def effects(rows: list[EvaluationRow]) -> dict[tuple[str, str], PreferenceEffect]:
    return {(one.preference, one.measure): one for one in controllability_of(rows)}


def test_what_was_saved_is_a_share_of_what_the_same_tasks_cost_without_a_preference() -> None:
    plain = [made_row(str(n), cents=4.0, minutes=1.0) for n in range(4)]
    plain += [made_row("of nobody else", cents=1000.0)]
    frugal = [preferring("frugal", str(n), float(n > 0), cents=1.0, minutes=3.0) for n in range(4)]
    (only,) = controllability_of([*plain, *frugal])
    assert (only.env, only.preference, only.reference, only.measure) == ("HLE-v0", "frugal", "none", "usd")
    assert (only.tasks, only.left_out, only.before, only.after) == (4, 0, pytest.approx(4.0), pytest.approx(1.0))
    assert only.followed == pytest.approx(0.75)
    assert (only.interval.low, only.interval.high) == (pytest.approx(0.75), pytest.approx(0.75))
    assert only.points == pytest.approx(-0.25)


def test_a_policy_that_is_deaf_follows_nothing_and_one_that_does_the_opposite_less_than_nothing() -> None:
    costs = [1.0, 5.0, 2.0]
    plain = [made_row(str(n), cents=c) for n, c in enumerate(costs)]
    deaf = [preferring("frugal", str(n), cents=c) for n, c in enumerate(costs)]
    found = effects([*plain, *deaf])["frugal", "usd"]
    assert (found.followed, found.interval.low, found.interval.high) == (0.0, 0.0, 0.0)
    contrary = [preferring("frugal", str(n), cents=2 * c) for n, c in enumerate(costs)]
    assert effects([*plain, *contrary])["frugal", "usd"].followed == pytest.approx(-1.0)


def test_the_interval_is_of_tasks_that_differ() -> None:
    plain = [made_row(str(n), cents=4.0) for n in range(40)]
    frugal = [preferring("frugal", str(n), cents=1.0 + n % 5) for n in range(40)]
    found = effects([*plain, *frugal])["frugal", "usd"]
    assert found.followed == pytest.approx(0.25)
    assert 0.05 < found.interval.low < 0.25 < found.interval.high < 0.45


def test_without_play_without_a_preference_a_balanced_one_is_the_reference_and_names_less() -> None:
    """A balanced preference weighs money and time by a half each: `favour` weighs money no more, `lean` both."""
    rows = [preferring("balanced", "a", cents=2.0, minutes=2.0, calls={"answer-1": 1, "answer-2": 3})]
    rows += [preferring("lean", "a", cents=1.0, minutes=1.0), preferring("accurate", "a", cents=9.0)]
    rows += [preferring("favour", "a", cents=1.0, calls={"answer-1": 3, "answer-2": 1})]
    found = effects(rows)
    assert set(found) == {("lean", "usd"), ("lean", "seconds"), ("favour", "calls")}
    assert {one.reference for one in found.values()} == {"balanced"}
    assert found["lean", "seconds"].followed == pytest.approx(0.5)
    favour = found["favour", "calls"]
    assert (favour.before, favour.after, favour.followed) == (0.25, 0.75, 0.5)
    again = effects([*rows, made_row("a", cents=2.0)])
    assert ("favour", "usd") in again
    assert {one.reference for one in again.values()} == {"none"}


def test_a_pair_is_a_task_that_ended_on_both_sides_under_the_same_prices() -> None:
    plain = [made_row("a", cents=4.0), made_row("b", None), made_row("c", sheet="other"), made_row("d", cents=2.0)]
    frugal = [preferring("frugal", name, cents=1.0) for name in "abc"] + [preferring("frugal", "d", None)]
    (only,) = controllability_of([*plain, *frugal])
    assert (only.tasks, only.left_out, only.followed) == (1, 3, pytest.approx(0.75))
    assert controllability_of([*plain[1:], *frugal]) == ()


def test_policies_environments_and_trials_are_kept_apart_and_preferences_of_one_environment_are_pairs_too() -> None:
    """Drawn preferences: the trials of a task have preferences of their own."""
    rows = [made_row("a", cents=4.0), made_row("a", cents=8.0, trial=1)]
    rows += [preferring("frugal", "a", cents=3.0, trial=2, env="HLE-v0")]
    rows += [
        made_row("a", cents=1.0, policy="expensive"),
        preferring("frugal", "a", cents=1.0, env="FRAMES-v0, preference=frugal"),
    ]
    (only,) = controllability_of(rows)
    assert (only.policy, only.before, only.followed) == ("cheap", pytest.approx(6.0), pytest.approx(0.5))


def test_where_the_reference_cost_nothing_there_is_no_share() -> None:
    rows = [made_row("a", cents=0.0), preferring("frugal", "a", cents=1.0)]
    (only,) = controllability_of(rows)
    assert math.isnan(only.followed)
    shown = summarise(rows)
    assert json.loads(json.dumps(shown.to_json(), allow_nan=False))["controllability"][0]["followed"] is None
    assert "- to -" in as_text(shown)


def test_the_tables_show_it_by_environment_and_say_the_reference() -> None:
    rows = [made_row(str(n), cents=4.0) for n in range(3)]
    rows += [preferring("frugal", str(n), float(n > 0), cents=1.0) for n in range(3)]
    said = as_text(summarise(rows))
    assert "HLE-v0 test, preferences against no preference\n" in said
    assert "frugal       cheap   ¢      3    4.00   1.00       +75.0  +75.0 to +75.0     -33.3" in said
    assert "### HLE-v0 test, preferences against no preference\n" in as_markdown(summarise(rows))
    assert "preferences against" not in as_text(summarise(rows[:3]))
    assert max(map(len, said.splitlines())) <= 120
