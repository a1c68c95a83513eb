"""A run's answers graded again: nothing is played, and the old run stays as it is.

Each trajectory keeps what its grade follows from: an answer; or the calls and words of the episode, which are made
again in a fresh world of the same task. A judge is asked again, and what it costs is no part of the rows' bills: it is
the cost of grading. What cannot be graded again keeps its outcome, with the reason beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.evaluation.rows import (
    LEARNT,
    MANIFEST,
    RETRIED,
    ROWS,
    SUMMARY,
    TRAJECTORIES,
    EvaluationRow,
    line_of,
    read_rows,
)
from toolorchestra.agents.evaluation.run_files import RowKey, keyed_trajectories, lines_found, read_manifest
from toolorchestra.agents.evaluation.summary import latest, read_planned, summarise
from toolorchestra.envs.base.errors import ConfigError, WrongSetting, one_line
from toolorchestra.envs.base.files import write_json
from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.world import Regradable, World
from toolorchestra.envs.episode.calls import ReadyCall
from toolorchestra.envs.episode.rules import held_to
from toolorchestra.envs.factory import EpisodeFactory, drawing_seed
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.tools import Tool, ToolContext
from toolorchestra.envs.wrappers.record import trajectory_line

IN_GRADING = ("grade", "judge")
"""Where an episode failed that had come to its end: it can have an outcome after all."""
REASON_CHARACTERS = 200
Envs = Mapping[tuple[str, str], EpisodeFactory]
"""Factories by what the run calls the environment, and by split."""


class _Unrepeatable(Exception):
    """Why an episode cannot be graded again."""


@dataclass
class Rescoring:
    """The outcomes of a run that changed when its answers were graded again."""

    rows: dict[RowKey, EvaluationRow]
    """All rows of the run; those that were graded again have their new outcome."""
    changed: list[tuple[EvaluationRow, EvaluationRow]] = field(default_factory=list)
    """Rows with another outcome: each as it was, and as it is now."""
    graded: int = 0
    kept: dict[RowKey, str] = field(default_factory=dict)
    """Rows that could not be graded again, each with the reason."""
    without: int = 0
    """Trials that failed or were cut before there was anything to grade."""
    nano_usd: int = 0
    """What grading again cost, in billionths of a dollar."""
    tokens: Counter[str] = field(default_factory=Counter)
    """The judges' tokens, by class."""

    def sentences(self) -> list[str]:
        """What changed, as sentences for a person to read."""
        said = [f"{self.graded} of {len(self.rows)} trials graded again: {len(self.changed)} have another outcome."]
        said.append(f"Grading cost {self.nano_usd / NANO:.9f} $, which is no part of the trials' bills.")
        if self.without:
            said.append(f"{self.without} trials failed or were cut before there was anything to grade; they stay so.")
        if self.kept:
            said.append(f"{len(self.kept)} trials could not be graded again, and keep their outcome:")
        said += [f"  {' '.join(map(str, key))}: {reason}" for key, reason in self.kept.items()]
        return said

    def told(self) -> dict[str, Any]:
        """The same as a dict, for the manifest of the new run."""
        kept = [{"key": list(key), "reason": reason} for key, reason in self.kept.items()]
        counts = {"graded": self.graded, "changed": len(self.changed), "without_outcome": self.without}
        return {**counts, "kept": kept, "grading_nano_usd": self.nano_usd, "grading_tokens": dict(self.tokens)}


async def rescore(
    run: Path,
    out: Path,
    envs: Envs,
    at_once: int = 64,
    cap: SpendCap | None = None,
    told: Mapping[str, Any] | None = None,
) -> Rescoring:
    """Grade a folder's run again into another folder, which may not be there yet. `told` goes into its manifest."""
    if out.exists():
        raise ConfigError(f"{out} is there already; name a new folder")
    made = Rescoring({row.key: row for row in latest(read_rows(run))})
    chosen = lines_found(run / TRAJECTORIES, made.rows)
    work = _Regrader(envs, asyncio.Semaphore(at_once), Gates(), cap, made)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:  # no half of a run is left
        fresh = Path(scratch) / out.name
        fresh.mkdir()
        await _write_trajectories(run, fresh, chosen, work, at_once)
        for key in made.rows.keys() - chosen.keys():
            work.keep(made.rows[key], "its trajectory is not there")
        for name in (RETRIED, LEARNT):
            if (run / name).is_file():
                shutil.copy2(run / name, fresh / name)
        (fresh / ROWS).write_bytes(b"".join(map(line_of, made.rows.values())))
        write_json(fresh / MANIFEST, {**read_manifest(run), "rescored": {**made.told(), **(told or {})}})
        write_json(fresh / SUMMARY, summarise(made.rows.values(), read_planned(run)).to_json())
        fresh.rename(out)
    return made


async def _write_trajectories(
    run: Path, fresh: Path, chosen: Mapping[RowKey, int], work: _Regrader, together: int
) -> None:
    """Grade each trajectory, some at once, and write them in their order."""
    with (fresh / TRAJECTORIES).open("wb") as file:
        waiting: list[dict[str, Any]] = []
        for key, number, line in keyed_trajectories(run / TRAJECTORIES):
            if chosen.get(key) != number:
                continue
            waiting.append(line)
            if len(waiting) == together:
                file.writelines(await work.lines(waiting))
                waiting = []
        file.writelines(await work.lines(waiting))


class _Grade(NamedTuple):
    """What grading an episode again came to."""

    outcome: Outcome
    nano_usd: int


@dataclass
class _Regrader:
    """Grades trajectories, and notes what came of each."""

    envs: Envs
    places: asyncio.Semaphore
    gates: Gates
    cap: SpendCap | None
    made: Rescoring

    async def lines(self, found: Sequence[dict[str, Any]]) -> list[bytes]:
        """Give these trajectories with their new outcomes, as lines."""
        return [trajectory_line(line) for line in await asyncio.gather(*map(self._one, found))]

    async def _one(self, line: dict[str, Any]) -> dict[str, Any]:
        row = self.made.rows[tuple(line["key"])]
        broken = (line.get("failed") or {}).get("where")
        if row.status != "ended" and (row.status == "cut" or broken not in IN_GRADING or not line.get("grading")):
            self.made.without += 1
            return line
        try:
            async with self.places:
                grade = await self._grade(row, line)
        except WrongSetting:
            raise
        except _Unrepeatable as err:
            self.keep(row, str(err))
            return line
        except Exception as err:  # noqa: BLE001 - the other trials go on
            self.keep(row, f"{type(err).__name__}: {err}")
            return line
        return self._take(row, line, grade)

    async def _grade(self, row: EvaluationRow, line: Mapping[str, Any]) -> _Grade:
        made = self.envs.get((row.env, row.split))
        if made is None:
            raise _Unrepeatable("the run's manifest does not name its environment")
        scene = made.source.open(row.task, line["seed"], made.sheet, None)
        bill = Bill(scene.sheet, self.cap)
        context = ToolContext(scene.world, drawing_seed(line["seed"], line.get("luck")), bill)
        found = _ended_world(row, line, scene.world, context)
        if isinstance(found, Tool):
            done = await self.gates.perform(ReadyCall(found, {}, context))
            charges = [scene.sheet.charge(usage) for usage in done.booked]
            self.made.nano_usd += (cost := sum(charge.nano_usd for charge in charges))
            for charge in charges:
                self.made.tokens.update(charge.usage.tokens._asdict())
            if done.failure and done.failure.setting:
                raise WrongSetting(done.failure.setting)
            if done.result.outcome is None:
                raise _Unrepeatable(done.failure.error if done.failure else done.result.content)
            found, spent = done.result.outcome, cost
        else:
            spent = 0
        over = round(row.over_budget_usd * NANO)
        return _Grade(held_to(found, over) if over > 0 else found, spent)

    def keep(self, row: EvaluationRow, reason: str) -> None:
        """Note that an outcome stays as it was."""
        reason = one_line(reason)[:REASON_CHARACTERS]
        self.made.kept[row.key] = reason
        self.made.rows[row.key] = replace(row, rescored={"kept": reason})

    def _take(self, row: EvaluationRow, line: dict[str, Any], grade: _Grade) -> dict[str, Any]:
        value, evidence = grade.outcome.value, json.loads(json.dumps(dict(grade.outcome.evidence), default=str))
        before = {"status": row.status, "right": row.right, "nano_usd": grade.nano_usd}
        same = (row.right, json.loads(json.dumps(row.evidence, default=str))) == (value, evidence)
        now = replace(
            row,
            status="ended",
            right=value,
            evidence=evidence,
            failure="",
            truncated_by=row.truncated_by if row.status == "ended" else grade.outcome.truncated_by,
            digest=row.digest if same else _digest(row.digest, value, evidence),
            rescored=before,
        )
        self.made.rows[row.key] = now
        self.made.graded += 1
        if (row.status, row.right) != (now.status, now.right):
            self.made.changed.append((row, now))
        return {**line, "outcome": {"value": value, "evidence": evidence}, "failed": None,
                "truncated_by": now.truncated_by}  # fmt: skip


def _ended_world(row: EvaluationRow, line: Mapping[str, Any], world: World, context: ToolContext) -> Outcome | Tool:
    """The world's grade, when it is where the episode ended."""
    kept = line.get("grading")
    if kept is None and isinstance(world, QaWorld) and "answer" in row.evidence:  # the run is older than `grading`
        kept = {"finished": not row.truncated_by, "of": {"answer": row.evidence["answer"]}}
    if not isinstance(world, Regradable):
        raise _Unrepeatable(f"{type(world).__name__} cannot be graded from what was kept")
    if kept is None:
        raise _Unrepeatable("its trajectory does not hold what the grade follows from; it is of an earlier version")
    world.take_up(kept["of"], context)
    return world.grade(finished=kept["finished"])


def _digest(before: str, value: float, evidence: object) -> str:
    return hashlib.blake2b(f"{before}\x1f{value}\x1f{evidence}".encode(), digest_size=16).hexdigest()
