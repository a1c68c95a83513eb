"""Runs beside each other: pairs, what is no pair, and what is never mixed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.evaluation.made_rows import made_row, write_run
from toolorchestra.agents.evaluation.comparison import (
    NamedRun,
    compare_pairs,
    compare_runs,
    comparison_markdown,
    comparison_text,
    read_runs,
)
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.statistics import Interval, mean_interval
from toolorchestra.envs.base.errors import ConfigError


def some(outcomes: Sequence[float | None], **fields: Any) -> list[EvaluationRow]:
    return [made_row(str(n), right, **fields) for n, right in enumerate(outcomes)]


def test_pairs_by_hand() -> None:
    left = some([1, 1, 0, 0, None, 1], cents=5.0, minutes=2.0)
    right = some([1, 0, 1, 1, 1, None], cents=2.0, minutes=3.0, policy="new")
    found = compare_pairs("a", left, "b", right)
    assert (found.pairs, found.unknown, found.apart, found.alone) == (4, 2, 0, 0)
    assert found.accuracy is not None
    assert found.cents is not None
    assert found.minutes is not None
    assert (found.accuracy.left, found.accuracy.right, found.accuracy.difference) == (0.5, 0.75, 0.25)
    assert (found.better, found.worse, found.p) == (2, 1, 1.0)
    assert found.bounds == Interval((1 + 0 - 1) / 6, (1 + 1 + 0) / 6)
    assert (found.cents.difference, found.cents.interval) == (pytest.approx(-3.0), Interval(-3.0, -3.0))
    assert found.minutes.difference == pytest.approx(1.0)
    assert found.reward is not None
    assert (found.reward.left, found.reward.right) == (pytest.approx(0.45), pytest.approx(0.73))
    assert found.reward.interval == mean_interval([0.03, -0.97, 1.03, 1.03])


def test_the_same_answers_leave_the_dollars_as_the_lead_in_reward() -> None:
    found = compare_pairs("a", some([1, 0, None], cents=5.0), "b", some([1, 0, 1], cents=2.0)).reward
    assert found is not None
    assert (found.difference, found.interval.low, found.interval.high) == pytest.approx((0.03, 0.03, 0.03))


def test_bounds_take_what_is_not_known_at_its_worst_and_best() -> None:
    found = compare_pairs("a", some([None, None, 1]), "b", some([1, None, 1]))
    assert found.bounds == Interval(-1 / 3, 2 / 3)  # 1 - 1 and 0 - 1 at the worst, 1 - 0 and 1 - 0 at the best


def test_another_seed_or_sheet_is_no_pair() -> None:
    left = [made_row("a"), made_row("b", seed=1), made_row("c"), made_row("only")]
    right = [made_row("a"), made_row("b", seed=2), made_row("c", sheet="other")]
    found = compare_pairs("l", left, "r", right)
    assert (found.pairs, found.apart, found.alone) == (1, 2, 1)


def test_trials_of_a_task_are_one_sign() -> None:
    left = [made_row("a", 0.0, trial=n) for n in range(6)] + [made_row("b", 1.0)]
    right = [made_row("a", 1.0, trial=n) for n in range(6)] + [made_row("b", 1.0)]
    found = compare_pairs("l", left, "r", right)
    assert (found.better, found.worse, found.p) == (1, 0, 1.0)


def test_who_wins_where() -> None:
    def rows(policy: str, logic: float, chemistry: float) -> list[EvaluationRow]:
        return [
            made_row(f"{subject}{n}", right, policy=policy, groups={"subject": subject}, cents=cents)
            for subject, right, cents in (
                ("logic", logic, 2.0),
                ("chemistry", chemistry, 4.0 if policy == "b" else 1.0),
            )
            for n in range(3)
        ]

    found = compare_pairs("a", rows("a", 1.0, 0.0), "b", rows("b", 0.0, 1.0))
    assert [(g.group, g.pairs, g.difference, g.cents) for g in found.groups] == [
        ("subject: chemistry", 3, 1.0, pytest.approx(3.0)), ("subject: logic", 3, -1.0, pytest.approx(0.0)),
    ]  # fmt: skip


def test_each_policy_meets_the_same_of_the_first_run() -> None:
    old = NamedRun("old", some([1, 0], policy="x") + some([0, 0], policy="y"))
    new = NamedRun("new", some([1, 1], policy="y") + some([1, 1], policy="z"))
    (section,) = compare_runs([old, new]).sections
    assert [(c.right, c.left) for c in section.comparisons] == [
        ("old: y", "old: x"), ("new: y", "old: y"), ("new: z", "old: x"),
    ]  # fmt: skip
    (section,) = compare_runs([old, new], against="y").sections
    assert {c.left for c in section.comparisons} == {"old: y"}
    assert section.front is not None
    assert len(section.front.points) == 4
    with pytest.raises(ConfigError, match="no policy 'w'"):
        compare_runs([old, new], against="w")
    with pytest.raises(ConfigError, match="no policy 'v'"):
        compare_runs([old, new], singles=["v"])


def test_price_sheets_are_never_mixed() -> None:
    old, new = NamedRun("old", some([1, 0])), NamedRun("new", some([1, 1], sheet="other"))
    compared = compare_runs([old, new])
    assert [s.ground.sheets for s in compared.sections] == ["paper-2025-11", "other"]
    assert not any(s.comparisons or s.front for s in compared.sections)
    assert "HLE-v0 test was billed by different price sheets (old by paper-2025-11; new by other)" in compared.notes[0]
    assert "--reprice SHEET" in comparison_text(compared)


def test_versions_of_tasks_are_never_mixed(tmp_path: Path) -> None:
    folders = []
    for name, version in (("old", "1"), ("new", "2"), ("newer", "2")):
        folders.append(write_run(tmp_path / name, some([1, 0])))
        (folders[-1] / "manifest.json").write_text(json.dumps({"task_versions": {"HLE-v0": version}}))
    compared = compare_runs(read_runs(folders))
    assert [len(s.comparisons) for s in compared.sections] == [0, 1]
    assert "different versions of its tasks (old: 1; new, newer: 2)" in compared.notes[0]
    (folders[0] / "manifest.json").write_text('{"task_versions": 3}')
    with pytest.raises(ConfigError, match="task_versions"):
        read_runs(folders)


def test_prices_drawn_for_each_task_pair_where_they_are_the_same() -> None:
    drawn = [made_row(str(n), sheet=f"drawn-{n}") for n in range(4)]
    other = [made_row(str(n), sheet=f"drawn-{n}" if n else "another") for n in range(3)]
    (section,) = compare_runs([NamedRun("a", drawn), NamedRun("b", other)]).sections
    (pair,) = section.comparisons
    assert (pair.pairs, pair.apart, pair.alone) == (2, 1, 1)
    assert section.front is not None
    assert (section.front.trials, section.front.left_out) == (2, 2)


def test_runs_of_the_same_folder_name_are_told_apart(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name / "run", some([1, 0])) for name in ("a", "b")]
    assert [run.name for run in read_runs(folders)] == [str(folder) for folder in folders]


def test_the_tables_fit_and_say_what_was_left_out() -> None:
    fields = {"groups": {"subject": "number theory"}}
    old = NamedRun("a-run-with-quite-a-long-name", some([1, 0, None, 1], cents=123.4, **fields))
    new = NamedRun("another", some([1, 1, 1, 1], cents=0.5, policy="learned", **fields))
    compared = compare_runs([old, new])
    said = comparison_text(compared)
    assert max(map(len, said.splitlines())) <= 120
    said = " ".join(said.split())
    assert "another: learned against a-run-with-quite-a-long-name: cheap: 1 of 4 pairs have an outcome" in said
    assert "1 are left out" in said
    assert "task oracle" in said
    shown = comparison_markdown(compared)
    assert "| task oracle |" in shown
    assert (
        "| another: learned | a-run-with-quite-a-long-name: cheap | 0.995 | -0.567 | +1.562 | +1.229..+2.229 |" in shown
    )
    json.dumps(compared.to_json(), allow_nan=False)


OUTCOMES = st.lists(st.tuples(*[st.sampled_from([None, 0.0, 0.5, 1.0])] * 2), max_size=12)


@settings(deadline=None)
@given(OUTCOMES)
def test_turned_round_it_says_the_same(pairs: list[tuple[float | None, float | None]]) -> None:
    left, right = some([a for a, _ in pairs]), some([b for _, b in pairs])
    one, other = compare_pairs("l", left, "r", right), compare_pairs("r", right, "l", left)
    assert (one.better, one.worse, one.p) == (other.worse, other.better, other.p)
    assert one.bounds.low == pytest.approx(-other.bounds.high)
    if one.accuracy is not None and other.accuracy is not None:
        assert one.accuracy.difference == pytest.approx(-other.accuracy.difference)
        assert one.accuracy.interval.low == pytest.approx(-other.accuracy.interval.high)
