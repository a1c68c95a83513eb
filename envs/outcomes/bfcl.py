"""Results of the Berkeley Function-Calling Leaderboard: tool calls, with tokens and seconds of each call of a model.

    result/MODEL/.../BFCL_v4_CATEGORY_result.json       {"id": ..., "input_token_count": [[...]], "latency": [[...]]}
    score/MODEL/.../BFCL_v4_CATEGORY_score.json         a line of totals, then the answers that were wrong

A row's calls are summed. Its seconds are the model's alone. Without a score file a row is not graded. Checked on
HuanzhiMao/BFCL-Result (2025-12-16: versions 4; 2024-12-29: versions 3). Scores of versions 3 number the wrong answers
from 1 and name them in their prompt; where they do not, and wherever a score file does not fit its results, nothing is
graded by it. The results of before version 3 have other names and are not read. Answers that ended in an error of the
provider are graded as the leaderboard does it: wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.files import Row, counted, found, json_lines
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a folder of BFCL's with result/MODEL in it"
_FILES = ("result/*/**/BFCL_v*_result.json",)


class _Answer(NamedTuple):
    name: str
    measures: Mapping[str, Any]


def read_bfcl(folder: Path) -> Outcomes:
    """The answers of all models. A family is a category; what only fills a memory for later tasks is left out."""
    root = _root(folder)
    made = OutcomesBuilder(str(root))
    for path in found(root, _FILES, EXPECTED):
        category = re.sub(r"^BFCL_v\d+_|_result\.json$", "", path.name)
        answers = [_answer(row, where) for where, row in json_lines(path, "an answer", ("id", "result"))]
        if category.endswith("_prereq"):
            made.leave_out("rows that only fill a memory", len(answers))
            continue
        wrong = _wrong(root / "score" / _score_name(path.relative_to(root / "result")), answers, made)
        model = path.relative_to(root / "result").parts[0]
        for answer in answers:
            success = None if wrong is None else answer.name not in wrong
            task = answer.name if answer.name.startswith(category) else f"{category}/{answer.name}"
            made.add(task, model, success, family=category, run="1", **answer.measures)
    return made.made()


def _root(folder: Path) -> Path:
    """The folder that has result/ in it."""
    if folder.name == "result":
        return folder.parent
    dated = sorted(path.parent.name for path in folder.glob("*/result") if path.is_dir())
    if (folder / "result").is_dir() or not dated:
        return folder
    if len(dated) > 1:
        raise ConfigError(f"{folder} has results of several dates ({', '.join(dated)}); name one, such as {dated[-1]}")
    return folder / dated[0]


def _score_name(path: Path) -> Path:
    return path.with_name(path.name.removesuffix("_result.json") + "_score.json")


def _answer(row: Row, where: str) -> _Answer:
    names = (("input", "input_token_count"), ("output", "output_token_count"), ("seconds", "latency"))
    return _Answer(str(row["id"]), {name: counted(row.get(key), where) for name, key in names})


def _wrong(path: Path, answers: list[_Answer], made: OutcomesBuilder) -> set[str] | None:
    """The names of wrong answers; None where nobody graded them, or the grades are of other results."""
    if not path.is_file():
        return None
    lines = (row for _, row in json_lines(path, "a grade", ()))
    total: Row = next(lines, {})
    wrong = {_graded(row) for row in lines}
    missed = _number(total.get("total_count")) - _number(total.get("correct_count"))
    names = {answer.name for answer in answers}
    if _number(total.get("total_count")) != len(answers) or len(wrong) != missed or not wrong <= names:
        made.leave_out("grades of score files that do not fit their results", len(answers))
        return None
    return wrong


def _graded(row: Row) -> str:
    prompt = row.get("prompt")
    named = prompt.get("id") if isinstance(prompt, Mapping) else None
    return str(named if named is not None else row.get("id"))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1
