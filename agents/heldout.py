"""Held-out evaluation: tasks, prices, tools and preference wordings never trained on, beside the baselines.

The reward of a panel: the policy and every baseline play the same task under the same preference and prices, and are
scored together as one group, so that each is measured from the cheapest to the dearest of them. Divided by the sum of
the preference's weights it lies in [0, 1].
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.agents.baselines import NAMES, baseline
from toolorchestra.agents.config import EnvMix
from toolorchestra.agents.evaluate import played
from toolorchestra.agents.rewards import GroupReward, Measure
from toolorchestra.agents.rollout import Job, Rollouts, factory_of, measured
from toolorchestra.agents.trajectory import Trajectory

POLICY = "policy"
FIRST_SEED = 1_000_000_007
"""Of evaluation episodes; training draws its seeds elsewhere."""


@dataclass
class Standing:
    """How one player did."""

    reward: float = 0.0
    accuracy: float = 0.0
    cents: float = 0.0
    seconds: float = 0.0
    calls: dict[str, float] = field(default_factory=dict)

    @property
    def cents_per_solved(self) -> float:
        return self.cents / self.accuracy if self.accuracy else float("inf")


@dataclass
class Evaluation:
    """Everybody's standing on the same tasks, over all environments and by environment."""

    standings: dict[str, Standing]
    by_environment: dict[str, dict[str, Standing]]
    valid: float
    trajectories: list[Trajectory] = field(default_factory=list)

    @property
    def of_oracle(self) -> float:
        """The policy's reward as a share of the oracle's."""
        best = self.standings["oracle"].reward
        return self.standings[POLICY].reward / best if best else 0.0


class HeldOut:
    """The fixed evaluation tasks of a run. The baselines play them once."""

    def __init__(self, mixes: Sequence[EnvMix], tasks: int, split: str = "validation") -> None:
        self._tasks = tasks
        self._env_ids = _labels([mix.env_id for mix in mixes])
        self._factories = {
            label: factory_of(
                mix.env_id, **{**mix.arguments, "split": split, "diversify": "heldout", "wording": "heldout"}
            )
            for label, mix in zip(self._env_ids, mixes, strict=True)
        }
        self._panel: dict[str, list[dict[str, Measure]]] = {}

    def jobs(self) -> list[Job]:
        """One rollout a task."""
        return [
            Job(self._env_ids[label], made, FIRST_SEED + k)
            for label, made in self._factories.items()
            for k in range(self._tasks)
        ]

    def baselines(self, label: str) -> list[dict[str, Measure]]:
        """Each baseline's measure of each task of an environment."""
        if label not in self._panel:
            self._panel[label] = [self._play(label, FIRST_SEED + k) for k in range(self._tasks)]
        return self._panel[label]

    def _play(self, label: str, seed: int) -> dict[str, Measure]:
        return {name: measured(played(self._factories[label], baseline(name, seed), seed)) for name in NAMES}

    def evaluate(self, rollouts: Rollouts) -> Evaluation:
        """Play and score."""
        trajectories = rollouts.collect(self.jobs())
        by_environment: dict[str, dict[str, Standing]] = {}
        everybody: dict[str, list[tuple[Measure, float]]] = {name: [] for name in (POLICY, *NAMES)}
        for number, label in enumerate(self._factories):
            rows: dict[str, list[tuple[Measure, float]]] = {name: [] for name in everybody}
            played = trajectories[number * self._tasks : (number + 1) * self._tasks]
            for trajectory, panel in zip(played, self.baselines(label), strict=True):
                for name, row in _scored(trajectory, panel).items():
                    rows[name].append(row)
            by_environment[label] = {name: _standing(r) for name, r in rows.items()}
            for name, r in rows.items():
                everybody[name] += r
        valid = statistics.fmean(t.measure.valid_format for t in trajectories)
        standings = {name: _standing(rows) for name, rows in everybody.items()}
        return Evaluation(standings, by_environment, valid, trajectories)


def _labels(env_ids: Sequence[str]) -> dict[str, str]:
    """Each environment of the mix under a name of its own: an id may come again with other arguments."""
    made: dict[str, str] = {}
    for env_id in env_ids:
        again = sum(other == env_id for other in made.values())
        made[f"{env_id} ({again + 1})" if again else env_id] = env_id
    return made


def _scored(trajectory: Trajectory, panel: Mapping[str, Measure]) -> dict[str, tuple[Measure, float]]:
    players = {POLICY: trajectory.measure, **panel}
    weight = sum(trajectory.preference.weights().values()) or 1.0
    scores = GroupReward(trajectory.preference, trajectory.keys).score(list(players.values()))
    return {
        name: (measure, score.total / weight)
        for (name, measure), score in zip(players.items(), scores, strict=True)
        if score is not None
    }


def _standing(rows: Sequence[tuple[Measure, float]]) -> Standing:
    if not rows:
        return Standing()
    calls: Counter[str] = Counter()
    for measure, _ in rows:
        calls.update(measure.calls)
    n = len(rows)
    return Standing(
        reward=sum(score for _, score in rows) / n,
        accuracy=sum(m.outcome for m, _ in rows) / n,
        cents=100 * sum(m.usd for m, _ in rows) / n,
        seconds=sum(m.seconds for m, _ in rows) / n,
        calls={key: count / n for key, count in sorted(calls.items())},
    )


def as_metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Flat numbers for the log."""
    made: dict[str, Any] = {"of_oracle": evaluation.of_oracle, "valid": evaluation.valid}
    for name, s in evaluation.standings.items():
        made |= {f"{name}/reward": s.reward, f"{name}/accuracy": s.accuracy, f"{name}/cents": s.cents}
    return made
