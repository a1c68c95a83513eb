"""Runs of mcpmark: agentic tasks on files, GitHub, Notion, a browser and a database. Two layouts are read:

    task_results/CATEGORY__TASK.json                         a clone of eval-sys/mcpmark-experiments
    MODEL__SERVICE/run-1/CATEGORY__TASK/meta.json            your own runs, as eval-sys/mcpmark writes them

The first was checked on the repository itself (8f674f0, 2025-12-15: 127 tasks, 39 models, 19,431 runs); the second on
the program that writes it, not on files that it wrote.

Reasoning tokens are in the output of most models, and beside it in some runs of xAI's. A run's total says which. Where
it does not, a model with a run that has more reasoning than output counts them apart, and so do its maker's others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.outcomes.files import Row, counted, found, json_of, with_keys
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a clone of mcpmark-experiments or a folder of mcpmark's runs"
_SAME_SERVICE = {"playwright_webarena": "playwright"}


class _Run(NamedTuple):
    where: str
    task: str
    service: str
    model: str
    name: str
    success: Any
    seconds: Any
    tokens: Row


def read_mcpmark(folder: Path) -> Outcomes:
    """The runs of a folder; a task's family is its service."""
    made = OutcomesBuilder(str(folder))
    runs = _published if (folder / "task_results").is_dir() else _own
    apart = {_maker(run.model) for run in runs(folder) if _counts(run)[2] > _counts(run)[1]}
    text_of = _texts(folder)
    for run in runs(folder):
        made.add(
            run.task,
            run.model,
            run.success,
            family=_SAME_SERVICE.get(run.service, run.service),
            run=run.name,
            text=text_of(run.task),
            seconds=run.seconds,
            **_tokens(run, _maker(run.model) in apart),
        )
    return made.made()


def _published(folder: Path) -> Iterator[_Run]:
    for path in found(folder, ("task_results/*.json",), EXPECTED):
        whole = with_keys(json_of(path, EXPECTED), str(path), "a task's results", ("task", "service", "models"))
        for model, told in with_keys(whole["models"], f"{path}, models", "results by model", ()).items():
            for row in with_keys(told, f"{path}, {model}", "a model's results", ("runs",))["runs"]:
                where = f"{path}, {model}"
                run = with_keys(row, where, "a run", ("run", "success", "token_usage"))
                seconds = run.get("agent_execution_time", run.get("execution_time"))
                yield _Run(
                    where, whole["task"], whole["service"], model, run["run"], run["success"], seconds,
                    run["token_usage"] or {},
                )  # fmt: skip


def _own(folder: Path) -> Iterator[_Run]:
    for path in found(folder, ("*__*/run-*/*__*/meta.json", "*/*__*/run-*/*__*/meta.json"), EXPECTED):
        needed = ("execution_result", "agent_execution_time", "token_usage")
        told = with_keys(json_of(path, EXPECTED), str(path), "a run's meta.json", needed)
        result = with_keys(told["execution_result"], f"{path}, execution_result", "how a run ended", ("success",))
        task, run, of = path.parent.name, path.parent.parent.name, path.parent.parent.parent.name
        model, _, service = of.rpartition("__")
        yield _Run(
            str(path), task, service, model, run, result["success"], told["agent_execution_time"],
            told["token_usage"] or {},
        )  # fmt: skip


def _texts(folder: Path) -> Callable[[str], str]:
    """What a task asks, where the clone has it."""
    read: dict[str, str] = {}

    def text_of(task: str) -> str:
        if task not in read:
            path = folder / "tasks" / f"{task.partition('__')[2]}.json"
            told = with_keys(json_of(path, "a task"), str(path), "a task", ()) if path.is_file() else {}
            read[task] = str(told.get("instruction") or "")
        return read[task]

    return text_of


def _maker(model: str) -> str:
    """The first word of a model's name, without a number: gpt, grok, claude."""
    return re.split(r"[^a-z]", model.lower().rpartition("/")[2])[0]


def _counts(run: _Run) -> tuple[float, float, float, float]:
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "total_tokens")
    entered, written, thought, total = (counted(run.tokens.get(name), run.where) or 0 for name in names)
    return entered, written, thought, total


def _tokens(run: _Run, apart: bool) -> dict[str, float]:
    """Input, output without reasoning, and reasoning; nothing where nothing was counted."""
    entered, written, thought, total = _counts(run)
    if not entered and not written:
        return {}
    if total in (entered + written, entered + written + thought) and thought <= written:
        apart = total > entered + written
    known = {"input": entered, "output": written if apart else written - thought}
    return known if run.tokens.get("reasoning_tokens") is None else {**known, "reasoning": thought}
