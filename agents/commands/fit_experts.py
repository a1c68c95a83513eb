"""Fit simulated experts to recorded outcomes of real models, and say how good the fit is:

toolorchestra fit-experts outcomes.csv --out experts.json --page fit.md

A row is one run of one model on one task: task, family, model, run, success, seconds, input, output, reasoning, usd.
docs/calibrate.md says what columns may be called and what other recordings can be read. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class FitExpertsOptions:
    """What `toolorchestra fit-experts` takes."""

    outcomes: tyro.conf.Positional[Path]
    """A table (.csv, .tsv, .jsonl, gzipped or not), or what --form names."""
    form: str = "table"
    """What the recording is: see docs/calibrate.md."""
    columns: tuple[str, ...] = ()
    """NAME=COLUMN where a table calls something else, such as task=instance_id."""
    reasoning_apart: tuple[str, ...] = ()
    """Models whose `all_output` has no reasoning tokens in it, as xAI's servers count."""
    models: tuple[str, ...] = ()
    """Fit these models only; without it, all."""
    out: Path | None = None
    """Where the fitted numbers go, as JSON."""
    page: Path | None = None
    """Where the goodness of the fit goes, as Markdown; it is printed without it."""
    source: str = ""
    """Where the rows are from, with their revision: kept in the file."""
    draws: int = 200
    """How many times the tasks are drawn again (bootstrap) for the intervals."""
    simulations: int = 100
    """How many simulated recordings the real one is compared with."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(FitExpertsOptions, run, given, about=__doc__)


def run(given: FitExpertsOptions) -> int:
    """Fit, write, and say how good it is."""
    from toolorchestra.agents.calibration import fit, goodness

    check_counts(given, {"draws": 2, "simulations": 2})
    rows = _rows(given)
    say(f"{len(rows):,} rows of {len(rows.tasks):,} tasks and {len(rows.models)} models are read; now they are fitted")
    made = fit.fit(rows, given.draws)
    if given.out is not None:
        fit.write(made, given.out, given.source)
        say(f"{given.out} written: {len(made.rows.models)} models")
    text = goodness.page(made, given.simulations)
    if given.page is None:
        say(text)
        return DONE
    try:
        given.page.write_text(f"# How good the fit is\n\n{text}", encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"the page cannot be written to {given.page}: {err.strerror}") from None
    say(f"{given.page} written")
    return DONE


def _rows(given: FitExpertsOptions):  # type: ignore[no-untyped-def]
    from toolorchestra.envs.outcomes.forms import read
    from toolorchestra.envs.outcomes.table import columns_of

    rows = read(given.form, given.outcomes, columns_of(given.columns), given.reasoning_apart)
    return rows.only(given.models) if given.models else rows
