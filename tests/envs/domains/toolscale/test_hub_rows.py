"""Rows as Arrow leaves them become tau2's tasks again."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import hub_rows

ROW: dict[str, Any] = {
    "id": "17",
    "description": {"purpose": "x", "relevant_policies": None, "notes": None},
    "user_scenario": {"persona": None, "instructions": {"domain": "bank", "reason_for_call": "y"}},
    "initial_state": None,
    "evaluation_criteria": {
        "actions": [
            {
                "name": "set_period",
                "action_id": "17_0",
                "arguments": {
                    "club_id": None,
                    "start_date": datetime.datetime(2025, 3, 1),
                    "at": datetime.datetime(2025, 3, 1, 9, 30),
                    "card_id": "C1",
                },
            }
        ],
        "communicate_info": None,
    },
}


def test_nulls_and_timestamps_are_undone() -> None:
    (task,) = hub_rows.tasks([ROW])
    (action,) = task["evaluation_criteria"]["actions"]
    assert action["arguments"] == {"start_date": "2025-03-01", "at": "2025-03-01 09:30:00", "card_id": "C1"}
    assert task["evaluation_criteria"]["communicate_info"] == []
    json.dumps(task)


def test_a_line_separator_in_a_text_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {**ROW, "description": {"purpose": "a\u2028b"}, "evaluation_criteria": {"actions": []}}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    (task,) = hub_rows.tasks(path)
    assert task["description"] == {"purpose": "a\u2028b"}


def test_files_are_read_and_missing_databases_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, "evaluation_criteria": {"actions": []}}) + "\n", encoding="utf-8")
    rows = list(hub_rows.tasks(path))
    assert hub_rows.missing(rows, {}) == ["bank"]
    (tmp_path / "db.json").write_text("{}", encoding="utf-8")
    assert hub_rows.missing(rows, {"bank": tmp_path}) == ["bank"]
    (tmp_path / "policy.md").write_text("", encoding="utf-8")
    assert hub_rows.missing(rows, {"bank": tmp_path}) == []


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([{"id": 5}], "rows: row 1: 'id' expected, got 5"),
        ([{**ROW, "evaluation_criteria": {"actions": ["x"]}}], "row 1: action 0: an action has a name"),
        ("nowhere.json", "no file 'nowhere.json'"),
    ],
)
def test_wrong_rows_are_explained(rows: Any, seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(hub_rows.tasks(rows))
    assert seen in str(caught.value)
