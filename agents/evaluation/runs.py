"""A run of an evaluation: what is to be played, the folder that it is kept in, and going on after it was broken off."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import (
    LEARNT,
    MANIFEST,
    PAID,
    RETRIED,
    ROWS,
    TRAJECTORIES,
    Cell,
    EvaluationRow,
    RowKey,
    bill_of,
    chained,
    grouped,
    learnt_lines,
    line_of,
    most_answered,
    paid_for,
    read_learnt,
    read_rows,
    seal_in,
)
from toolorchestra.agents.evaluation.run_files import (
    MADE_WITH,
    made_with,
    require_all,
    require_asked,
    require_same,
    surroundings,
    whole_manifest,
)
from toolorchestra.agents.evaluation.summary import PlannedTrials
from toolorchestra.agents.evaluation.trials import ContestPlay, Trial
from toolorchestra.agents.policies.base import Player, unreal
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import append_line, keep_lines, write_json, write_whole
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.ledger import NO_REPLIES, Replies
from toolorchestra.envs.wrappers.record import trajectory_line

LEAST_ROWS = 10
SILENT = 5
"""Replies without a word that tell that a model is not as it should be, where it never said one."""


@dataclass
class Contest:
    """One policy on one environment's split, and its trials."""

    env: str
    split: str
    policy: str
    made: EpisodeFactory
    player: Player
    trials: Sequence[Trial]
    closed: bool = False
    """Whether what its player holds has been ended."""

    @property
    def cell(self) -> Cell:
        return (self.env, self.split, self.policy)


def planned_of(contests: Sequence[Contest]) -> dict[Cell, PlannedTrials]:
    """How many trials there are to be."""
    tasks = {one.cell: len({trial.task for trial in one.trials}) or 1 for one in contests}
    return {one.cell: PlannedTrials(len(one.trials), len(one.trials) // tasks[one.cell]) for one in contests}


def simulated(contests: Sequence[Contest]) -> dict[str, bool]:
    """Whether no real model stands behind the environments, whatever index or sandbox does; and whether none stands
    behind the experts of one of them."""
    experts = any(getattr(one.made.source, "experts_simulated", False) for one in contests)
    return {"simulated": all(unreal(one.made) for one in contests), "experts_simulated": experts}


def left_out(contests: Sequence[Contest]) -> dict[str, dict[str, int]]:
    """How many rows of data sets are not played, by environment and why."""
    found = {one.env: dict(getattr(one.made.source, "left_out", {})) for one in contests}
    return {env: counts for env, counts in found.items() if counts}


def digest_of_run(rows: Iterable[EvaluationRow]) -> str:
    """One digest of all rows: equal where every transcript, charge and outcome is."""
    parts = ((row.digest, row.status, row.right, sorted(row.nano_usd_by_role.items()))
             for row in sorted(rows, key=lambda row: row.key))  # fmt: skip
    text = "".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass
class EvaluationRun:
    """The rows of a run, in memory and, where it has a folder, on disk."""

    folder: Path | None = None
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    rows: dict[RowKey, EvaluationRow] = field(default_factory=dict)
    learnt: tuple[str, ...] = ()
    """What players that learn first paid for it, in words."""
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    learning: dict[Cell, int] = field(default_factory=dict)
    """The same in nano-dollars."""
    ended_by: BaseException | None = None
    """What broke the run off."""
    stop_after: float | None = None
    """How many trials may fail; below 1, which share of them, once there are ten."""
    replies: dict[str, Replies] = field(default_factory=dict)
    """What came of the requests to each model, over all rows."""
    journal: SpendJournal | None = None
    """What trials in flight have sent and paid, where real backends are behind them and there is a folder."""
    cached: bool = False
    """Whether a cache answers: then a trial that is played again is billed what it paid before, too."""
    _last_seal: str = ""
    """The seal of the last line of rows.jsonl."""

    @classmethod
    def open(
        cls,
        folder: Path | None,
        asked: Mapping[str, Any],
        contests: Sequence[Contest] = (),
        *,
        resume: bool = False,
        allow_changed: bool = False,
    ) -> EvaluationRun:
        """A new run; or with `resume` the folder's, with all of its rows. What is asked must be the same, and so must
        the files that it is made with, unless `allow_changed`. Whoever opens a folder that others may open too holds
        it meanwhile: see envs.base.files."""
        cached = bool(asked.get("cache"))
        if folder is None:
            return cls(cached=cached)
        if (folder / "checkpoints").is_dir():
            raise ConfigError(f"{folder} holds a training; name another folder", command_line="another --out FOLDER")
        there = (folder / MANIFEST).is_file()
        if there and not resume:
            raise ConfigError(
                f"{folder} holds an evaluation already; go on with it: resume=True, or name another folder",
                command_line="--resume, or another --out FOLDER",
            )
        digests = made_with(contests)
        if there:
            manifest = whole_manifest(folder)
            require_asked(manifest, asked, folder)
            run = cls(folder, manifest["run_id"], cached=cached)
            rows = list(read_rows(folder, sealed=True)) if (folder / ROWS).is_file() else []
            require_all(folder, rows)
            begun = any(row.status == "ended" for row in rows)
            require_same(manifest, digests, folder, begun=begun, allowed=allow_changed)
            run._take_up(rows)
            run._take_up_paid(contests)
            return run
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, cached=cached)
        manifest = {
            "run_id": run.run_id,
            "asked": asked,
            MADE_WITH: digests,
            "planned": [[*cell, plan.trials] for cell, plan in planned_of(contests).items()],
            "task_versions": {
                one.env: str(one.made.source.version) for one in contests if hasattr(one.made.source, "version")
            },
            **simulated(contests),
            "left_out": left_out(contests),
            "tasks": {
                f"{one.env} {one.split}": [*dict.fromkeys(trial.task for trial in one.trials)] for one in contests
            },
            **surroundings(),
        }
        write_json(folder / MANIFEST, manifest)
        run._take_up_paid(contests)
        return run

    def _take_up(self, there: Sequence[EvaluationRow]) -> None:
        """Go on with the rows of a folder. Those of trials that failed or were cut go to a file of their own, for they
        are played again; what they cost was paid. Lines that a kill tore go."""
        assert self.folder is not None
        aside = self.folder / RETRIED
        keep_lines(aside, lambda row: isinstance(row, Mapping))
        self.rows = {row.key: row for row in there if row.status == "ended"}
        for row in self.rows.values():
            self._count(row)
        self.learning = read_learnt(self.folder)
        known = {(row.key, row.digest) for row in self._set_aside()}
        for row in there:
            if row.status != "ended" and (row.key, row.digest) not in known:  # else a kill came before what follows
                append_line(aside, line_of(row))
        self._write_rows()
        kept = {tuple(key) for key in self.rows}
        keep_lines(self.folder / TRAJECTORIES, lambda row: tuple(row["key"]) in kept)

    def _take_up_paid(self, contests: Sequence[Contest]) -> None:
        """Begin the journal of what is paid; what a kill has left there is kept as plays that were broken off."""
        assert self.folder is not None
        path = self.folder / PAID
        its = SpendJournal.session_of(path)
        known = {row.digest for row in self._set_aside()}
        seeds = {trial.key: trial.seed for contest in contests for trial in contest.trials}
        for payer, charges in SpendJournal.left(path).items():
            if not payer:
                # Of what the journal has, plays that ended before the kill stand in its session's own lines.
                lines = learnt_lines(self.folder)
                kept = sum(paid for cell, paid, session in lines if session == its and any(cell))
                self.add_learning(("", "", ""), max(0, sum(charge.nano_usd for charge in charges) - kept))
                continue
            _, env, split, policy, *task, number = payer.split("|")
            key = (env, split, policy, "|".join(task), int(number))
            # With the session: a trial may be killed twice in the same request, and both were paid.
            digest = hashlib.blake2b(repr((its, charges)).encode(), digest_size=16).hexdigest()
            if key not in self.rows and digest not in known:  # else a kill came before its line was closed
                row = EvaluationRow(
                    *key, seeds.get(key, 0), "cut", None, failure="broken off by a kill", **bill_of(charges),
                    sheet=charges[0].sheet, digest=digest,
                )  # fmt: skip
                append_line(self.folder / RETRIED, line_of(row))
        if path.is_file() or any(getattr(one.made.source, "backing", None) is not None for one in contests):
            self.journal = SpendJournal(path)
            self.journal.clear(self.session)

    def _set_aside(self) -> list[EvaluationRow]:
        """The rows of plays that do not count."""
        path = self.folder / RETRIED if self.folder is not None else None
        return list(read_rows(path)) if path is not None and path.is_file() else []

    def payer(self, key: RowKey) -> str:
        """Name of who pays for a trial, as cassettes and the journal call it."""
        return f"{self.run_id}|{'|'.join(map(str, key))}"

    def _closed(self, payer: str) -> None:
        if self.journal is not None:
            self.journal.closed(payer)

    @property
    def nano_usd(self) -> int:
        """All that the run has cost, with what was played again."""
        aside = grouped(self._set_aside(), lambda row: row.key)
        ended = sum(paid_for(aside.pop(key, []), row.nano_usd, cached=self.cached) for key, row in self.rows.items())
        broken_off = sum(paid_for(plays, cached=self.cached) for plays in aside.values())
        return ended + broken_off + sum(self.learning.values())

    @property
    def unconfirmed_nano_usd(self) -> int:
        """The part of it that nobody has confirmed: of requests whose replies nobody read to the end, or counted."""
        return sum(row.unconfirmed_nano_usd for row in (*self._set_aside(), *self.rows.values()))

    def add_learning(self, cell: Cell, nano_usd: int) -> None:
        """Keep what a player that learns first has paid for a play, whether that got to its end or not."""
        if not nano_usd:
            return
        self.learning[cell] = self.learning.get(cell, 0) + nano_usd
        if self.folder is not None:
            told = {"player": list(cell), "nano_usd": nano_usd, "session": self.session}
            append_line(self.folder / LEARNT, json.dumps(told).encode() + b"\n")

    def learnt_enough(self) -> None:
        """Note that no play of a train task is in flight any more: all that they paid is kept."""
        self._closed("")

    def billed_again(self) -> dict[RowKey, int]:
        """What plays that do not count have cost which a cache bills the next play of the trial too."""
        return {key: most_answered(plays) for key, plays in grouped(self._set_aside(), lambda row: row.key).items()}

    def interrupted(self, trial: Trial, episode: Episode | None) -> None:
        """Keep what a trial has cost that was broken off."""
        if episode is None or self.folder is None:
            return
        episode.settle()
        if charges := list(episode.ledger):
            row = EvaluationRow(
                *trial.key, trial.seed, "cut", None, failure="broken off", turns=episode.turn, **bill_of(charges),
                sheet=episode.sheet.sheet_id,
            )  # fmt: skip
            append_line(self.folder / RETRIED, line_of(row))
        self._closed(self.payer(trial.key))

    def add(self, row: EvaluationRow, trajectory: Mapping[str, Any]) -> None:
        """Keep an ended trial. Its trajectory goes first: a row stands for a whole trial."""
        if self.folder is not None:
            append_line(self.folder / TRAJECTORIES, trajectory_line(trajectory))
            line = line_of(row, self._last_seal)
            append_line(self.folder / ROWS, line)
            self._last_seal = seal_in(line)
            self._closed(self.payer(row.key))
        self.rows[row.key] = row
        self._count(row)

    def _count(self, row: EvaluationRow) -> None:
        for model, counts in row.replies.items():
            self.replies[model] = self.replies.get(model, NO_REPLIES).plus(counts)

    def silent(self, models: Iterable[str]) -> str:
        """Name the first of these models that has said nothing in any of its replies, in a sentence; "" for none. Its
        setting is wrong then, and the outcomes of all trials that asked it are not known."""
        for model in models:
            count = self.replies[model]
            nothing = count.refused + count.empty
            if nothing >= SILENT and nothing + count.failed >= count.asked:
                why = f"model {model!r} has answered none of {count.asked} requests: {count.empty} replies were empty, "
                why += f"{count.refused} requests refused. Look at its server's log and at output_tokens of its entry"
                self._lose(model, why)
                return why
        return ""

    def too_many_failures(self) -> str:
        """Say in a sentence that more trials have failed than the run is to bear; "" where they have not."""
        if self.stop_after is None:
            return ""
        failed, there, most = sum(row.status == "failed" for row in self.rows.values()), len(self.rows), self.stop_after
        stops = failed >= most if most >= 1 else failed > most * max(there, LEAST_ROWS)
        return f"{failed} of {there} trials failed, and after {most:g} the run is to stop" if stops else ""

    def _lose(self, model: str, why: str) -> None:
        for key, row in self.rows.items():
            if model in row.replies and row.status == "ended":
                self.rows[key] = replace(row, status="failed", right=None, failure=why)
        self._write_rows()

    def _write_rows(self) -> None:
        if self.folder is not None:
            lines, self._last_seal = chained(self.rows.values())
            write_whole(self.folder / ROWS, lines)

    async def play(self, contest: Contest, at_once: int, watch: Callable[[EvaluationRow], None] | None = None) -> None:
        """Play what the contest still lacks. `watch` is told of each row. Raises ConfigError, when all that had begun
        has ended, where a setting turns out to be wrong that would fail every trial."""
        await ContestPlay(self, contest, at_once, watch).play()
