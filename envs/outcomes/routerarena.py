"""Cached results of RouterArena (RouteWorks/RouterArena): single answers of models to its 8,400 questions.

    cached_results/MODEL.jsonl      {"global_index": "AIME_112", "llm_selected": "gpt-4o-mini", "success": true, ...}

`success` says that the call worked; the grade is evaluation_result.score, and is null where the repository keeps the
answers hidden: such rows count for their lengths alone. Grade them with its llm_evaluation/run.py where you can.
Checked on the repository (4714a9a, 2025-11-12: two models of 809 graded answers; 2fd498f: two models without grades).
Reasoning is in the output tokens where a provider counts it at all. Nothing is timed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolorchestra.envs.outcomes.files import Row, counted, found, json_lines, with_keys
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a clone of RouterArena with its cached results"
_NEEDED = ("global_index", "llm_selected", "success", "token_usage", "evaluation_result")


def read_routerarena(folder: Path) -> Outcomes:
    """The answers of all models. A family is a dataset: what stands before the first _ of a question's index."""
    made = OutcomesBuilder(str(folder))
    inner = folder / "cached_results"
    for path in found(inner if inner.is_dir() else folder, ("*.jsonl",), EXPECTED):
        seen: set[tuple[str, str, str]] = set()
        for where, row in json_lines(path, "a cached result", _NEEDED):
            key = (str(row["llm_selected"]), str(row["global_index"]), str(row.get("run_number") or 1))
            if not row["success"]:
                made.leave_out("calls that failed")
            elif key in seen:
                made.leave_out("answers that stand there twice")
            else:
                seen.add(key)
                _add(made, key, row, where)
    return made.made()


def _add(made: OutcomesBuilder, key: tuple[str, str, str], row: Row, where: str) -> None:
    model, task, run = key
    usage = with_keys(row["token_usage"] or {}, f"{where}, token_usage", "tokens", ())
    grade = with_keys(row["evaluation_result"] or {}, f"{where}, evaluation_result", "a grade", ())
    made.add(
        task,
        model,
        _score(made, grade.get("score")),
        family=task.partition("_")[0],
        run=run,
        text=str(row.get("question") or ""),
        input=counted(usage.get("input_tokens"), where),
        output=counted(usage.get("output_tokens"), where),
        usd=grade.get("inference_cost"),
    )


def _score(made: OutcomesBuilder, score: Any) -> Any:
    """Some of its metrics fall below 0, where no share of success is."""
    if isinstance(score, int | float) and score < 0:
        made.leave_out("grades below 0")
        return None
    return score
