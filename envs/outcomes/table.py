"""A table of recorded outcomes: who tried which task, how it ended, how long it took, and what it used; and its file.

    task,family,model,run,success,seconds,input,output,reasoning,usd
    merge_logs,files,gpt-5,run-1,true,212.4,90311,6100,4100,

Columns lie in arrays, sixty bytes a row, so ten million rows take 600 MB. What a row does not say is nan: unknown,
never 0. Dollars of 0 are unknown too: recordings have them where the agent had no prices. A file is CSV, TSV or JSON
lines, gzipped or not, and is read row by row.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError, no_such, one_of

Numbers = NDArray[np.float64]
MOST_SECONDS = 7 * 86_400.0
MOST_TOKENS = 1_000_000_000
MOST_USD = 100_000.0
MEASURES = ("seconds", "input", "output", "reasoning", "usd")
"""What a row may know beside its success. Reasoning tokens are not in the output tokens."""
_MOST: Mapping[str, tuple[float, str]] = {
    "seconds": (MOST_SECONDS, "if these are milliseconds, name the column milliseconds"),
    "input": (MOST_TOKENS, "these are tokens, not characters or bytes"),
    "output": (MOST_TOKENS, "these are tokens, not characters or bytes"),
    "reasoning": (MOST_TOKENS, "these are tokens, not characters or bytes"),
    "usd": (MOST_USD, "if these are micro-dollars or cents, divide them first"),
}


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Recorded outcomes. Row i is `task[i]`, `model[i]`, `run[i]` with its success and measures."""

    where: str
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    """The family of each task: its service, benchmark or subject, by the first row that has one; "" where none does."""
    models: tuple[str, ...]
    texts: Mapping[str, str]
    """What was asked, of the tasks whose rows say it."""
    task: NDArray[np.int32]
    model: NDArray[np.int32]
    run: NDArray[np.int32]
    """Number of the run among those of its task and model, from 0."""
    success: Numbers
    """Share of success from 0 to 1; nan where nobody graded the row."""
    measures: Mapping[str, Numbers]
    runs_were_named: bool = True
    """False: the rows have no run, and were numbered as they came."""
    zero_dollars: int = 0
    """Rows that said 0 dollars, which is held as unknown."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What the recording has and this table does not, such as "rows of several experts", with how many there are."""

    def __len__(self) -> int:
        return len(self.task)

    @property
    def family_names(self) -> tuple[str, ...]:
        """Each family once, in order of its first task."""
        return tuple(dict.fromkeys(self.families))

    def where_rows(self, keep: NDArray[np.bool_]) -> Outcomes:
        """The rows that are kept; tasks and models keep their numbers."""
        kept = {name: column[keep] for name, column in self.measures.items()}
        return replace(
            self,
            task=self.task[keep],
            model=self.model[keep],
            run=self.run[keep],
            success=self.success[keep],
            measures=kept,
        )

    def only(self, models: Sequence[str] = ()) -> Outcomes:
        """The rows of some models, which are numbered anew. Raises ConfigError for a name that is not there."""
        for name in models:
            one_of("model", name, self.models, f"{self.where}: ")
        chosen = tuple(models) or self.models
        number = np.full(len(self.models), -1, np.int32)
        number[[self.models.index(name) for name in chosen]] = np.arange(len(chosen), dtype=np.int32)
        made = self.where_rows(number[self.model] >= 0)
        if not len(made):
            raise ConfigError(f"{self.where}: no row is left of {len(self)} after the choice of models")
        return replace(made, models=chosen, model=number[made.model])


class OutcomesBuilder:
    """Takes rows one by one and checks each; `made()` gives the table."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._tasks: dict[str, int] = {}
        self._families: list[str] = []
        self._models: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._runs: dict[str, int] = {}
        self._whole = {name: array("i") for name in ("task", "model", "run")}
        self._success = array("f")
        self._measures = {name: array("d" if name == "usd" else "f") for name in MEASURES}
        self._named = self._unnamed = self._zeros = 0
        self._left_out: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._success)

    def add(
        self,
        task: str,
        model: str,
        success: object,
        *,
        family: str = "",
        run: object = None,
        text: str = "",
        **measures: object,
    ) -> None:
        """One row. A measure that is None or "" is unknown. Raises ConfigError that names the row."""
        row = f"{self.where}, row {len(self) + 1}"
        if not task or not model:
            raise ConfigError(f"{row}: a task and a model expected, got task {task!r:.60} and model {model!r:.60}")
        graded = _success(success, row)
        values = {name: _measure(name, measures.pop(name, None), row) for name in MEASURES}
        if measures:
            raise ConfigError(f"{row}: {no_such('measure', next(iter(measures)), MEASURES)}")
        if values["usd"] == 0:
            self._zeros += 1
            values["usd"] = math.nan
        self._take(task, model, family, text, run, row)
        self._success.append(graded)
        for name, value in values.items():
            self._measures[name].append(value)

    def leave_out(self, what: str) -> None:
        """Count what is not taken. `what` is a plural that follows a number: "rows of several experts"."""
        self._left_out[what] = self._left_out.get(what, 0) + 1

    def _take(self, task: str, model: str, family: str, text: str, run: object, row: str) -> None:
        number = self._tasks.setdefault(task, len(self._tasks))
        if number == len(self._families):
            self._families.append(family)
        elif not self._families[number]:
            self._families[number] = family
        elif family not in ("", self._families[number]):
            raise ConfigError(f"{row}: task {task!r} is of the family {self._families[number]!r} and here {family!r}")
        if text:
            self._texts.setdefault(task, text)
        named = run is not None and str(run).strip() != ""
        self._named, self._unnamed = self._named + named, self._unnamed + (not named)
        if self._named and self._unnamed:
            raise ConfigError(f"{row}: some rows name their run and some do not; name it in all of them, or in none")
        self._whole["task"].append(number)
        self._whole["model"].append(self._models.setdefault(model, len(self._models)))
        self._whole["run"].append(self._runs.setdefault(str(run), len(self._runs)) if named else -1)

    def made(self) -> Outcomes:
        """The table. Raises ConfigError where a run stands there twice, or there is no row."""
        if not len(self):
            but = ", ".join(f"{count} {what}" for what, count in self._left_out.items())
            raise ConfigError(f"{self.where} has no rows{f' to take: {but}' if but else ''}")
        task, model, run = (np.array(self._whole[name], np.int32) for name in ("task", "model", "run"))
        order, attempts = self._numbered(task, model, run)
        return Outcomes(
            self.where,
            tuple(self._tasks),
            tuple(self._families),
            tuple(self._models),
            self._texts,
            task[order],
            model[order],
            attempts,
            np.array(self._success, np.float64)[order],
            {name: np.array(column, np.float64)[order] for name, column in self._measures.items()},
            runs_were_named=not self._unnamed,
            zero_dollars=self._zeros,
            left_out=self._left_out,
        )

    def _numbered(
        self, task: NDArray[np.int32], model: NDArray[np.int32], run: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows in the order of task, model and run, and each one's number among its task's and model's."""
        order = np.lexsort((run, model, task))
        pair = task[order].astype(np.int64) * len(self._models) + model[order]
        begins = np.r_[True, pair[1:] != pair[:-1]]
        again = ~begins & np.r_[False, run[order][1:] == run[order][:-1]]
        if not self._unnamed and again.any():
            at = int(order[np.flatnonzero(again)[0]])
            name = list(self._runs)[run[at]]
            who = f"task {list(self._tasks)[task[at]]!r}, model {list(self._models)[model[at]]!r}, run {name!r}"
            raise ConfigError(f"{self.where}: two rows are of {who}; a run stands there once")
        starts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
        return order, (np.arange(len(order)) - starts).astype(np.int32)


def _success(value: object, row: str) -> float:
    """A success as a number from 0 to 1; nan where it is unknown."""
    if _unknown(value):
        return math.nan
    words = {"true": 1.0, "false": 0.0}
    made = words[word] if (word := str(value).strip().lower()) in words else _number(value)
    if made is None or not 0 <= made <= 1:
        raise ConfigError(f"{row}: success is true, false or a number from 0 to 1, got {value!r:.40}")
    return made


def _measure(name: str, value: Any, row: str) -> float:
    if _unknown(value):
        return math.nan
    made, (most, hint) = _number(value), _MOST[name]
    if made is None or made < 0:
        raise ConfigError(f"{row}: {name} is a number from 0 up, or empty where it is not known; got {value!r:.40}")
    if made > most:
        raise ConfigError(f"{row}: {name} is at most {most:,.0f}, got {value!r:.40}; {hint}")
    return made


def _unknown(value: object) -> bool:
    """Whether a value says nothing, in the words of any program that writes tables."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "none", "null", "nan")
    return value is None or value != value


def _number(value: object) -> float | None:
    try:
        made = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return made if math.isfinite(made) else None


# -- a file ------------------------------------------------------------------------------------------------------------


NAMES: Mapping[str, tuple[str, ...]] = {
    "task": ("task", "task_id", "instance_id", "question_id"),
    "model": ("model", "model_name", "expert"),
    "success": ("success", "resolved", "right", "correct"),
    "family": ("family", "service", "subject", "category", "benchmark"),
    "run": ("run", "attempt", "trial"),
    "text": ("text", "question", "prompt"),
    "seconds": ("seconds",),
    "milliseconds": ("milliseconds", "latency_ms"),
    "input": ("input", "in", "input_tokens", "prompt_tokens"),
    "output": ("output", "output_tokens"),
    "all_output": ("all_output", "out", "completion_tokens"),
    "reasoning": ("reasoning", "reasoning_tokens"),
    "usd": ("usd", "cost_usd", "dollars"),
}
"""What a column may be called. `output` is without reasoning tokens, `all_output` has them in it, as servers count."""
NEEDED = ("task", "model", "success")
SUFFIXES = (".csv", ".tsv", ".jsonl")
_FIELD_CHARACTERS = 1 << 30
"""The most of a text in a CSV; the module's own limit is less than some prompts."""


def read_table(
    path: str | Path, columns: Mapping[str, str] | None = None, reasoning_apart: Collection[str] = ()
) -> Outcomes:
    """The outcomes of a file. `reasoning_apart` are models whose servers leave reasoning out of `all_output`, as xAI's
    do. Raises ConfigError that names the row and says what was expected."""
    path = Path(path)
    made, chosen = OutcomesBuilder(str(path)), columns or {}
    for name in chosen:
        one_of("outcome column", name, NAMES, f"{path}: ")
    named: dict[tuple[str, ...], dict[str, str]] = {}  # by the columns of a row: lines of JSON may differ in them
    for number, row in enumerate(_rows(path), 1):
        where = f"{path}, row {number}"
        if (names := named.get(tuple(row))) is None:
            names = named[tuple(row)] = _named(row, chosen, where if named else str(path))
        told: dict[str, Any] = {name: row.get(column) for name, column in names.items()}
        if _text(told.get("model")) in reasoning_apart:
            told["output"] = told.pop("all_output", told.get("output"))
        texts = {name: _text(told.pop(name, None)) for name in ("task", "model", "family", "text")}
        _in_our_units(told, where)
        made.add(**texts, success=told.pop("success", None), **told)
    table, there = made.made(), dict.fromkeys(column for columns_of in named for column in columns_of)
    for column in chosen.values():
        one_of("column", column, there, f"{path}: ")
    return table


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _in_our_units(told: dict[str, Any], where: str) -> None:
    """Write milliseconds as seconds, where these are not said, and `all_output` without the reasoning that is in it."""
    thousandths, everything = told.pop("milliseconds", None), told.pop("all_output", None)
    if not _unknown(everything) and not _unknown(told.get("output")):
        raise ConfigError(f"{where}: give output tokens without reasoning (output) or with it (all_output), not both")
    try:
        if not _unknown(thousandths) and _unknown(told.get("seconds")):
            told["seconds"] = float(thousandths) / 1000
        if _unknown(everything):
            return
        reasoning = 0.0 if _unknown(told.get("reasoning")) else float(told["reasoning"])
        told["output"] = float(everything) - reasoning
    except (TypeError, ValueError, OverflowError) as err:
        raise ConfigError(f"{where}: milliseconds and counts of tokens are numbers ({err!s:.80})") from None
    if told["output"] < 0:
        raise ConfigError(
            f"{where}: {reasoning:g} reasoning tokens are more than all {float(everything):g} output tokens; if this "
            "model's output is counted without its reasoning, name the model in reasoning_apart; if that is so of "
            "all, name the column output",
            command_line="--reasoning-apart MODEL",
        )


def _named(row: Mapping[str, Any], chosen: Mapping[str, str], where: str) -> dict[str, str]:
    """What each of our names is called in this row."""
    guessed = {name: guess for name, guesses in NAMES.items() for guess in reversed(guesses) if guess in row}
    names = {name: column for name, column in {**guessed, **chosen}.items() if column in row}
    for name in NEEDED:
        if name in chosen:
            one_of("column", chosen[name], row, f"{where}: ")
        if name not in names:
            raise ConfigError(
                f"{where} has no column for {name} (its columns: {', '.join(map(str, row))}); name it, such as "
                f"{name}=COLUMN. A table has a row for each run of a model on a task"
            )
    return names


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    kind = next((s for s in SUFFIXES if path.name.removesuffix(".gz").endswith(s)), "")
    if not kind:
        folder = "; a folder that evaluate wrote has form='evaluation'" if path.is_dir() else ""
        told = f"outcomes are a file of {', '.join(SUFFIXES)}, gzipped (.gz) or not; got {path}{folder}"
        raise ConfigError(told, command_line="--form evaluation" if folder else "")
    with _opened(path) as file:
        try:
            yield from (
                _json_lines(file, path) if kind == ".jsonl" else _delimited(file, "\t" if kind == ".tsv" else ",")
            )
        except (csv.Error, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise ConfigError(f"{path} is no whole {kind[1:]} file of outcomes: {err!s:.120}") from None


def _delimited(file: TextIO, mark: str) -> Iterator[Mapping[str, Any]]:
    reader: csv.DictReader[str] = csv.DictReader(file, delimiter=mark, strict=True)
    before = csv.field_size_limit(_FIELD_CHARACTERS)  # the module's own, which all share
    try:
        names = [name for name in reader.fieldnames or () if name]
        if again := [name for name in names if names.count(name) > 1]:
            raise csv.Error(f"two columns are named {again[0]!r:.60}; name one of them otherwise")
        for number, row in enumerate(reader, 1):
            if None in row or None in row.values():
                raise csv.Error(f"row {number} has another number of columns than the first line")
            yield row
    finally:
        csv.field_size_limit(before)


def _json_lines(file: TextIO, path: Path) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number}: one JSON object a line expected, got {line!r:.60}")
        yield row


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with path.open("rb") as raw:
            data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            yield io.TextIOWrapper(data, encoding="utf-8-sig", newline="")
    except OSError as err:
        raise ConfigError(
            f"no outcomes at {path}: {err.strerror or err}; name a file of {', '.join(SUFFIXES)}"
        ) from None
