"""A table of outcomes from a file: CSV, TSV or JSON lines, gzipped or not, read row by row.

    task,family,model,run,success,seconds,input,output,reasoning,usd
    merge_logs,files,gpt-5,run-1,true,212.4,90311,6100,4100,

Columns may have the other names below; `columns={"task": "instance_id"}` says what a file calls its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

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
MOST_LINE_BYTES = 4_000_000


def read_table(
    path: str | Path, columns: Mapping[str, str] | None = None, reasoning_apart: Collection[str] = ()
) -> Outcomes:
    """The outcomes of a file. `reasoning_apart` are models whose servers leave reasoning out of `all_output`, as xAI's
    do. Raises ConfigError that names the row and says what was expected."""
    path = Path(path)
    made = OutcomesBuilder(str(path))
    names: dict[str, str] | None = None
    for number, row in enumerate(_rows(path), 1):
        where = f"{path}, row {number}"
        if names is None:
            names = _named(row, columns or {}, str(path))
        told = {name: row.get(column) for name, column in names.items()}
        if _text(told.get("model")) in reasoning_apart:
            told["output"] = told.pop("all_output", told.get("output"))
        add(made, told, where)
    return made.made()


def add(made: OutcomesBuilder, told: Mapping[str, Any], where: str) -> None:
    """A row by the names above. Raises ConfigError where two columns of it contradict each other."""
    told = dict(told)
    task, model, family, text = (_text(told.pop(name, None)) for name in ("task", "model", "family", "text"))
    success, run = told.pop("success", None), told.pop("run", None)
    _to_seconds(told, where)
    _without_reasoning(told, where)
    made.add(task, model, success, family=family, run=run, text=text, **told)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _to_seconds(told: dict[str, Any], where: str) -> None:
    thousandths = told.pop("milliseconds", None)
    if thousandths in (None, ""):
        return
    try:
        seconds = float(thousandths) / 1000
        both = told.get("seconds") not in (None, "") and abs(float(told["seconds"]) - seconds) > 0.01 * seconds + 0.01
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}: milliseconds are a number, got {thousandths!r:.40}") from None
    if both:
        raise ConfigError(f"{where}: {told['seconds']} seconds and {thousandths} milliseconds contradict each other")
    told["seconds"] = seconds


def _without_reasoning(told: dict[str, Any], where: str) -> None:
    """`all_output` less the reasoning that is in it."""
    everything = told.pop("all_output", None)
    if everything in (None, ""):
        return
    if told.get("output") not in (None, ""):
        raise ConfigError(f"{where}: give output tokens without reasoning (output) or with it (all_output), not both")
    try:
        reasoning = float(told.get("reasoning") or 0)
        left = float(everything) - reasoning
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}: token counts are numbers, got {everything!r:.40}") from None
    if left < 0:
        raise ConfigError(
            f"{where}: {reasoning:g} reasoning tokens are more than all {float(everything):g} output tokens; if this "
            "model's output is counted without its reasoning, name the model in reasoning_apart; if that is so of "
            "all, name the column output",
            command_line="--reasoning-apart MODEL",
        )
    told["output"] = left


def _named(row: Mapping[str, Any], chosen: Mapping[str, str], where: str) -> dict[str, str]:
    """What each of our names is called in this file."""
    for name, column in chosen.items():
        if name not in NAMES:
            raise ConfigError(f"{where}: {no_such('outcome column', name, NAMES)}")
        if column not in row:
            raise ConfigError(f"{where}: {no_such('column', column, row)}")
    guessed = {name: next((g for g in guesses if g in row), "") for name, guesses in NAMES.items()}
    names = {**{name: column for name, column in guessed.items() if column}, **chosen}
    for name in NEEDED:
        if name not in names:
            raise ConfigError(
                f"{where} has no column for {name} (its columns: {', '.join(map(str, row))}); name it, such as "
                f"{name}=COLUMN. A table has a row for each run of a model on a task"
            )
    return names


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    kind = next((s for s in SUFFIXES if path.name.removesuffix(".gz").endswith(s)), "")
    if not kind:
        raise ConfigError(f"outcomes are a file of {', '.join(SUFFIXES)}, gzipped (.gz) or not; got {path}")
    with _opened(path) as file:
        try:
            yield from (
                _json_lines(file, path) if kind == ".jsonl" else _delimited(file, "\t" if kind == ".tsv" else ",")
            )
        except (csv.Error, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise ConfigError(f"{path} is no whole {kind[1:]} file of outcomes: {err!s:.120}") from None


def _delimited(file: TextIO, mark: str) -> Iterator[Mapping[str, Any]]:
    reader: csv.DictReader[str] = csv.DictReader(file, delimiter=mark, strict=True)
    for number, row in enumerate(reader, 1):
        if None in row or None in row.values():
            raise csv.Error(f"row {number} has another number of columns than the first line")
        yield row


def _json_lines(file: TextIO, path: Path) -> Iterator[Mapping[str, Any]]:
    number = 0
    while line := file.readline(MOST_LINE_BYTES):
        number += 1
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
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


def columns_of(words: Sequence[str]) -> dict[str, str]:
    """NAME=COLUMN words of a command line."""
    made = {}
    for word in words:
        name, mark, column = word.partition("=")
        if not (mark and column):
            raise ConfigError(f"a column is named as NAME=COLUMN, such as task=instance_id; got {word!r:.60}")
        made[name] = column
    return made
