"""Results of LLMRouterBench (ynulihao/LLMRouterBench), as its collector writes them:

    results/bench/DATASET/SPLIT/MODEL/DATASET-SPLIT-MODEL-20250813_174512.json

with model_name, dataset_name, split, demo, and records of index, origin_query, prompt, prediction, score,
prompt_tokens, completion_tokens and cost. The published results are an archive outside the repository and were not at
hand: the format was checked on the programs that write and read it (0e267fb, 2026-01-30: data_collector/storage.py,
baselines/data_loader.py), not on a file. As there, the latest file of a model, dataset and split counts, and demo runs
do not. Completion tokens are taken as they are: reasoning is in them and unknown apart. Nothing is timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.files import Row, counted, found, json_of, with_keys
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "results of LLMRouterBench"
_NEEDED = ("model_name", "dataset_name", "split", "records")
_RECORD = ("index", "score", "prompt_tokens", "completion_tokens", "cost")


def read_llmrouterbench(folder: Path) -> Outcomes:
    """The results below a folder: a clone with its results, results/bench, or a part of it. A family is a dataset."""
    made = OutcomesBuilder(str(folder))
    asked: dict[str, int] = {}
    bench = next((at for at in (folder / "results" / "bench", folder / "bench") if at.is_dir()), folder)
    together = sorted(found(bench, ("**/*.json",), EXPECTED), key=lambda path: (path.parent, path.name))
    for _, files in groupby(together, key=lambda path: path.parent):
        taken = False
        for path in sorted(files, key=_when, reverse=True):
            told = with_keys(json_of(path, EXPECTED), str(path), EXPECTED, _NEEDED)
            if told.get("demo") or taken:
                why = "rows of runs that a later one replaced" if taken else "rows of demo runs"
                made.leave_out(why, len(told["records"]))
                continue
            taken = True
            for where, record in _records(told, path):
                _add(made, told, record, where, asked)
    return made.made()


def _when(path: Path) -> tuple[str, float]:
    stamp = re.search(r"(\d{8}_\d{6})\.json$", path.name)
    return (stamp.group(1) if stamp else "", path.stat().st_mtime)


def _records(told: Row, path: Path) -> Iterator[tuple[str, Row]]:
    for number, record in enumerate(told["records"], 1):
        where = f"{path}, record {number}"
        yield where, with_keys(record, where, "a record", _RECORD)


def _add(made: OutcomesBuilder, told: Row, record: Row, where: str, asked: dict[str, int]) -> None:
    used = {name: counted(record[key], where) for name, key in (("input", _RECORD[2]), ("output", _RECORD[3]))}
    if record["score"] is None and used["input"] is None and used["output"] is None:
        made.leave_out("calls that failed")
        return
    task = f"{told['dataset_name']}/{told['split']}/{record['index']}"
    text = _same_question(task, record.get("origin_query"), where, asked)
    made.add(
        task,
        told["model_name"],
        record["score"],
        family=told["dataset_name"],
        run="1",
        text=text,
        usd=record["cost"],
        **used,
    )


def _same_question(task: str, query: Any, where: str, asked: dict[str, int]) -> str:
    """The question. Raises ConfigError where another file has another one under its number."""
    text = query if isinstance(query, str) else str(query or "")
    if text and asked.setdefault(task, hash(text)) != hash(text):
        raise ConfigError(
            f"{where}: {task} asks another question here than in the files before; the dataset was changed between two "
            "collections, so keep the files of one of them"
        )
    return text
