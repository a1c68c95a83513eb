"""The results of training runs that have ended, in one table: `toolorchestra report runs/tiny-seed*`.

With --page they are drawn as a page too: of one run its whole report, of several their curves beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, check_runs, command, say, say_aside
from toolorchestra.agents.reports.report_data import read_report
from toolorchestra.agents.reports.report_page import report_page
from toolorchestra.agents.reports.runs_page import runs_page
from toolorchestra.agents.reports.seeds_table import as_markdown, read_summaries
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class ReportOptions:
    """What `toolorchestra report` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs that have ended."""
    page: Path | None = None
    """A file to write a page to, such as report.html. It is made of what the folders hold; no model is asked."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ReportOptions, run, given, about=__doc__)


def run(given: ReportOptions) -> int:
    """Print the table, and write the page that is asked for."""
    check_runs(given.runs, "report")
    say(as_markdown(read_summaries(given.runs)))
    if given.page is not None:
        if given.page.is_dir():
            raise ConfigError(f"--page: a file expected, but {given.page} is a folder; name a file in it")
        found = [read_report(folder) for folder in given.runs]
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(report_page(found[0]) if len(found) == 1 else runs_page(found), encoding="utf-8")
        say_aside(f"page: {given.page}")
    return DONE
