"""Runs of `toolorchestra evaluate` beside each other: `toolorchestra compare runs/before runs/after`.

Differences are of pairs: the same trial of the same task, under the same seed and prices. One run alone compares its
own policies. With --reprice SHEET each run is billed under another price sheet first: nothing is played,
and the runs stay as they are, for new folders are written. docs/evaluation.md says what each figure is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from toolorchestra.agents.commands.console import DONE, command, say, say_aside
from toolorchestra.agents.evaluation.comparison import compare_runs, comparison_markdown, comparison_text, read_runs
from toolorchestra.agents.evaluation.repricing import reprice
from toolorchestra.agents.evaluation.rows import read_rows
from toolorchestra.agents.evaluation.summary import latest, read_planned, summarise
from toolorchestra.agents.evaluation.summary_tables import as_markdown, as_text
from toolorchestra.agents.reports.page import write_page
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import load_sheet

Say = Callable[[str], None]


@dataclass(frozen=True)
class CompareOptions:
    """What `toolorchestra compare` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs. Each policy is compared with the same policy of the first run, or with its first policy."""
    against: str = ""
    """A policy of the first run that all others are compared with. Of figures: whom preference scores are measured
    against."""
    single: tuple[str, ...] = ()
    """Policies that always ask one model: the best single policy is sought among them. All policies when left out."""
    reprice: str = ""
    """Bill the runs anew first: the name of a price sheet that comes with the package, or a JSON file."""
    table: Literal["comparison", "figures"] = "comparison"
    """The comparison, or one run's figures."""
    format: Literal["text", "markdown", "json"] = "text"
    """How it is written."""
    out: Path | None = None
    """A file to write. Without it the terminal gets it, with what could steer one spelled out. With
    --reprice the new run's folder; beside the run's when left out."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(CompareOptions, run, given, about=__doc__)


def run(given: CompareOptions) -> int:
    """Bill anew where that is asked; then print or write."""
    _check(given)
    runs, anew = given.runs, bool(given.reprice)
    if anew:
        tell = say if given.format == "text" else say_aside
        runs = tuple(_repriced(given, folder, tell) for folder in given.runs)
    made = _comparison(given, runs) if given.table == "comparison" else _of_one(given, runs[0])
    if given.out is None or anew:
        say(made)
        return DONE
    if given.out.is_dir() or not given.out.parent.is_dir():
        raise ConfigError(f"--out: a file in a folder that is there expected, got {given.out}")
    given.out.write_text(made if made.endswith("\n") else made + "\n", encoding="utf-8")
    say(f"written: {given.out}")
    return DONE


def _check(given: CompareOptions) -> None:
    """Refuse options that do not go together."""
    if not given.runs:
        raise ConfigError("compare takes folders of `toolorchestra evaluate --out FOLDER`, got none")
    if given.table != "comparison" and len(given.runs) > 1:
        raise ConfigError(f"--table {given.table}: the figures are of one run, got {len(given.runs)}")


# -- tables ------------------------------------------------------------------------------------------------------------


def _comparison(given: CompareOptions, runs: Sequence[Path]) -> str:
    compared = compare_runs(read_runs(runs), given.against, given.single)
    if given.format == "json":
        return json.dumps(compared.to_json(), allow_nan=False, indent=1)
    return (comparison_text if given.format == "text" else comparison_markdown)(compared)


def _of_one(given: CompareOptions, run: Path) -> str:
    """A run's figures."""
    planned = read_planned(run) if run.is_dir() else None
    summary = summarise(latest(read_rows(run)), planned, given.against)
    if given.format == "json":
        return json.dumps(summary.to_json(), allow_nan=False, indent=1)
    return (as_text if given.format == "text" else as_markdown)(summary)


# -- billed anew -------------------------------------------------------------------------------------------------------


def _repriced(given: CompareOptions, folder: Path, tell: Say) -> Path:
    """Bill a run under another price sheet, into a new folder."""
    sheet = load_sheet(given.reprice)
    out = _new_folder(given, folder, sheet.sheet_id.replace("/", "-"))
    for sentence in reprice(folder, sheet, out).sentences():
        tell(sentence)
    write_page(out)
    tell(f"written: {out}\n")
    return out


def _new_folder(given: CompareOptions, folder: Path, ending: str) -> Path:
    place = folder.resolve()
    if given.out is None:
        return place.with_name(f"{place.name}-{ending}")
    return given.out if len(given.runs) == 1 else given.out / place.name
