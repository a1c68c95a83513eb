"""A run's rows as other programs read them: CSV, JSON, Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.summary_tables import csv_text, number, piped

_BY_KEY = {
    "nano_usd_by_role": "nano_usd_of_role_",
    "nano_usd_by_tool": "nano_usd_of_tool_",
    "nano_usd_by_model": "nano_usd_of_model_",
    "tokens": "tokens_",
    "calls": "calls_",
    "models": "model_of_",
    "groups": "group_",
}
"""What a row has by key becomes a column a key."""


def rows_as_csv(rows: Sequence[EvaluationRow]) -> str:
    """A line a row. What is nested otherwise stands as JSON in its cell."""
    flat = [_flat_row(row) for row in rows]
    names = list(dict.fromkeys(name for one in flat for name in one))
    return csv_text([names, *([one.get(name, "") for name in names] for one in flat)])


def rows_as_json(rows: Sequence[EvaluationRow]) -> str:
    """The rows as a JSON array, an object for each row."""
    return json.dumps([asdict(row) for row in rows], allow_nan=False, indent=1, default=str)


def rows_as_markdown(rows: Sequence[EvaluationRow]) -> str:
    """A table of what a person looks for first."""
    head = ["env", "split", "policy", "task", "trial", "status", "right", "¢", "min", "turns", "calls", "failure"]
    return piped([head, *map(_cells, rows)])


def _cells(row: EvaluationRow) -> list[str]:
    calls = ", ".join(f"{key} {count}" for key, count in row.calls.items())
    right = "-" if row.right is None else f"{row.right:g}"
    bill = [number(100 * row.agent_usd), number(row.seconds / 60)]
    return [
        row.env, row.split, row.policy, row.task, str(row.trial), row.status, right, *bill, str(row.turns), calls,
        row.failure,
    ]  # fmt: skip


def _flat_row(row: EvaluationRow) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in asdict(row).items():
        if name in _BY_KEY:
            flat |= _columns(_BY_KEY[name], value)
        elif isinstance(value, Mapping):
            flat[name] = json.dumps(value, default=str) if value else ""
        else:
            flat[name] = "" if value is None else value
    return flat


def _columns(prefix: str, values: Mapping[str, Any]) -> dict[str, object]:
    return {
        f"{prefix}{key or 'orchestrator'}": json.dumps(value) if isinstance(value, list | tuple) else value
        for key, value in values.items()
    }
