"""Plays one contest of a run: its trials side by side, each kept as it ends, and none begun that cannot end well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.spending import Spending
from toolorchestra.agents.evaluation.trials import PlayedTrial, Trial, play
from toolorchestra.envs.base.cassette import PAYER
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.runtime.invoke import Gates

if TYPE_CHECKING:
    from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun, RunKey


class ContestPlay:
    """What a contest of a run still lacks, while it is played."""

    def __init__(
        self, run: EvaluationRun, contest: Contest, at_once: int, watch: Callable[[EvaluationRow], None] | None = None
    ) -> None:
        self._run, self._contest, self._watch = run, contest, watch
        self._gates, self._places = Gates(), asyncio.Semaphore(at_once)
        self._cap = contest.made.rules.spend_cap
        cell = (contest.env, contest.split, contest.policy)
        ended = [row.nano_usd for row in run.rows.values() if row.key[:3] == cell and row.status == "ended"]
        self._spending = Spending(self._cap, ended)
        self._episodes: dict[RunKey, Episode] = {}
        self._again = run.retried() if run.cached else {}
        """What trials have cost that a cache bills anew."""
        self._wrong: ConfigError | None = None
        """What is wrong with the run's settings. Then no trial is begun any more."""

    async def play(self) -> None:
        """Play to the end. Raises ConfigError where a setting is wrong, when all that had begun has ended."""
        wanted = [trial for trial in self._contest.trials if trial.key not in self._run.rows]
        playing = [asyncio.create_task(self._one(trial)) for trial in wanted]
        try:
            await asyncio.gather(*playing)
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            backing = getattr(self._contest.made.source, "backing", None)
            if backing is not None:
                await backing.aclose()
        if self._wrong is not None:
            raise self._wrong

    async def _one(self, trial: Trial) -> None:
        async with self._places:
            await asyncio.sleep(0)  # where nothing waits for a backend, this is where an interrupt is seen
            if self._wrong is not None or not await self._spending.begin(trial):
                return
            if self._wrong is not None:  # found while it waited
                self._spending.ended(trial, None)
                return
            done = await self._played(trial)
            self._wrong = self._wrong or done.wrong
            self._run.add(done.row, done.trajectory)
            if self._watch is not None:
                self._watch(done.row)

    async def _played(self, trial: Trial) -> PlayedTrial:
        PAYER.set(f"{self._run.run_id}|{'|'.join(map(str, trial.key))}")
        if self._cap is not None and trial.key in self._again:
            self._cap.add(-self._again[trial.key])
        cost = None
        try:
            done = await play(
                trial, self._contest.made, self._contest.player.move, self._gates, lambda one: self._begun(trial, one)
            )
            cost = done.row.nano_usd if done.row.status == "ended" else None
        except BaseException:
            self._run.interrupted(trial, self._episodes.get(trial.key))
            raise
        finally:
            self._spending.ended(trial, cost)
            self._episodes.pop(trial.key, None)
        return done

    def _begun(self, trial: Trial, episode: Episode) -> None:
        self._episodes[trial.key] = episode
        self._spending.watch(trial, episode)
