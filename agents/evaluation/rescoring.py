"""A run's answers graded again: nothing is played, and the old run stays as it is.

Each trajectory keeps what its grade follows from: an answer; or the calls and words of the episode, which are made
again in a fresh world of the same task. A judge is asked again, and what it costs is no part of the rows' bills: it is
the cost of grading. What cannot be graded again keeps its outcome, with the reason beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.rows import (
    RETRIED,
    TRAJECTORIES,
    EvaluationRow,
    RowKey,
    latest,
    read_rows,
)
from toolorchestra.agents.evaluation.run_files import chosen_trajectories, lines_of_rows, made_anew, write_anew
from toolorchestra.agents.evaluation.trials import UNKNOWN, value_of
from toolorchestra.envs.base.errors import WrongSetting, one_line
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
from toolorchestra.envs.wrappers.record import strict_json, trajectory_line

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
    made, path = Rescoring({row.key: row for row in latest(read_rows(run))}), run / TRAJECTORIES
    work = _Regrader(envs, Gates(), cap, made)
    with made_anew(out) as fresh:
        lines = lines_of_rows(path, made.rows, lost=True)
        found = (line for _, line in chosen_trajectories(path, lines))
        with (fresh / TRAJECTORIES).open("wb") as file:
            while some := list(islice(found, at_once)):
                file.writelines(map(trajectory_line, await asyncio.gather(*map(work.regraded, some))))
        for key in made.rows.keys() - lines.keys():
            work.keep(made.rows[key], "its trajectory is not there")
        if (run / RETRIED).is_file():
            shutil.copy2(run / RETRIED, fresh / RETRIED)
        write_anew(fresh, run, made.rows.values(), rescored={**made.told(), **(told or {})})
    return made


@dataclass
class _Regrader:
    """Grades trajectories, and notes what came of each."""

    envs: Envs
    gates: Gates
    cap: SpendCap | None
    made: Rescoring

    async def regraded(self, line: dict[str, Any]) -> dict[str, Any]:
        """Give a trajectory with its new outcome."""
        row = self.made.rows[tuple(line["key"])]
        broken = row.failure.partition(":")[0]
        if row.status != "ended" and (row.status == "cut" or broken not in IN_GRADING or not line.get("grading")):
            self.made.without += 1
            return line
        try:
            outcome, nano_usd = await self._grade(row, line)
        except WrongSetting:
            raise
        except _Unrepeatable as err:
            self.keep(row, str(err))
            return line
        except Exception as err:  # noqa: BLE001 - the other trials go on
            self.keep(row, f"{type(err).__name__}: {err}")
            return line
        return self._take(row, line, outcome, nano_usd)

    async def _grade(self, row: EvaluationRow, line: Mapping[str, Any]) -> tuple[Outcome, int]:
        """The outcome, and what grading cost."""
        made = self.envs.get((row.env, row.split))
        if made is None:
            raise _Unrepeatable("the run's manifest does not name its environment")
        scene = made.source.open(row.task, line["seed"], made.sheet, None)
        bill = Bill(scene.sheet, self.cap)
        context = ToolContext(scene.world, drawing_seed(line["seed"], line.get("luck")), bill)
        found, spent = _ended_world(row, line, scene.world, context), 0
        if isinstance(found, Tool):
            done = await self.gates.perform(ReadyCall(found, {}, context))
            charges = [scene.sheet.charge(usage) for usage in done.booked]
            spent = sum(charge.nano_usd for charge in charges)
            self.made.nano_usd += spent
            for charge in charges:
                self.made.tokens.update(charge.usage.tokens._asdict())
            if done.failure and done.failure.setting:
                raise WrongSetting(done.failure.setting)
            if done.result.outcome is None:
                raise _Unrepeatable(done.failure.error if done.failure else done.result.content)
            found = done.result.outcome
        if value_of(found) is None:
            raise _Unrepeatable(UNKNOWN.format(found.value))
        over = round(row.over_budget_usd * NANO)
        return held_to(found, over) if over > 0 else found, spent

    def keep(self, row: EvaluationRow, reason: str) -> None:
        """Note that an outcome stays as it was."""
        reason = one_line(reason)[:REASON_CHARACTERS]
        self.made.kept[row.key] = reason
        self.made.rows[row.key] = replace(row, rescored={"kept": reason})

    def _take(self, row: EvaluationRow, line: dict[str, Any], outcome: Outcome, nano_usd: int) -> dict[str, Any]:
        value, evidence = value_of(outcome), strict_json(outcome.evidence)
        before = {"status": row.status, "right": row.right, "nano_usd": nano_usd}
        same = (row.right, row.evidence) == (value, evidence)
        again = hashlib.blake2b(f"{row.digest}\x1f{value}\x1f{evidence}".encode(), digest_size=16)
        now = replace(
            row,
            status="ended",
            right=value,
            evidence=evidence,
            failure="",
            truncated_by=row.truncated_by if row.status == "ended" else outcome.truncated_by,
            digest=row.digest if same else again.hexdigest(),
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
