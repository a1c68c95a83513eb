"""Runs beside each other: pairs, what is never mixed, the front, and how far preferences are followed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from toolorchestra.agents.commands import compare, report
from toolorchestra.agents.evaluation.comparison import (
    NamedRun,
    compare_pairs,
    compare_runs,
    read_runs,
)
from toolorchestra.agents.evaluation.comparison_tables import comparison_markdown, comparison_text
from toolorchestra.agents.evaluation.controllability import controllability_of
from toolorchestra.agents.evaluation.frontier import PolicyFrontier, TaskTrial, frontier
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.statistics import Interval, TaskTally, mean_interval, share_of
from toolorchestra.agents.evaluation.summary import PreferenceEffect, summarise
from toolorchestra.agents.evaluation.summary_tables import as_markdown, as_text
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
    assert found.reward.interval == mean_interval([0.03, -0.97, 1.03, 1.03], outcomes=True)


def test_another_seed_or_sheet_is_no_pair() -> None:
    left = [made_row("a"), made_row("b", seed=1), made_row("c"), made_row("only")]
    right = [made_row("a"), made_row("b", seed=2), made_row("c", sheet="other")]
    found = compare_pairs("l", left, "r", right)
    assert (found.pairs, found.apart, found.alone) == (1, 2, 1)


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
    with pytest.raises(ConfigError, match="no policy 'z'; valid: x, y"):  # the second run alone has it
        compare_runs([old, new], against="z")
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


def test_a_trial_that_could_not_be_opened_has_no_sheet_and_is_no_other_s() -> None:
    rows = [*some([1, 0, 1]), *some([0, 1, None], policy="new")]
    rows[-1] = replace(rows[-1], sheet="", failure="opening: ConnectionError: away")
    compared = compare_runs([NamedRun("run", rows)])
    ((found,),) = (section.comparisons for section in compared.sections)
    assert compared.notes == ()
    assert (found.pairs, found.unknown, found.apart) == (2, 1, 0)
    (section,) = compare_runs([NamedRun("run", rows)], seeds={"both": ["cheap", "new"]}).sections
    assert section.ground.sheets == "paper-2025-11"
    assert [one.sheets for one in summarise(rows).policies] == [("paper-2025-11",)] * 2


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
    assert "any right" in said
    shown = comparison_markdown(compared)
    assert "| any right |" in shown
    assert "| +25.0..+50.0 |" in shown  # the bounds
    found = mean_interval([1.229, 1.229, 2.229])
    assert found is not None
    span = f"{found.low:+.3f}..{found.high:+.3f}"
    assert f"| another: learned | a-run-with-quite-a-long-name: cheap | 0.995 | -0.567 | +1.562 | {span} |" in shown
    json.dumps(compared.to_json(), allow_nan=False)


Outcomes = Sequence[tuple[float | None, float]]
"""Right and cents of each task."""


def played(policies: Mapping[str, Outcomes]) -> dict[str, dict[TaskTrial, EvaluationRow]]:
    return {
        policy: {
            (str(n), 0): made_row(str(n), right, cents=cents, policy=policy) for n, (right, cents) in enumerate(some)
        }
        for policy, some in policies.items()
    }


def front_of(policies: Mapping[str, Outcomes], singles: Sequence[str] = ()) -> PolicyFrontier:
    made = frontier(played(policies), singles)
    assert made is not None
    return made


TABLE: dict[str, Outcomes] = {
    "cheap": [(1, 1), (0, 1), (0, 1), (0, 1)],
    "expensive": [(1, 9), (1, 9), (1, 9), (0, 9)],
    "router": [(1, 1), (1, 9), (0, 1), (0, 1)],
    "waste": [(0, 9), (0, 9), (1, 9), (0, 1)],
}


def test_the_table_by_hand() -> None:
    made = front_of(TABLE, ["cheap", "expensive"])
    assert [(p.accuracy, p.cents) for p in made.points] == [(0.25, 1), (0.75, 9), (0.5, 3), (0.25, 7)]
    assert (made.best_single, made.front) == ("expensive", ["cheap", "router", "expensive"])
    assert [p.perf_gain for p in made.points] == [pytest.approx(g) for g in (-2 / 3, 0, -1 / 3, -2 / 3)]
    assert [p.cost_save for p in made.points] == [None, 0, None, None]
    # waste: cost 6/8 and accuracy 0 of the ranges; the router's are 2/8 and 1/2, the cheap one's 0 and 0
    # oracle: 1 ¢ right, 9 right, 9 right (router 1 is wrong), none: 1 ¢
    assert (made.oracle_accuracy, made.oracle_cents) == (0.75, 5)
    assert (made.trials, made.left_out) == (4, 0)
    assert front_of({"cheap": [(1, 1)], "expensive": [(1, 9)]}).front == ["cheap"]


def test_the_oracle_is_judged_by_trials_that_did_not_choose_it() -> None:
    """Policies that throw coins: the better of three throws is right more often than any of them will be."""
    rng = random.Random(3)
    policies = [NamedRun(f"run{n}", [made_row(str(task), float(rng.random() < 0.5), trial=trial, policy=f"p{n}")
                                     for task in range(60) for trial in range(3)]) for n in range(4)]  # fmt: skip
    (section,) = compare_runs(policies).sections
    assert section.front is not None
    assert section.front.cross_fitted
    assert section.front.oracle_accuracy == pytest.approx(0.5, abs=0.12)
    assert "task oracle" in comparison_text(compare_runs(policies))


def test_a_front_s_accuracy_lies_in_its_interval_where_failures_gather_on_some_tasks() -> None:
    hard = [1.0, None, None, None]
    rows = {
        name: {
            (str(task), trial): made_row(str(task), value, trial=trial, policy=name)
            for task in range(40)
            for trial, value in enumerate(hard if name == "a" and task % 2 else [0.0] * 4)
        }
        for name in "ab"
    }
    made = frontier(rows)
    assert made is not None
    one = made.points[0]
    assert (one.accuracy, made.trials, made.left_out) == (0.5, 100, 60)
    assert one.interval.low < one.accuracy < one.interval.high
    assert made.may_be_best == ()  # b was never right


def test_what_was_chosen_is_shown_with_the_chance_of_the_choice() -> None:
    """Two policies that hardly differ, and one that is far behind and dear."""
    rng = random.Random(5)
    made = front_of({
        "one": [(float(rng.random() < 0.6), 1) for _ in range(60)],
        "other": [(float(rng.random() < 0.6), 1) for _ in range(60)],
        "behind": [(0, 9) for _ in range(60)],
    })  # fmt: skip
    points = {p.policy: p for p in made.points}
    (rival,) = made.may_be_best
    assert {made.best_single, rival} == {"one", "other"}
    assert points["one"].front_share + points["other"].front_share >= 1.0
    assert points["behind"].front_share == 0.0
    alone = share_of([TaskTally(0, 0, 1, 1)] * 60).interval
    assert points["behind"].interval.high > alone.high  # it holds together with the two others


def test_many_policies_are_compared_with_p_of_all() -> None:
    runs = [NamedRun("one", some([0] * 8) + some([1] * 8, policy="b") + some([1] * 7 + [0], policy="c"))]
    (section,) = compare_runs(runs).sections
    assert [(c.p, c.p_of_all) for c in section.comparisons] == [(2 / 256, 4 / 256), (2 / 128, 2 / 128)]
    assert "p of all" in comparison_text(compare_runs(runs))


def test_trainings_are_one_policy_whose_interval_holds_another_training() -> None:
    base = some([1, 0] * 20, cents=1.0)
    runs = [NamedRun("base", base)]
    for seed, right in enumerate(([1, 0] * 20, [1, 1] * 20, [1, 0, 1, 1] * 10)):
        runs.append(NamedRun(f"seed-{seed}", some(right, cents=1.0 + seed, policy=f"trained-{seed}")))
    trained = [f"trained-{seed}" for seed in range(3)]
    (section,) = compare_runs(runs, seeds={"trained": trained}).sections
    (found,) = section.comparisons
    assert (found.left, found.right, found.pairs) == ("base: cheap", "seed-0: trained", 40)
    assert found.accuracy is not None
    assert found.cents is not None
    assert (found.accuracy.right, found.accuracy.difference) == (pytest.approx(0.75), pytest.approx(0.25))
    reach = 4.303 * 1.0 / 3**0.5  # bills of 1, 2 and 3 cents on every task
    assert found.cents.interval.high == pytest.approx(1 + reach, rel=0.01)
    single = compare_pairs("base: cheap", base, "one", [replace(row, policy="one") for row in runs[2].rows])
    assert single.accuracy is not None
    assert found.accuracy.interval.low < 0 < single.accuracy.interval.low  # these differ; another might not
    assert (found.p, found.p_of_all) == (None, None)  # the sign test knows of no other training
    assert single.p is not None
    with pytest.raises(ConfigError, match="no policy 'trained'; valid: cheap"):
        compare_runs(runs, "trained", seeds={"trained": trained})
    assert section.front is not None
    assert [p.policy for p in section.front.points] == ["base: cheap", "seed-0: trained"]
    with pytest.raises(ConfigError, match="no policy 'gone'"):
        compare_runs(runs, seeds={"trained": ["trained-0", "gone"]})


def test_trainings_that_differ_much_are_known_to_no_more_than_is_possible() -> None:
    rows = some([1, 0] * 20)
    for seed, right in enumerate(([0] * 40, [1] * 40)):
        rows += some(right, policy=f"trained-{seed}")
    seeds = {"trained": ["trained-0", "trained-1"]}
    (section,) = compare_runs([NamedRun("run", rows)], seeds=seeds).sections
    (found,) = section.comparisons
    assert found.accuracy is not None
    assert found.accuracy.interval == Interval(-1.0, 1.0)
    assert section.front is not None
    assert section.front.points[1].interval == Interval(0.0, 1.0)
    table = comparison_text(compare_runs([NamedRun("run", rows)], seeds=seeds))
    assert "-100.0..+100.0" in table
    # What was not a training keeps its p, corrected for those that have one.
    (section,) = compare_runs([NamedRun("run", [*rows, *some([1] * 40, policy="other")])], seeds=seeds).sections
    assert [(one.right, one.p == one.p_of_all is not None) for one in section.comparisons] == [
        ("other", True), ("trained", False),
    ]  # fmt: skip
    # Where the first run has trainings alone, they are its policy.
    runs = [NamedRun("run", rows[40:]), NamedRun("base", rows[:40])]
    for against in ("", "trained"):
        (section,) = compare_runs(runs, against, seeds=seeds).sections
        assert [(one.right, one.left) for one in section.comparisons] == [("base: cheap", "run: trained")]


@pytest.mark.parametrize(
    ("seeds", "refused"),
    [
        ({"a": ["one", "two"], "b": ["two", "three"]}, "'two' is a training of 'a' and of 'b'"),
        ({"three": ["one", "two"]}, "'three' is a policy of these runs"),
        ({"a": ["one"]}, "'a' is one training, 'one'; name two or more"),
        ({"a": ["one", "one"]}, "'a' is one training"),
        ({"a": ["one", "four"]}, "'four' was played in first, copy, and would count as 2 trainings"),
    ],
)
def test_trainings_that_would_be_counted_twice_or_lost_are_refused(seeds: dict[str, list[str]], refused: str) -> None:
    rows = [row for policy in ("one", "two", "three", "four") for row in some([1, 0], policy=policy)]
    runs = [NamedRun("first", rows), NamedRun("copy", some([1, 0], policy="four"))]
    with pytest.raises(ConfigError, match=refused):
        compare_runs(runs, seeds=seeds)
    (section,) = compare_runs(runs, seeds={"a": ["one", "two"]}).sections
    assert [one.right for one in section.comparisons] == ["first: four", "copy: four", "first: a"]


def test_what_is_not_known_for_one_is_left_out_for_all_and_said() -> None:
    made = front_of({"a": [(1, 1), (None, 1), (0, 1)], "b": [(1, 2), (0, 2), (1, 2)]})
    assert (made.trials, made.left_out) == (2, 1)
    assert [(p.accuracy, p.low, p.high) for p in made.points] == [
        (0.5, pytest.approx(1 / 3), pytest.approx(2 / 3)), (1.0, pytest.approx(2 / 3), pytest.approx(2 / 3)),
    ]  # fmt: skip
    assert frontier(played({"a": [(None, 1)], "b": [(1, 1)]})) is None
    assert frontier({}) is None


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
    assert (
        effects([*frugal, *(replace(row, preference={}, env="HLE-v0") for row in frugal)])["frugal", "usd"].followed
        == 0
    )
    assert (only.env, only.preference, only.reference, only.measure) == ("HLE-v0", "frugal", "none", "usd")
    assert (only.tasks, only.left_out, only.before, only.after) == (4, 0, pytest.approx(4.0), pytest.approx(1.0))
    assert only.followed == pytest.approx(0.75)
    assert (only.interval.low, only.interval.high) == (pytest.approx(0.75), pytest.approx(0.75))
    assert only.points == pytest.approx(-0.25)


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


@pytest.mark.parametrize("table", ["comparison", "figures", "paper"])
def test_a_run_without_a_trial_is_refused_and_not_an_empty_table(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").touch()
    assert compare.main([str(tmp_path), "--table", table]) == 2
    assert f"{tmp_path} has no trial that was played; go on with resume=True" in capsys.readouterr().err
    assert report.main([str(tmp_path)]) == 0  # its page shows what is there
    assert f"{tmp_path} has no trial that was played yet" in capsys.readouterr().err
