"""The results of training runs that have ended, in one table: `toolorchestra report runs/tiny-seed*`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.reports.seeds_table import as_markdown, read_summaries


@dataclass(frozen=True)
class ReportOptions:
    """What `toolorchestra report` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs that have ended."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ReportOptions, run, given, about=__doc__)


def run(given: ReportOptions) -> int:
    """Print the table."""
    say(as_markdown(read_summaries(given.runs)))
    return DONE
