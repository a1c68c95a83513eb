"""A run over GAIA as its leaderboard takes it: a line for each task with its answer and the trace that led to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import grouped
from toolorchestra.agents.evaluation.run_files import PlayedRow, RunFiles
from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.base.errors import ConfigError

SUBMISSION = "submission.jsonl"


def gaia_tasks(run: RunFiles) -> dict[str, PlayedRow | None]:
    """Each task's first trial that ended; None where none did. One policy's trials alone can be submitted."""
    cells = {cell: played for cell, played in run.cells.items() if cell[0].startswith("GAIA-v0")}
    if len(cells) != 1:
        found = ", ".join(" ".join(cell) for cell in run.cells)
        raise ConfigError(f"one policy over GAIA-v0 expected, the run has: {found}; name one", command_line="--policy")
    by_task = grouped(next(iter(cells.values())), lambda one: one.row.task)
    return {task: next((one for one in some if one.row.status == "ended"), None) for task, some in by_task.items()}


def _submitted(one: PlayedRow) -> dict[str, Any]:
    task = one.row.task.rpartition("/")[2]
    return {"task_id": task, "model_answer": _answer(one), "reasoning_trace": _trace(one)}


def _answer(one: PlayedRow) -> str:
    return final_answer(str(one.row.evidence.get("answer") or ""))


def _trace(one: PlayedRow) -> str:
    said = (f"{message['role']}: {message['content']}" for message in one.trajectory.get("messages", ()))
    return "\n\n".join(said)


def write_gaia(run: RunFiles, out: Path) -> list[str]:
    """Write it into a folder, and say what it holds."""
    tasks = gaia_tasks(run)
    rows = [_submitted(one) for one in tasks.values() if one is not None]
    out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (out / SUBMISSION).write_text(lines, encoding="utf-8")
    empty = sum(not row["model_answer"] for row in rows)
    told = [f"{SUBMISSION}: {len(rows)} tasks, {empty} without an answer"]
    if lacking := len(tasks) - len(rows):
        told.append(f"{lacking} of {len(tasks)} tasks failed or were cut, and are left out")
    return told
