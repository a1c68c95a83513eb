"""Rows of an evaluation made up for tests: few fields said, the others plain."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import ROWS, EvaluationRow, line_of

SHEET = "paper-2025-11"


def made_row(task: str, right: float | None = 1.0, **fields: Any) -> EvaluationRow:
    """A trial; `cents` are the agent's, one third of them the orchestrator's, `minutes` its time."""
    cents, minutes = fields.pop("cents", 3.0), fields.pop("minutes", 1.0)
    nano = round(cents * 10_000_000)
    plain: dict[str, Any] = {
        "env": "HLE-v0",
        "split": "test",
        "policy": "cheap",
        "trial": 0,
        "seed": 7,
        "status": "ended" if right is not None else "failed",
        "elapsed_ns": round(minutes * 60_000_000_000),
        "nano_usd_by_role": {"orchestrator": nano // 3, "expert": nano - nano // 3},
        "sheet": SHEET,
    }
    return EvaluationRow(task=task, right=right, **{**plain, **fields})


def write_run(folder: Path, rows: Iterable[EvaluationRow]) -> Path:
    """A run's folder with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ROWS).write_bytes(b"".join(map(line_of, rows)))
    return folder
