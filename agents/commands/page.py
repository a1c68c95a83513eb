"""The page of an evaluation: one HTML file with its figures and every transcript, to open in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.reports.evaluation_page import write_page
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class PageOptions:
    """What `toolorchestra page` takes."""

    run: tyro.conf.Positional[Path]
    """A folder of `toolorchestra evaluate --out`, or of `toolorchestra train` for the rollouts that it has dumped, or a
    file that RecordTrajectories has written."""
    out: Path | None = None
    """The file to write; without it page.html in the folder, or beside the file of trajectories."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(PageOptions, run, given, about=__doc__)


def run(given: PageOptions) -> int:
    """Writes the page of an evaluation, and prints where it is."""
    if given.out is not None and given.out.is_dir():
        raise ConfigError(f"--out: a file expected, but {given.out} is a folder; name a file in it")
    written = write_page(given.run, given.out)
    for note in written.notes:
        say(note)
    size = written.file.stat().st_size / 1e6
    say(f"{written.file}: {written.trials} trials, {written.transcripts} transcripts, {size:.1f} MB")
    return DONE
