"""Bill a run of `toolorchestra evaluate` under another price sheet: `toolorchestra reprice runs/mine deepinfra.json`.

Nothing is played: each charge in the run's trajectories gets its new price, and a new folder is written. Where the
agent was shown other prices, the bill is an estimate of what it would have spent, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.evaluation.repricing import reprice
from toolorchestra.envs.money.prices import load_sheet


@dataclass(frozen=True)
class RepriceOptions:
    """What `toolorchestra reprice` takes."""

    run: tyro.conf.Positional[Path]
    """The folder of a run, as `toolorchestra evaluate --out FOLDER` made it."""
    sheet: tyro.conf.Positional[str]
    """A price sheet: the name of one that comes with the package, or a JSON file."""
    out: Path | None = None
    """The new folder. Beside the run's, with the sheet's id behind its name, when left out."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(RepriceOptions, run, given, about=__doc__)


def run(given: RepriceOptions) -> int:
    """Bill, write, and say what changed."""
    sheet = load_sheet(given.sheet)
    place = given.run.resolve()
    out = given.out or place.with_name(f"{place.name}-{sheet.sheet_id.replace('/', '-')}")
    for sentence in reprice(given.run, sheet, out).sentences():
        say(sentence)
    say(f"written: {out}")
    return DONE
