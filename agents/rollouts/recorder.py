"""Remembers a rollout turn by turn, in the form of RecordTrajectories, so that it can be read as any trajectory is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolorchestra.agents.rollouts.trajectory import Trajectory
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.factory import Started
from toolorchestra.envs.wrappers.record import trajectory

_TOLD = ("task", "preference", "budget", "price_sheet")


class RolloutRecorder:
    """Records one rollout. It draws no random numbers and changes nothing."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._turns: list[int] = []
        self._rewards: list[float] = []
        self._last: Step | None = None

    def saw(self, step: Step) -> None:
        """Records the step with which a turn has ended."""
        self._last = step
        self._rewards.append(step.reward)
        self._date_charges()

    def line(self, made: Trajectory) -> dict[str, Any]:
        """The rollout as a trajectory. What stopped it outside of its episode counts as training counts it."""
        self._date_charges()
        told = {name: self._started.info[name] for name in _TOLD if name in self._started.info}
        info: Mapping[str, Any] = self._last.info if self._last is not None else {}
        over = self._last is not None and self._last.terminated
        row = trajectory(self._started.episode, told, self._turns, self._rewards, info, terminated=over)
        row["truncated_by"] = row["truncated_by"] or made.truncated_by
        if made.measure.failed:
            ran_out = {"where": "rollout", "error": f"it ran into its {made.truncated_by}"}
            row |= {"outcome": None, "failed": row["failed"] or made.failure or ran_out}
        elif row["outcome"] is None:
            row["outcome"] = {"value": made.measure.outcome, "evidence": {}}
        return row

    def _date_charges(self) -> None:
        episode = self._started.episode
        self._turns += [episode.turn] * (len(episode.ledger) - len(self._turns))
