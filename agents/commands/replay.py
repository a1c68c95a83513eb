"""Routing over recorded outcomes of real models, held to the best single one. Nothing here is simulated:

toolorchestra replay outcomes.csv --prices mine.json --models gpt-5 gpt-5-mini --out replay.md

Each task is held out once, by folds. Single models on the front, cheapest, strongest, knn, skillbook, a router trained
by logistic regression, the task oracle, and models sent from the cheapest up until a check passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.base.errors import AT_LEAST_ONE, NOT_NEGATIVE, ConfigError, require

if TYPE_CHECKING:
    from toolorchestra.agents.calibration.replayed import Standing

COLUMNS = ("policy", "accuracy", "$ a task", "seconds", "PerfGain", "CostSave")


@dataclass(frozen=True)
class ReplayOptions:
    """What `toolorchestra replay` takes."""

    outcomes: tyro.conf.Positional[Path]
    """A table (.csv, .tsv, .jsonl, gzipped or not), or what --form names."""
    form: str = "table"
    """What the recording is: see docs/calibrate.md."""
    columns: tuple[str, ...] = ()
    """NAME=COLUMN where a table calls something else."""
    reasoning_apart: tuple[str, ...] = ()
    """Models whose `all_output` has no reasoning tokens in it."""
    models: tuple[str, ...] = ()
    """Only these; all without it."""
    prices: str = "recorded-2025-12"
    """A price sheet, by name or file. Models that it cannot price are billed their recorded dollars."""
    unpriced: Literal["refuse", "drop"] = "refuse"
    """Runs without tokens and dollars: refuse the recording, or leave them out."""
    complete: float = 0.0
    """Leave out models that ran less than this share of the tasks, before tasks are taken that all models ran."""
    folds: int = 5
    """Parts of the tasks: each is played by what the others have taught."""
    cost_weight: float = 0.2
    """What the dearest model's bill counts beside a right answer, which counts 1."""
    out: Path | None = None
    """Where the table goes, as Markdown; it is printed without it."""

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "folds")
        require(self, NOT_NEGATIVE, "cost_weight", "complete")


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ReplayOptions, run, given, about=__doc__)


def run(given: ReplayOptions) -> int:
    """Print or write the table."""
    text = "\n".join(_page(given)) + "\n"
    if given.out is None:
        say(text)
        return DONE
    try:
        given.out.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"the table cannot be written to {given.out}: {err.strerror}") from None
    say(f"{given.out} written")
    return DONE


def _page(given: ReplayOptions) -> Iterator[str]:
    from toolorchestra.agents.calibration import replayed
    from toolorchestra.envs.domains.recorded.source import RecordedSource
    from toolorchestra.envs.outcomes.forms import read
    from toolorchestra.envs.outcomes.table import columns_of

    rows = read(given.form, given.outcomes, columns_of(given.columns), given.reasoning_apart)
    models = given.models or replayed.complete_models(rows, given.complete)
    source = RecordedSource(rows=rows, models=models, folds=given.folds, unpriced=given.unpriced)
    table, runs = replayed.table_of(source, given.prices), source.runs
    lines = replayed.contest(table, [runs.text(task) for task in table.tasks], given.cost_weight)
    best = table.models[replayed.best_single(table)]
    yield f"{len(table.tasks)} tasks, {len(table.models)} models, {given.folds} folds. Gain and saving are against"
    yield f"the best single model, {best}. Intervals are of 95 %, by a bootstrap of tasks."
    if runs.dropped or runs.left_out:
        yield f"Left out: {runs.dropped} runs without a price, {runs.left_out} tasks that not all ran."
    yield from ("", f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|")
    yield from map(_line, lines)


def _line(one: Standing) -> str:
    accuracy = "{:.1%} ({:.1%} to {:.1%})".format(*one.accuracy)
    usd = "{:.3f} ({:.3f} to {:.3f})".format(*one.usd)
    gain, saving = ("{:+.0%} ({:+.0%} to {:+.0%})".format(*value) for value in (one.gain, one.saving))
    seconds = f"{one.seconds:.0f}" if one.seconds else "not known"
    return f"| {one.policy} | {accuracy} | {usd} | {seconds} | {gain} | {saving} |"
