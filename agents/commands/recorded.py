"""Recorded outcomes of real models: fit simulated experts to them, make a file of those, replay them.

A row is one run of one model on one task: task, family, model, run, success, seconds, input, output, reasoning, usd.
docs/calibrate.md says what columns may be called and what other recordings can be read. Nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from toolorchestra.agents.commands.console import DONE, check_counts, command, make_room, say
from toolorchestra.agents.configuration.environment_options import pairs
from toolorchestra.envs.base.errors import NOT_NEGATIVE, ConfigError, require

if TYPE_CHECKING:
    from toolorchestra.agents.evaluation.replayed_routing import ReplayedLine
    from toolorchestra.envs.outcomes.table import Outcomes

COLUMNS = ("policy", "accuracy", "$ a task", "seconds", "PerfGain", "CostSave")


@dataclass(frozen=True)
class RecordingOptions:
    """Options of a recording that is read."""

    outcomes: tyro.conf.Positional[Path]
    """A table (.csv, .tsv, .jsonl, gzipped or not), or what --form names."""
    form: str = "table"
    """What the recording is: see docs/calibrate.md."""
    columns: tuple[str, ...] = ()
    """NAME=COLUMN where a table calls something else, such as task=instance_id."""
    reasoning_apart: tuple[str, ...] = ()
    """Models whose `all_output` has no reasoning tokens in it, as xAI's servers count."""
    models: tuple[str, ...] = ()
    """Models that are read; all when left out."""

    def read(self) -> Outcomes:
        """The recording as a table."""
        from toolorchestra.envs.outcomes.recording_forms import read

        return read(self.form, self.outcomes, pairs("--columns", self.columns), self.reasoning_apart)


@dataclass(frozen=True)
class FitOptions(RecordingOptions):
    """Options of `toolorchestra recorded fit`."""

    out: Path | None = None
    """Where the fitted numbers go, as JSON."""
    page: Path | None = None
    """Where the goodness of the fit goes, as Markdown; it is printed when left out."""
    source: str = ""
    """Where the rows are from, with their revision: kept in the file."""
    draws: int = 200
    """How many times the tasks are drawn again (bootstrap) for the intervals."""
    simulations: int = 100
    """How many simulated recordings the real one is compared with."""


@dataclass(frozen=True)
class WorldOptions:
    """Options of `toolorchestra recorded world`."""

    fit: tyro.conf.Positional[Path]
    """The JSON file that `toolorchestra recorded fit --out FILE` wrote."""
    out: Path = Path("experts.json")
    """Where the experts go; it must end in .json."""
    tools: str = "paper"
    """The tool configuration whose experts are made: paper, plain or a JSON file."""
    stands: Annotated[tuple[str, ...], tyro.conf.arg(name="as", metavar="EXPERT=MODEL [...]")] = ()
    """Pairs of an expert and the recorded model that stands behind it. An alias, such as answer-1 or search-2, means
    what that alias does; the name of an expert's model means its answering. Recorded models of the same name need not
    be named."""
    family: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SUBJECT=FAMILY [...]")] = ()
    """Pairs of a subject and the recorded family that stands for it: math, science, code, logic, knowledge. A subject
    may be named several times. Without it the family of the same name, else those that a data set's questions are
    played as (physics as science), else the mean over all."""
    rest_from: str = ""
    """Packaged experts, such as 2026-11, for what the recording does not know. Without it that is refused."""


@dataclass(frozen=True)
class ReplayOptions(RecordingOptions):
    """Options of `toolorchestra recorded replay`."""

    prices: str = "recorded-2025-12"
    """A price sheet, by name or file. Models that it cannot price are billed their recorded dollars."""
    unpriced: Literal["refuse", "drop"] = "refuse"
    """Runs without tokens and dollars: refuse the recording, or leave them out."""
    complete: float = 0.0
    """Leave out models that ran less than this share of the tasks, before tasks are taken that all models ran."""
    cost_weight: float = 0.2
    """What the most expensive model's bill counts beside a right answer, which counts 1."""
    out: Path | None = None
    """Where the table goes, as Markdown; it is printed when left out."""

    def __post_init__(self) -> None:
        require(self, NOT_NEGATIVE, "cost_weight", "complete")


def run_fit(given: FitOptions) -> int:
    """Fit simulated experts to recorded outcomes of real models, and say how good the fit is:

    toolorchestra recorded fit outcomes.csv --out fit.json --page fit.md
    """
    from toolorchestra.agents.calibration import experts_fit, goodness

    check_counts(given, {"draws": 2, "simulations": 2})
    make_room("--out", given.out)
    make_room("--page", given.page)
    rows = given.read()
    rows = rows.only(given.models) if given.models else rows
    say(f"{len(rows):,} rows of {len(rows.tasks):,} tasks and {len(rows.models)} models are read; now they are fitted")
    made = experts_fit.fit(rows, given.draws)
    if given.out is not None:
        experts_fit.write(made, given.out, given.source)
        say(f"{given.out} written: {len(made.rows.models)} models")
    text = goodness.page(made, given.simulations)
    _written(text if given.page is None else f"# How good the fit is\n\n{text}", given.page, "page")
    return DONE


def run_world(given: WorldOptions) -> int:
    """Make simulated experts of a fit, a file that `experts=` of HLE-v0 and FRAMES-v0 takes:

    toolorchestra recorded world fit.json --tools mine.json --as answer-1=gpt-5 --out experts.json

    What the recording does not know is refused, or with --rest-from taken from packaged experts. Both are said.
    """
    from toolorchestra.agents.calibration.experts_file import FileOptions, make_experts
    from toolorchestra.agents.calibration.experts_fit import read_fit, written
    from toolorchestra.envs.domains.questions.source import searching
    from toolorchestra.envs.tools.tool_config import load

    if given.out.suffix != ".json":
        raise ConfigError(f"--out: a file that ends in .json expected, as experts=FILE takes; got {given.out}")
    known = read_fit(given.fit)
    families: dict[str, list[str]] = {}
    for item in given.family:
        ((subject, family),) = pairs("--family", [item]).items()
        families.setdefault(subject, []).append(family)
    choices = FileOptions(pairs("--as", given.stands), families, given.rest_from)
    made = make_experts(known, load(given.tools), choices)
    written(made.data, given.out, "the experts")
    if found := searching(load(given.tools)):
        say(f"- {', '.join(found)}: what is found changes answers to generated questions alone, not to a data set's")
    for line in made.told:
        say(f"- {line}")
    for line in known.warnings:
        say(f"- warning of the fit: {line}")
    say(f'{given.out} written: gym.make("ToolOrchestra/HLE-v0", experts="{given.out}", tools="{given.tools}")')
    return DONE


def _written(text: str, file: Path | None, what: str) -> None:
    """Write a text, or print it where no file is named."""
    if file is None:
        return say(text)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"the {what} cannot be written to {file}: {err.strerror}") from None
    return say(f"{file} written")


def run_replay(given: ReplayOptions) -> int:
    """Play routing over recorded outcomes of real models, compared with the best single one. Nothing is simulated:

    toolorchestra recorded replay outcomes.csv --prices mine.json --models gpt-5 gpt-5-mini --out replay.md

    Each task is held out once, by five folds. Single models on the front, cheapest, strongest, knn, skillbook, a router
    trained by logistic regression, the task oracle, and models sent from the cheapest up until a check passes.
    """
    from toolorchestra.agents.evaluation import replayed_routing
    from toolorchestra.envs.domains.recorded.source import FOLDS, RecordedSource
    from toolorchestra.envs.domains.recorded.world import priced

    make_room("--out", given.out)
    rows = given.read()
    models = given.models or replayed_routing.complete_models(rows, given.complete)
    rows = rows.only(models)
    graded = rows.where_rows(rows.success == rows.success)  # nan: nobody graded it
    kept = priced(graded) if given.unpriced == "drop" else graded
    source = RecordedSource(rows=kept, models=models)
    table, runs = replayed_routing.table_of(source, given.prices), source.runs
    lines = replayed_routing.contest(table, [runs.text(task) for task in table.tasks], given.cost_weight)
    best = table.models[replayed_routing.best_single(table)]
    page = [
        f"{len(table.tasks)} tasks, {len(table.models)} models, {FOLDS} folds. Gain and saving are against",
        f"the best single model, {best}. Intervals are of 95 %, by a bootstrap-t of tasks.",
    ]
    if len(kept) < len(graded) or runs.left_out:
        page.append(
            f"Left out: {len(graded) - len(kept)} runs without a price, {runs.left_out} tasks that not all ran."
        )
    page += ["", f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|", *map(_line, lines)]
    _written("\n".join(page) + "\n", given.out, "table")
    return DONE


def _line(one: ReplayedLine) -> str:
    accuracy = "{:.1%} ({:.1%} to {:.1%})".format(*one.accuracy)
    usd = "{:.3f} ({:.3f} to {:.3f})".format(*one.usd)
    shares = ("{:+.0%} ({:+.0%} to {:+.0%})".format(*value) for value in (one.gain, one.saving))
    gain, saving = ("-" if share.startswith("+nan") else share for share in shares)
    seconds = f"{one.seconds:.0f}" if isfinite(one.seconds) else "not known"
    return f"| {one.policy} | {accuracy} | {usd} | {seconds} | {gain} | {saving} |"


fit = partial(command, FitOptions, run_fit, about=run_fit.__doc__)
world = partial(command, WorldOptions, run_world, about=run_world.__doc__)
replay = partial(command, ReplayOptions, run_replay, about=run_replay.__doc__)
