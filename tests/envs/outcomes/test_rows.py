"""A table of outcomes refuses what contradicts itself, and never takes what is unknown for 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes import rows
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder


def built(*told: dict[str, Any]) -> Outcomes:
    made = OutcomesBuilder("here")
    for one in told:
        row: dict[str, Any] = {"task": "t", "model": "m", "success": True, **one}
        made.add(**row)
    return made.made()


def test_rows_come_by_task_model_and_run() -> None:
    table = built({"task": "b", "run": 2}, {"task": "a", "run": 1}, {"task": "b", "run": 1, "success": 0})
    assert table.tasks == ("b", "a")
    assert [*table.task] == [0, 0, 1]
    assert [*table.run] == [0, 1, 0]
    assert [*table.success] == [1, 0, 1]
    assert table.runs_were_named


def test_runs_without_a_name_are_numbered_as_they_come() -> None:
    table = built({"success": 0.25}, {"model": "n"}, {"success": 0.75})
    assert [*zip(table.model, table.run, table.success, strict=True)] == [(0, 0, 0.25), (0, 1, 0.75), (1, 0, 1)]
    assert not table.runs_were_named


def test_a_run_stands_there_once() -> None:
    with pytest.raises(ConfigError, match="two rows are of task 't', model 'm', run 'r1'"):
        built({"run": "r1"}, {"run": "r2"}, {"run": "r1"})


@pytest.mark.parametrize("first", ["r1", None])
def test_runs_are_named_everywhere_or_nowhere(first: str | None) -> None:
    with pytest.raises(ConfigError, match="row 2: some rows name their run and some do not"):
        built({"run": first}, {"run": None if first else "r1"})


@pytest.mark.parametrize("unknown", [None, "", " ", "none", "null"])
def test_what_is_not_said_is_unknown(unknown: object) -> None:
    table = built({"success": unknown, "seconds": unknown, "usd": unknown})
    assert math.isnan(table.success[0])
    assert all(math.isnan(column[0]) for column in table.measures.values())
    assert not table.known("usd")


def test_dollars_of_0_are_unknown_and_counted() -> None:
    table = built({"usd": 0}, {"usd": "0.0"}, {"usd": 0.5})
    assert table.zero_dollars == 2
    assert np.isnan(table.measures["usd"]).sum() == 2
    assert table.measures["usd"][2] == 0.5


def test_tokens_of_0_are_0() -> None:
    assert built({"output": 0}).measures["output"][0] == 0


def test_a_task_is_of_one_family() -> None:
    with pytest.raises(ConfigError, match="row 2: task 't' is of the family 'files' and here 'mail'"):
        built({"family": "files"}, {"family": "mail", "model": "n"})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"success": 1.5}, "success is true, false or a number from 0 to 1, got 1.5"),
        ({"success": "yes"}, "got 'yes'"),
        ({"success": math.nan}, "got nan"),
        ({"seconds": -1}, "seconds is a number from 0 up"),
        ({"seconds": math.inf}, "seconds is a number from 0 up"),
        ({"seconds": 10**400}, "seconds is a number from 0 up"),
        ({"seconds": "90 s"}, "got '90 s'"),
        ({"seconds": 604_801}, "seconds is at most 604,800, got 604801; if these are milliseconds"),
        ({"output": 2_000_000_000}, "these are tokens, not characters"),
        ({"usd": 250_000}, "if these are micro-dollars or cents"),
        ({"task": ""}, "a task and a model expected"),
        ({"model": ""}, "a task and a model expected"),
        ({"cents": 3}, "no measure 'cents'; valid: input, output, reasoning, seconds, usd"),
    ],
)
def test_a_wrong_value_is_refused_with_its_row(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="here, row 2") as refused:
        built({}, told)
    assert said in str(refused.value)


def test_a_table_without_rows_says_what_was_left_out() -> None:
    made = OutcomesBuilder("here")
    with pytest.raises(ConfigError, match=r"^here has no rows$"):
        made.made()
    made.leave_out("rows of several experts", 3)
    made.leave_out("rows of several experts")
    with pytest.raises(ConfigError, match="here has no rows to take: 4 rows of several experts"):
        made.made()


def test_what_is_left_out_stays_counted_in_a_choice() -> None:
    made = OutcomesBuilder("here")
    made.add("t", "m", True)
    made.add("u", "n", True)
    made.leave_out("calls that failed", 2)
    assert made.made().only(["n"]).left_out == {"calls that failed": 2}
    assert built({}).left_out == {}


def test_a_choice_of_models_and_tasks() -> None:
    table = built({"task": "a", "text": "A?"}, {"task": "b", "model": "n"}, {"task": "c", "model": "n", "success": 0})
    kept = table.only(["n"], {"b", "c"})
    assert (kept.tasks, kept.models, [*kept.success], kept.texts) == (("b", "c"), ("n",), [1, 0], {})
    with pytest.raises(ConfigError, match="no model 'o'"):
        table.only(["o"])
    with pytest.raises(ConfigError, match="no row is left of 3"):
        table.only(["m"], {"b"})


def test_more_rows_than_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 2)
    with pytest.raises(ConfigError, match="more than 2 rows; give some of its models or tasks"):
        built({}, {}, {})
