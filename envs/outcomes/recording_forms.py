"""What recordings are read from, by name. A form takes a path of the user's own copy; nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder, read_table

# -- files that somebody else wrote ------------------------------------------------------------------------------------


MOST_FILE_BYTES = 512 << 20
MOST_LINE_BYTES = 64 << 20
Row = Mapping[str, Any]


def found(folder: Path, patterns: Sequence[str], expected: str) -> list[Path]:
    """The files of a folder that fit one of the patterns, in order. Raises ConfigError where there are none."""
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if not files:
        raise ConfigError(
            f"{folder}: expected {expected}, with files {' or '.join(patterns)}; got {_what_is_at(folder)}"
        )
    return files


def _what_is_at(path: Path) -> str:
    if path.is_file():
        return "a file; name the folder"
    if not path.exists():
        return "nothing; check the path (nothing is downloaded)"
    names = sorted(one.name for one in path.iterdir())
    return f"a folder with {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}; check path and form"


def json_of(path: Path, expected: str) -> Any:
    """Reads a JSON file. Raises ConfigError, which says what was `expected`, where it cannot be read, is too large or
    no JSON."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}; expected {expected}") from None
    if len(data) > MOST_FILE_BYTES:
        raise ConfigError(
            f"{path} is larger than {MOST_FILE_BYTES >> 20} MiB, the most that is read of a file; split it"
        )
    try:
        return json.loads(data)
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
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > MOST_LINE_BYTES:
                raise ConfigError(
                    f"{where} is longer than {MOST_LINE_BYTES >> 20} MiB, the most that is read of a line"
                )
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


def counted(value: Any, where: str) -> float | None:
    """A count of tokens or seconds. None where it is unknown, or 0, as programs write that counted nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ConfigError(f"{where}: expected a number, got {value!r:.40}; repair the file or leave it out")
    return value or None


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
_CHARGE = ("item", "role", "tokens", "nano_usd")
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


def _own_tokens(counts: Sequence[Any], where: str) -> dict[str, Any]:
    """Input, cached, output and reasoning, as measures. Nothing where nothing was counted."""
    if len(counts) != 4 or any(isinstance(c, bool) or not isinstance(c, int | float) for c in counts):
        raise ConfigError(f"{where}: expected input, cached, output and reasoning tokens, got {counts!r:.60}")
    entered, cached, written, thought = counts
    if not any(counts):
        return {}
    return {"input": entered + cached, "output": written, "reasoning": thought}


def read_evaluation(path: Path) -> Outcomes:
    """The rows of a run. A family is the task's subject or domain, else its environment."""
    made = OutcomesBuilder(str(path))
    env_of: dict[str, str] = {}
    file = path if path.is_file() else found(path, ("rows.jsonl",), "the folder of an evaluation")[0]
    torn = partial(made.leave_out, "lines broken off at the end")
    for where, row in json_lines(file, "a row of an evaluation", _EVALUATED, torn):
        if row["status"] != "ended":
            made.leave_out("rows that failed or were cut")
        elif model := _only_expert(_experts(row, where), made):
            _add_trial(made, row, model, where, env_of)
    return made.made()


def _experts(row: Row, where: str) -> set[str]:
    models = with_keys(row["models"], f"{where}, models", "models by key", ())
    calls = with_keys(row["calls"], f"{where}, calls", "calls by key", ())
    return {str(models[key]) for key, count in calls.items() if count and key in models}


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
        **_own_tokens(row["tokens"].get("expert", (0, 0, 0, 0)), where),
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
    for number, (where, row) in enumerate(lines, 1):
        if row["outcome"] and row["outcome"].get("value") is None:  # nobody knew, when it was asked
            row = {**row, "outcome": {**row["outcome"], "value": rated.get(row.get("request"))}}
        if row.get("abandoned"):
            made.leave_out("episodes that were left")
        elif row.get("failed") or not row["outcome"] or row.get("truncated_by") == "spend_cap":
            made.leave_out("episodes that failed or were cut")
        elif row["outcome"].get("value", 0.0) is None:
            made.leave_out("answers that nobody rated")
        else:
            charges = [with_keys(charge, f"{where}, charges", "a charge", _CHARGE) for charge in row["charges"]]
            if model := _only_expert({str(c["item"]) for c in charges if c["role"] == "expert"}, made):
                _add_episode(made, row, model, charges, number, where)
    return made.made()


def _add_episode(made: OutcomesBuilder, row: Row, model: str, charges: Sequence[Row], number: int, where: str) -> None:
    spent = sum(charge["nano_usd"] for charge in charges if charge["role"] in _OF_THE_AGENT)
    used = [
        with_keys(c["tokens"], f"{where}, tokens", "tokens by class", _CLASSES)
        for c in charges
        if c["role"] == "expert"
    ]
    made.add(
        row["task_id"],
        model,
        with_keys(row["outcome"], f"{where}, outcome", "an outcome", ("value",))["value"],
        family=_family(row.get("task") or {}),
        run=f"line {number}",
        text=_question(row),
        seconds=with_keys(row["totals"], f"{where}, totals", "totals", ("seconds",))["seconds"],
        usd=spent / NANO,
        **_own_tokens([sum(one[name] for one in used) for name in _CLASSES], where),
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


class _FormRow(NamedTuple):
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
    apart = {_maker(run.model) for run in _runs(folder) if _counts(run)[2] > _counts(run)[1]}
    text_of = _texts(folder)
    for run in _runs(folder):
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


def _runs(folder: Path) -> Iterator[_FormRow]:
    for path in found(folder, ("task_results/*.json",), MCPMARK):
        whole = with_keys(json_of(path, MCPMARK), str(path), "a task's results", ("task", "service", "models"))
        for model, told in with_keys(whole["models"], f"{path}, models", "results by model", ()).items():
            for row in with_keys(told, f"{path}, {model}", "a model's results", ("runs",))["runs"]:
                where = f"{path}, {model}"
                run = with_keys(row, where, "a run", ("run", "success", "token_usage"))
                seconds = run.get("agent_execution_time", run.get("execution_time"))
                yield _FormRow(
                    where, whole["task"], whole["service"], model, run["run"], run["success"], seconds,
                    run["token_usage"] or {},
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


def _counts(run: _FormRow) -> tuple[float, float, float, float]:
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "total_tokens")
    entered, written, thought, total = (counted(run.tokens.get(name), run.where) or 0 for name in names)
    return entered, written, thought, total


def _tokens(run: _FormRow, apart: bool) -> dict[str, float]:
    """Input, output without reasoning, and reasoning; nothing where nothing was counted."""
    entered, written, thought, total = _counts(run)
    if not entered and not written:
        return {}
    if total in (entered + written, entered + written + thought) and thought <= written:
        apart = total > entered + written
    known = {"input": entered, "output": written if apart else written - thought}
    return known if run.tokens.get("reasoning_tokens") is None else {**known, "reasoning": thought}


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
        for name, value in with_keys(json_of(path, OPENHANDS), str(path), "instances by name", ()).items():
            told = with_keys(value, f"{path}, {name}", "an instance", ("resolved", "cost"))
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
        return _with_names(FORMS[form](Path(path)))
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError, RecursionError) as err:
        raise ConfigError(
            f"{path}: something in it has another type than {form} gives it ({err!s:.120}); check the form and the file"
        ) from err


def _with_names(read: Outcomes) -> Outcomes:
    names: Iterable[object] = (*read.tasks, *read.families, *read.models)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name expected, got {name!r:.60}")
    return read
