"""What recordings are read from, by name. A form takes a path of the user's own copy; nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder, read_table

# -- files that somebody else wrote ------------------------------------------------------------------------------------


Row = Mapping[str, Any]


def found(folder: Path, patterns: Sequence[str], expected: str) -> list[Path]:
    """The files of a folder that fit one of the patterns, in order. Raises ConfigError where there are none."""
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if not files:
        there = ", ".join(sorted(one.name for one in folder.glob("*"))[:8]) or "nothing"
        raise ConfigError(
            f"{folder}: expected {expected}, with files {' or '.join(patterns)}; got a folder with {there}; check path "
            "and form (nothing is downloaded)"
        )
    return files


def json_of(path: Path, expected: str) -> Any:
    """Reads a JSON file. Raises ConfigError, which says what was `expected`, where it cannot be read or is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}; expected {expected}") from None
    except (ValueError, RecursionError) as err:
        raise ConfigError(_no_json(str(path), expected, err)) from None


def json_lines(
    path: Path, expected: str, needed: Sequence[str], torn: Callable[[], None] | None = None
) -> Iterator[tuple[str, Row]]:
    """Where each line is, and its object. `torn` is called in place of an error where the last line is broken off, as a
    kill leaves it."""
    try:
        file = path.open("rb")
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}; expected {expected} on each line") from None
    with file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as err:
                if torn is not None and not line.endswith(b"\n"):
                    torn()
                    return
                raise ConfigError(_no_json(where, expected, err)) from None
            yield where, with_keys(row, where, expected, needed)


def _no_json(where: str, expected: str, err: Exception) -> str:
    return (
        f"{where}: expected {expected} as JSON, got what is not ({err!s:.100}); it may be cut off, or a Git LFS "
        "pointer: fetch the file again"
    )


def with_keys(value: Any, where: str, expected: str, needed: Sequence[str]) -> Row:
    """The object. Raises ConfigError where it is none, or lacks a key."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected {expected}, a JSON object, got {type(value).__name__}; check the form")
    if missing := [name for name in needed if name not in value]:
        keys = ", ".join(map(str, [*value][:12])) or "none"
        raise ConfigError(
            f"{where}: expected {expected} with the keys {', '.join(needed)}; {', '.join(missing)} is missing, its "
            f"keys are: {keys}. Check the form, or give the rows as a table"
        )
    return value


# -- our own evaluations and trajectories ------------------------------------------------------------------------------


# A trial or an episode with one expert is an attempt of that expert at its task: with the expert's tokens, and the
# agent's dollars and seconds, in which an orchestrator's own share is. One with several experts, or with none, is
# nobody's; one that failed, was cut off or was left has no outcome. All of these are counted and left out.
FEEDBACK = "feedback.jsonl"
"""File of a server's folder: which answers were right."""
_OF_THE_AGENT = frozenset(REWARDED_ROLES)
_EVALUATED = ("env", "split", "policy", "task", "trial", "status", "right", "calls", "models", "tokens",
              "nano_usd_by_role", "elapsed_ns")  # fmt: skip
_EPISODE = ("task_id", "messages", "charges", "outcome", "totals")
_CLASSES = ("input", "cached", "output", "reasoning")


def _only_expert(experts: set[str], made: OutcomesBuilder) -> str | None:
    """The one expert that was asked; else the row is counted as left out."""
    if len(experts) == 1:
        return next(iter(experts))
    made.leave_out("rows of several experts" if experts else "rows without an expert")
    return None


def _family(told: Mapping[str, Any], other: str = "") -> str:
    """A task's subject or domain."""
    return next((str(told[name]) for name in ("subject", "domain") if told.get(name)), other)


def _own_tokens(counts: Sequence[Any]) -> dict[str, Any]:
    """Input, cached, output and reasoning, as measures. Nothing where nothing was counted."""
    entered, cached, written, thought = counts
    return {"input": entered + cached, "output": written, "reasoning": thought} if any(counts) else {}


def read_evaluation(path: Path) -> Outcomes:
    """The rows of a run. A family is the task's subject or domain, else its environment."""
    made = OutcomesBuilder(str(path))
    env_of: dict[str, str] = {}
    file = path if path.is_file() else found(path, ("rows.jsonl",), "the folder of an evaluation")[0]
    torn = partial(made.leave_out, "lines broken off at the end")
    for where, row in json_lines(file, "a row of an evaluation", _EVALUATED, torn):
        if row["status"] != "ended":
            made.leave_out("rows that failed or were cut")
        else:
            experts = {row["models"][key] for key, count in row["calls"].items() if count and key in row["models"]}
            if model := _only_expert(experts, made):
                _add_trial(made, row, model, where, env_of)
    return made.made()


def _add_trial(made: OutcomesBuilder, row: Row, model: str, where: str, env_of: dict[str, str]) -> None:
    env = env_of.setdefault(row["task"], row["env"])
    if env != row["env"]:
        raise ConfigError(
            f"{where}: task {row['task']!r} is of {env} and of {row['env']}; give the rows of one environment at a time"
        )
    spent = sum(row["nano_usd_by_role"].get(role, 0) for role in _OF_THE_AGENT)
    made.add(
        row["task"],
        model,
        row["right"],
        family=_family(row.get("groups") or {}, env),
        run=f"{row['split']}/{row['policy']}/{row['trial']}",
        seconds=row["elapsed_ns"] / NANO,
        usd=spent / NANO,
        **_own_tokens(row["tokens"].get("expert", (0, 0, 0, 0))),
    )


def read_recorded(path: Path) -> Outcomes:
    """The episodes of a file; of an evaluation's folder, of its trajectories.jsonl; of what a server wrote, of all its
    files, right where somebody rated the answer so."""
    made = OutcomesBuilder(str(path))
    served = sorted(path.glob("trajectories-*.jsonl")) if path.is_dir() else []
    broken = partial(made.leave_out, "lines broken off at the end")
    rated = {}
    if (path / FEEDBACK).is_file():
        of_feedback = json_lines(path / FEEDBACK, "a rating", ("request", "right"), broken)
        rated = {row["request"]: float(row["right"]) for _, row in of_feedback}
    files = served or [path / "trajectories.jsonl" if path.is_dir() else path]
    lines = (line for file in files for line in json_lines(file, "a trajectory", _EPISODE, broken))
    family_of: dict[str, str] = {}
    for number, (_, row) in enumerate(lines, 1):
        if row["outcome"] and row["outcome"].get("value") is None:  # nobody knew, when it was asked
            row = {**row, "outcome": {**row["outcome"], "value": rated.get(row.get("request"))}}
        if row.get("abandoned"):
            made.leave_out("episodes that were left")
        elif row.get("failed") or not row["outcome"] or row.get("truncated_by") == "spend_cap":
            made.leave_out("episodes that failed or were cut")
        elif row["outcome"].get("value", 0.0) is None:
            made.leave_out("answers that nobody rated")
        else:
            if model := _only_expert({c["item"] for c in row["charges"] if c["role"] == "expert"}, made):
                _add_episode(made, row, model, number, family_of)
    return made.made()


def _add_episode(made: OutcomesBuilder, row: Row, model: str, number: int, family_of: dict[str, str]) -> None:
    if family := _family(row.get("task") or {}):
        first = family_of.setdefault(row["task_id"], family)
        if family != first:  # who asks a served policy names it anew with each question
            made.leave_out("families beside the first that a task's rows name")
        family = first
    used = [charge["tokens"] for charge in row["charges"] if charge["role"] == "expert"]
    made.add(
        row["task_id"],
        model,
        row["outcome"]["value"],
        family=family,
        run=f"line {number}",
        text=_question(row),
        seconds=row["totals"]["seconds"],
        usd=sum(charge["nano_usd"] for charge in row["charges"] if charge["role"] in _OF_THE_AGENT) / NANO,
        **_own_tokens([sum(one[name] for one in used) for name in _CLASSES]),
    )


def _question(row: Row) -> str:
    """What the user said first. A preference stands in the system's message."""
    said = next((m.get("content") for m in row["messages"] if m.get("role") == "user"), "")
    return said if isinstance(said, str) else ""


# -- MCPMark -----------------------------------------------------------------------------------------------------------


# task_results/CATEGORY__TASK.json of a clone of eval-sys/mcpmark-experiments. Checked on the repository (8f674f0,
# 2025-12-15: 127 tasks, 39 models, 19,431 runs). Reasoning tokens are in the output of most models, and beside it in
# some runs of xAI's. A run's total says which. Where it does not, a model with a run that has more reasoning than
# output counts them apart, and so do its maker's others.
MCPMARK = "a clone of mcpmark-experiments"
_SAME_SERVICE = {"playwright_webarena": "playwright"}


def read_mcpmark(folder: Path) -> Outcomes:
    """The runs of a folder; a task's family is its service."""
    made, runs = OutcomesBuilder(str(folder)), list(_runs(folder))
    apart = {_maker(model) for _, model, run in runs if _counts(run)[2] > _counts(run)[1]}
    for whole, model, run in runs:
        service: str = whole["service"]
        made.add(
            whole["task"],
            model,
            run["success"],
            family=_SAME_SERVICE.get(service, service),
            run=run["run"],
            text=whole["text"],
            seconds=run.get("agent_execution_time", run.get("execution_time")),
            **_tokens(run, _maker(model) in apart),
        )
    return made.made()


def _runs(folder: Path) -> Iterator[tuple[Row, str, Row]]:
    """A task's results, a model, and a run of it."""
    for path in found(folder, ("task_results/*.json",), MCPMARK):
        whole = with_keys(json_of(path, MCPMARK), str(path), "a task's results", ("task", "service", "models"))
        asked = folder / "tasks" / f"{whole['task'].partition('__')[2]}.json"  # where the clone has it
        text = json_of(asked, "a task").get("instruction") if asked.is_file() else ""
        for model, told in whole["models"].items():
            yield from (({**whole, "text": text or ""}, model, run) for run in told["runs"])


def _maker(model: str) -> str:
    """The first word of a model's name, without a number: gpt, grok, claude."""
    return re.split(r"[^a-z]", model.lower().rpartition("/")[2])[0]


def _counts(run: Row) -> list[float]:
    used = run["token_usage"] or {}
    return [used.get(f"{name}_tokens") or 0 for name in ("input", "output", "reasoning", "total")]


def _tokens(run: Row, apart: bool) -> dict[str, float]:
    """Input, output without reasoning, and reasoning; nothing where nothing was counted."""
    entered, written, thought, total = _counts(run)
    if not entered and not written:
        return {}
    if total in (entered + written, entered + written + thought) and thought <= written:
        apart = total > entered + written
    known = {"input": entered, "output": written if apart else written - thought}
    return known if run["token_usage"].get("reasoning_tokens") is None else {**known, "reasoning": thought}


# -- OpenHands ---------------------------------------------------------------------------------------------------------


# {"INSTANCE": {"resolved": true, "cost": 0.12}} by benchmark, one attempt of each agent at each instance. A cost of 0
# is an agent without prices: unknown. Checked on the repository (3015ac6, 2026-06-30: 43 agents, 51,451 instances,
# 2,934 of them with a cost of 0 and 578 with none). Benchmarks share names of instances, so a task is
# BENCHMARK/INSTANCE. The files say neither tokens nor seconds.
OPENHANDS = "a clone of openhands-index-results"
_INSTANCES = ("results/*/instance_results/*.json", "alternative_agents/*/*/instance_results/*.json")


def read_openhands(folder: Path) -> Outcomes:
    """The instances of all agents; a task's family is its benchmark, an agent's name its folder."""
    made = OutcomesBuilder(str(folder))
    for path in found(folder, _INSTANCES, OPENHANDS):
        model = "/".join(path.relative_to(folder).parts[1:-2])
        for name, told in with_keys(json_of(path, OPENHANDS), str(path), "instances by name", ()).items():
            if told["resolved"] is None and not told["cost"]:
                made.leave_out("instances neither graded nor priced")
                continue
            task = f"{path.stem}/{name}"
            made.add(task, model, told["resolved"], family=path.stem, run="1", usd=told["cost"])
    return made.made()


# -- all forms ---------------------------------------------------------------------------------------------------------


Form = Callable[[Path], Outcomes]
FORMS: Mapping[str, Form] = {
    "evaluation": read_evaluation,
    "trajectories": read_recorded,
    "mcpmark": read_mcpmark,
    "openhands": read_openhands,
}
"""Forms beside "table"."""


def read(
    form: str, path: str | Path, columns: Mapping[str, str] | None = None, reasoning_apart: Collection[str] = ()
) -> Outcomes:
    """The outcomes at a path. `columns` and `reasoning_apart` are for tables alone."""
    if form == "table":
        return read_table(path, columns, reasoning_apart)
    if form not in FORMS:
        raise ConfigError(no_such("form of outcomes", form, ("table", *FORMS)))
    if columns or reasoning_apart:
        raise ConfigError(f"{form} has names of its own; columns and reasoning_apart are for tables alone")
    try:
        made = FORMS[form](Path(path))
        names: Iterable[object] = (*made.tasks, *made.families, *made.models)
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a name is a text")
    except ConfigError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as err:
        raise ConfigError(
            f"{path}: something in it has another type than {form} gives it ({err!s:.120}); check the form and the file"
        ) from err
    return made
