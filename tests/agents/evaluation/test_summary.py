"""The figures of rows, against what a person works out of the same rows; and their tables."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.evaluation.made_rows import made_row
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.statistics import Interval, wilson
from toolorchestra.agents.evaluation.summary import PlannedTrials, read_planned, summarise, unknown_note
from toolorchestra.agents.evaluation.summary_tables import (
    as_markdown,
    as_text,
    piped,
)
from toolorchestra.envs.base.errors import ConfigError

CELL = ("HLE-v0", "test", "cheap")


def test_money_time_and_calls_are_means_of_what_ended() -> None:
    rows = [
        made_row("a", cents=1.0, minutes=2.0, calls={"answer-1": 2, "search": 1}, models={"answer-1": "gpt-5"}),
        made_row("b", 0.0, cents=3.0, minutes=4.0, calls={"answer-2": 1}, models={"answer-2": "qwen"}, turns=4),
        made_row("c", None, cents=8.0, minutes=90.0),
    ]
    (figures,) = summarise(rows).policies
    assert figures.cents is not None
    assert figures.minutes is not None
    assert (figures.cents.mean, figures.cents.median) == (pytest.approx(2.0), pytest.approx(2.0))
    assert figures.cents.p95 == pytest.approx(2.9)
    assert (figures.minutes.mean, figures.turns) == (pytest.approx(3.0), 2.0)
    assert figures.calls == {"answer-1": 1.0, "answer-2": 0.5, "search": 0.5}
    assert figures.calls_by_model == {"gpt-5": 1.0, "qwen": 0.5}
    assert figures.entropy == pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))
    assert (figures.most_used, figures.most_used_share) == ("gpt-5", pytest.approx(2 / 3))
    assert figures.usd_spent == pytest.approx(0.12)
    # all 12 cents bought one solved task, or two if the failed one would have been
    assert (figures.cents_per_solved.low, figures.cents_per_solved.high) == (pytest.approx(6.0), pytest.approx(12.0))


def test_requests_without_a_good_reply_are_counted_by_model() -> None:
    rows = [
        made_row("a", replies={"gpt-5": [3, 1, 0, 1, 0], "gpt-5-mini": [4, 0, 0, 0, 0]}),
        made_row("b", None, replies={"gpt-5": [1, 0, 1, 0, 0]}),
        made_row("a", policy="other"),
    ]
    summary = summarise(rows)
    assert summary.policies[0].replies["gpt-5"] == (4, 1, 1, 1, 0)
    table = as_text(summary).split("without a good reply")[1].splitlines()
    assert table[0].split() == ["model", "requests", "refused", "%", "failed", "%", "empty", "%", "cut", "%"]
    assert table[1].split() == ["cheap", "gpt-5", "4", "25.0", "25.0", "25.0", "0.0"]
    assert "gpt-5-mini" not in as_text(summary)
    counts = summary.to_json()["policies"][0]["replies"]["gpt-5-mini"]
    assert counts == {"asked": 4, "refused": 0, "failed": 0, "empty": 0, "cut": 0}


def test_judges_and_users_stand_apart() -> None:
    roles = {"orchestrator": 10_000_000, "expert": 20_000_000, "judge": 50_000_000, "user": 30_000_000}
    tokens = {"orchestrator": [100, 50, 10, 5], "judge": [7, 0, 1, 0]}
    (figures,) = summarise([made_row("a", nano_usd_by_role=roles, tokens=tokens, estimated=2)]).policies
    assert figures.cents is not None
    assert figures.cents.mean == pytest.approx(3.0)
    assert figures.cents_by_role == {"orchestrator": 1.0, "expert": 2.0, "judge": 5.0, "user": 3.0}
    assert figures.tokens["orchestrator"] == {"input": 100, "cached": 50, "output": 10, "reasoning": 5}
    assert figures.usd_spent == pytest.approx(0.11)
    assert summarise([made_row("a", estimated=2)]).notes == [
        "The tokens of 2 charges were estimated, since nobody counted them."
    ]


def test_what_is_not_known_makes_bounds_and_is_said() -> None:
    rows = [made_row(str(n)) for n in range(26)]
    rows += [made_row(f"f{n}", None) for n in range(4)] + [made_row(f"c{n}", None, status="cut") for n in range(3)]
    summary = summarise(rows, {CELL: PlannedTrials(40)})
    (figures,) = summary.policies
    assert figures.trials.unplayed == 7
    assert figures.trials.unknown == 14
    assert figures.accuracy.value is None
    assert (figures.accuracy.low, figures.accuracy.high) == (0.65, 1.0)
    assert figures.accuracy.interval == Interval(wilson(0.65, 40).low, 1.0)
    assert summary.notes == [
        "HLE-v0 test, cheap: 26 right, 14 not known (4 failed, 3 cut, 7 not played), of 40: 65-100 %. "
        "Of the 33 that were played: 78.8-100 % (62.2-100)."
    ]
    assert unknown_note(summarise(rows[:26]).policies[0]) == ""


def test_several_trials_of_a_task() -> None:
    outcomes = {"a": [1, 1], "b": [1, 0], "c": [0, 0]}
    rows = [made_row(task, float(v), trial=k) for task, values in outcomes.items() for k, v in enumerate(values)]
    (figures,) = summarise(rows).policies
    assert (figures.tasks, figures.accuracy.trials, figures.accuracy.value) == (3, 6, 0.5)
    assert {k: v.low for k, v in figures.pass_hat.items()} == {1: 0.5, 2: pytest.approx(1 / 3)}
    assert {k: v.low for k, v in figures.pass_at.items()} == {1: 0.5, 2: pytest.approx(2 / 3)}
    plain = wilson(0.5, 6)
    assert figures.accuracy.interval.high > plain.high
    (short,) = summarise(rows, {CELL: PlannedTrials(10)}).policies  # two more tasks of two trials each
    assert (short.trials.unplayed, short.pass_hat[2]) == (4, Interval(1 / 5, 3 / 5))
    (lacking,) = summarise(rows[:-1], {CELL: PlannedTrials(6)}).policies
    assert (lacking.tasks, lacking.pass_hat[2].low) == (3, pytest.approx(1 / 3))


def test_what_is_not_known_of_pass_k_is_its_bounds_where_the_later_trials_were_not_played() -> None:
    rows = [made_row(task, 1.0, trial=k) for task in "ab" for k in (0, 1)]
    (figures,) = summarise(rows, {CELL: PlannedTrials(8, each=4)}).policies
    assert figures.pass_hat == {
        1: Interval(0.5, 1.0), 2: Interval(pytest.approx(1 / 6), 1.0), 3: Interval(0.0, 1.0), 4: Interval(0.0, 1.0)
    }  # fmt: skip
    (more,) = summarise(rows[:2], {CELL: PlannedTrials(8, each=4)}).policies  # another task of four trials
    assert more.pass_hat[2] == Interval(pytest.approx(1 / 12), 1.0)
    assert summarise([], {CELL: PlannedTrials(8, each=4)}).policies[0].pass_hat[4] == Interval(0.0, 1.0)


def test_a_trial_played_again_counts_once() -> None:
    (figures,) = summarise([made_row("a", None), made_row("a", 1.0)]).policies
    assert (figures.trials.ended, figures.trials.failed, figures.accuracy.value) == (1, 0, 1.0)


def test_groups_of_every_kind() -> None:
    rows = [
        made_row("a", 1.0, groups={"subject": "logic", "level": "2"}),
        made_row("b", 0.0, groups={"subject": "logic", "level": "1"}),
        made_row("c", None, groups={"subject": "chemistry", "level": "1"}),
    ]
    summary = summarise(rows, {CELL: PlannedTrials(5)})
    found = {figures.group: figures for figures in summary.groups}
    assert list(found) == ["level: 1", "level: 2", "subject: chemistry", "subject: logic"]
    assert found["subject: logic"].accuracy.value == 0.5
    assert found["level: 1"].accuracy.value is None
    assert found["level: 1"].trials.planned == 2
    assert "2 trials were not played; the groups are without them" in summary.notes[1]


def test_nothing_solved_costs_without_bound() -> None:
    summary = summarise([made_row("a", 0.0)])
    assert summary.policies[0].cents_per_solved.high == math.inf
    plain = summary.to_json()["policies"][0]["cents_per_solved"]
    assert plain == {"low": None, "high": None, "interval": [None, None]}


def test_the_preference_score_by_hand() -> None:
    preference = {
        "weights": {"outcome": 1.0, "usd": 0.5, "seconds": 0.25, "answer-1": 1.0},
        "sentence": "",
        "kind": "x",
    }
    common = {"preference": preference, "policy": "base"}
    base = [
        made_row("a", 1.0, cents=8.0, minutes=6.0, calls={"answer-1": 2}, **common),
        made_row("b", 1.0, **common),
        made_row("c", None, **common),
    ]
    mine = [
        made_row("a", 1.0, cents=2.0, minutes=3.0, calls={"answer-1": 1}, preference=preference),
        made_row("b", 0.0, preference=preference),
        made_row("c", 1.0, preference=preference),
    ]
    by_policy = {figures.policy: figures for figures in summarise([*base, *mine], baseline="base").policies}
    score = by_policy["cheap"].preference
    assert score is not None
    # a: 1 x 1/1 + .5 x 8/2 + .25 x 6/3 + 1 x 1/2 = 4; b was not solved; c has no baseline
    assert (score.mean, score.pairs, score.left_out) == (pytest.approx(2.0), 2, 1)
    assert summarise(mine).policies[0].preference is None
    with pytest.raises(ConfigError, match="no rows of a policy 'nobody'"):
        summarise(mine, baseline="nobody")


def test_what_was_planned_is_read_from_the_manifest(tmp_path: Path) -> None:
    assert read_planned(tmp_path) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"planned": [[*CELL, 12]]}))
    assert read_planned(tmp_path) == {CELL: PlannedTrials(12)}
    tasks = {"HLE-v0 test": ["a", "b", "c"]}
    (tmp_path / "manifest.json").write_text(json.dumps({"planned": [[*CELL, 12]], "tasks": tasks}))
    assert read_planned(tmp_path) == {CELL: PlannedTrials(12, each=4)}
    (tmp_path / "manifest.json").write_text(json.dumps({"seed": 1}))
    assert read_planned(tmp_path) is None
    for broken, says in (
        ("[]", "an object expected"),
        ("{", "an object expected"),
        ('{"planned": [["HLE-v0", 3]]}', r"planned: \[\[environment"),
    ):
        (tmp_path / "manifest.json").write_text(broken)
        with pytest.raises(ConfigError, match=says):
            read_planned(tmp_path)


ROWS = st.lists(
    st.builds(
        lambda task, trial, right, cents, cut: replace(
            made_row(task, right, trial=trial, cents=cents), **({"status": "cut"} if right is None and cut else {})
        ),
        st.sampled_from("abcdef"),
        st.integers(0, 3),
        st.sampled_from([None, 0.0, 0.5, 1.0]),
        st.integers(0, 50),
        st.booleans(),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(ROWS, st.integers(0, 30), st.randoms())
def test_any_rows_make_strict_json_and_their_order_does_not_matter(
    rows: list[EvaluationRow], planned: int, chance: random.Random
) -> None:
    once = {row.key: row for row in rows}.values()
    shuffled = list(once)
    chance.shuffle(shuffled)
    made = [summarise(some, {CELL: PlannedTrials(planned)}) for some in (once, shuffled)]
    json.dumps(made[0].to_json(), allow_nan=False)
    first, second = (one.policies[0] for one in made)
    assert first.trials.planned == max(planned, len(once))
    assert first.trials == second.trials
    assert first.accuracy == second.accuracy
    assert first.cents_per_solved == second.cents_per_solved


def rows() -> list[EvaluationRow]:
    made = []
    for policy, cents in (("cheapest-of-all-the-policies-there-are", 0.4), ("strongest", 123.456), ("oracle", 11.2)):
        for n in range(12):
            models = {"answer-1": "a-model/with-a-long-name-2025-08-07", "search-1": "gpt-5"}
            fields = {"policy": policy, "groups": {"subject": "number theory" if n % 2 else "logic"}, "models": models}
            tokens = {"orchestrator": [12_345, 0, 678, 90], "expert": [1, 2, 3, 4]}
            for trial in range(5):
                right = None if n == 0 else float((n + trial) % 3 > 0)
                calls = {"answer-1": 1, "search-1": n % 4}
                made.append(made_row(str(n), right, trial=trial, cents=cents * n, calls=calls, tokens=tokens, **fields))
    return made


def test_the_text_fits_a_terminal_of_120_columns() -> None:
    said = as_text(summarise(rows(), {("HLE-v0", "test", "oracle"): PlannedTrials(80)}))
    assert max(map(len, said.splitlines())) <= 120
    assert "HLE-v0 test" in said
    assert "pass^2" in said
    assert "20 not played" in said
    assert "a-model/wit…e-2025-08-07" in said


def test_long_names_that_differ_look_so() -> None:
    names = [f"checkpoint:runs/tiny-seed{seed}" for seed in range(3)]
    said = as_text(summarise([made_row("a", policy=name) for name in names]))
    assert [f"checkpoint:…s/tiny-seed{seed}" in said for seed in range(3)] == [True] * 3
    alike = [f"checkpoint:runs/{name}/of-last-night" for name in ("one", "two")]
    said = as_text(summarise([made_row("a", policy=name) for name in alike]))
    assert all(name in said for name in alike)


def test_markdown_keeps_strangers_names_in_their_cells() -> None:
    said = as_markdown(summarise([made_row("a", policy="x | <b>y</b>\n# z")]))
    assert "| x \\| \\<b>y\\</b> # z | 1 | 1 | 100.0 |" in said
    assert piped([["a", "b"], ["1", "2"]]).splitlines() == ["| a | b |", "| --- | ---: |", "| 1 | 2 |"]


def test_no_interval_of_bills_or_times_goes_below_0() -> None:
    rows = [made_row(str(n), nano_usd_by_role={"expert": 3**n}, elapsed_ns=7**n) for n in range(4)]
    (figures,) = summarise(rows).policies
    assert figures.cents is not None
    assert figures.minutes is not None
    assert figures.cents.interval.low == figures.minutes.interval.low == 0.0
