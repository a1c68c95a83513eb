"""What runs came to, as tables and as pages with every transcript: `toolorchestra report runs/tiny-seed* runs/mine`.

Runs of training stand beside each other in one table, and each evaluation has its own. Each run gets a page.html, made
of what its folder holds: no model is asked. With --stages, the test tasks of training runs are played by the model as
it was before reinforcement learning, by the best checkpoint, and by the last one if that is another; and by baselines.
What was played is kept in report/stages.json of the run, and is not played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, say, say_aside
from toolorchestra.agents.evaluation.rows import (
    PAID,
    RETRIED,
    ROWS,
    EvaluationRow,
    grouped,
    latest,
    read_learnt,
    read_manifest,
    read_rows,
    simulated_in,
)
from toolorchestra.agents.evaluation.summary import read_planned, summarise
from toolorchestra.agents.evaluation.summary_tables import as_text
from toolorchestra.agents.reports import stages
from toolorchestra.agents.reports.page import PageWritten, write_page, write_page_of_runs
from toolorchestra.agents.reports.training_data import figures, is_training, read_kept
from toolorchestra.envs.base.errors import AT_LEAST_ONE, NOT_NEGATIVE, ConfigError, require
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.ledger import unconfirmed_nano_usd
from toolorchestra.envs.money.prices import NANO, TOOL


@dataclass(frozen=True)
class ReportOptions:
    """What `toolorchestra report` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of `toolorchestra train` and `toolorchestra evaluate --out`, or files that RecordTrajectories wrote."""
    out: Path | None = None
    """The page's file. Several runs of training, or several evaluations, are then beside each other, to choose among;
    a file of RecordTrajectories has a page of its own. Without it each run gets a page.html in its folder, or a page
    beside its file."""
    stages: bool = False
    """Say what each stage of training brought, on held-out tasks of the runs."""
    tasks: int = 100
    """Number of a run's own test tasks that are played in each environment, with --stages."""
    again: bool = False
    """Play again, with --stages, what was kept from an earlier call."""
    paid: float | None = None
    """Dollars that the provider says the models of these evaluations cost. Then it is said what of it their folders
    know."""

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "tasks")
        require(self, NOT_NEGATIVE, *(["paid"] if self.paid is not None else []))


def run(given: ReportOptions) -> int:
    """Print the tables, and write the pages."""
    if not given.runs:
        raise ConfigError("report takes folders of `toolorchestra train` or `toolorchestra evaluate --out`, got none")
    if given.out is not None and given.out.is_dir():
        raise ConfigError(f"--out: a file expected, but {given.out} is a folder; name a file in it")
    trained = [folder for folder in given.runs if not (folder / ROWS).is_file() and is_training(folder)]
    if given.stages:
        _stages(given, trained)
    _tables(given.runs, trained)
    if given.paid is not None:
        say(reconciled(given.runs, given.paid))
    if given.out is not None and len(given.runs) > 1:
        _tell(write_page_of_runs(given.runs, given.out))
    else:
        for place in given.runs:
            _tell(write_page(place, given.out))
    return DONE


main = partial(command, ReportOptions, run, about=__doc__)


def _tables(runs: Sequence[Path], trained: Sequence[Path]) -> None:
    """The tables of the training runs that have ended, and the figures of each evaluation."""
    ended = [folder for folder in trained if read_kept(folder).summary is not None]
    if ended:
        say(figures(ended))
    for folder in trained:
        if folder not in ended:
            say_aside(f"{folder} has not come to its report yet: its page shows what is there")
    for folder in runs:
        if not (folder / ROWS).is_file():
            continue
        if rows := latest(read_rows(folder)):
            unreal = simulated_in(read_manifest(folder))
            made = summarise(rows, read_planned(folder), learnt=read_learnt(folder), simulated=unreal)
            say(f"{folder}\n\n{as_text(made)}")
        else:
            say_aside(f"{folder} has no trial that was played yet: its page shows what is there")


def reconciled(runs: Sequence[Path], usd: float) -> str:
    """What a provider's count of the models' dollars says of what nobody has confirmed, in a sentence. What a kill has
    left in a journal counts too. Of what was paid to learn nobody kept who had counted it."""
    rows = [row for run in runs for row in _played(run)]
    learnt = sum(nano_usd for run in runs for nano_usd in read_learnt(run).values())
    kept = [one for run in runs for some in SpendJournal.left(run / PAID).values() for one in some]
    left = [charge for charge in kept if charge.usage.role != TOOL]
    unread = unconfirmed_nano_usd(left)
    sure, paid = sum(charge.nano_usd for charge in left) - unread + sum(map(_counted, runs)), round(usd * NANO)
    unread += sum(row.unconfirmed_nano_usd - row.unconfirmed_tool_nano_usd for row in rows)
    most = sure + unread + learnt
    known = f"the models' servers counted {sure / NANO:.9f} $, and {(most - sure) / NANO:.9f} $ are unconfirmed"
    known += " or were paid to learn" if learnt else ""
    if paid < sure:
        return f"{known}; the provider counts {(sure - paid) / NANO:.9f} $ less than its servers did"
    if paid > most:
        more = f"{(paid - most) / NANO:.9f} $ more than can be: was the key used elsewhere, or is a price another?"
        return f"{known}; the provider counts {more}"
    return f"{known}; of these {(paid - sure) / NANO:.9f} $ were paid, says the provider"


def _played(run: Path) -> list[EvaluationRow]:
    return [row for name in (ROWS, RETRIED) if (run / name).is_file() for row in read_rows(run / name)]


def _counted(run: Path) -> int:
    """Nano-dollars that the servers of a run's models have counted. With a cache the plays of a trial are billed the
    same replies again."""
    asked = read_manifest(run).get("asked")
    together = max if isinstance(asked, Mapping) and asked.get("cache") else sum
    plays = grouped(_played(run), lambda row: row.key)
    return sum(
        together(
            row.nano_usd - row.nano_usd_by_role.get(TOOL, 0) - row.unconfirmed_nano_usd + row.unconfirmed_tool_nano_usd
            for row in some
        )
        for some in plays.values()
    )


def _stages(given: ReportOptions, trained: Sequence[Path]) -> None:
    """Play what is missing, and print the tables of each run and of all together."""
    if len(trained) < len(given.runs):
        raise ConfigError("--stages is about runs of training; name their folders alone")
    found = [stages.stages_of(folder, given.tasks, again=given.again, say=say) for folder in trained]
    for folder, played in zip(trained, found, strict=True):
        say(f"\n## {folder.name}\n\n{stages.as_markdown(played)}")
    if len({frozenset(played.plays) - {stages.LAST} for played in found}) > 1:
        say_aside("these runs differ in their stages, or in whether the oracle plays: no table of all of them together")
    elif len(found) > 1:
        say(f"\n## All runs\n\n{stages.as_markdown(stages.together(found))}")


def _tell(written: PageWritten) -> None:
    for note in written.notes:
        say_aside(note)
    size = written.file.stat().st_size / 1e6
    say_aside(f"{written.file}: {written.trials} trials, {written.transcripts} transcripts, {size:.1f} MB")
