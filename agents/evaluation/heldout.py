"""Held-out evaluation: tasks, prices, tools and preference wordings never trained on, beside the baselines.

The reward of a panel: the policy and every baseline play the same task under the same preference and prices, and are
scored together as one group, so that each is measured from the cheapest to the dearest of them. Divided by the sum of
the preference's weights it lies in [0, 1]. Where no baseline can play there is nobody to measure a bill against: the
reward is the outcome alone, and the cents stand beside it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import held_out
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import NAMES, baseline, players
from toolorchestra.agents.rollouts.rewards import GroupReward, Measure
from toolorchestra.agents.rollouts.rollout import Job, Rollouts, measured
from toolorchestra.agents.rollouts.trajectory import Trajectory

POLICY = "policy"
CALLS = f"{POLICY}/calls/"
"""What the policy's calls a task begin with among the metrics."""
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
    """Everybody's standing on the same tasks by environment, and over all environments that he can play."""

    standings: dict[str, Standing]
    by_environment: dict[str, dict[str, Standing]]
    valid: float
    of_oracle: float | None
    """The policy's reward as a share of the oracle's, over the environments that the oracle plays; None: over none."""
    trajectories: list[Trajectory] = field(default_factory=list)


class HeldOut:
    """The fixed evaluation tasks of a run. The baselines play them once."""

    def __init__(
        self, mixes: Sequence[EnvMix], tasks: int, split: Literal["validation", "test"] = "validation"
    ) -> None:
        self._tasks = tasks
        self._env_ids = _labels([mix.env_id for mix in mixes])
        self._factories = {
            label: held_out(mix, getattr(mix, split)) for label, mix in zip(self._env_ids, mixes, strict=True)
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
        made = self._factories[label]
        return {name: measured(played(made, baseline(name, seed), seed)) for name in players(made.source)}

    def evaluate(self, rollouts: Rollouts) -> Evaluation:
        """Play and score."""
        trajectories = rollouts.collect(self.jobs())
        found: dict[str, dict[str, list[_Row]]] = {}
        for number, (label, made) in enumerate(self._factories.items()):
            rows: dict[str, list[_Row]] = {name: [] for name in (POLICY, *players(made.source))}
            mine = trajectories[number * self._tasks : (number + 1) * self._tasks]
            for trajectory, panel in zip(mine, self.baselines(label), strict=True):
                for name, row in _scored(trajectory, panel).items():
                    rows[name].append(row)
            found[label] = rows
        names = [name for name in (POLICY, *NAMES) if any(name in rows for rows in found.values())]
        return Evaluation(
            {name: _standing(_together(found.values(), name)) for name in names},
            {label: {name: _standing(r) for name, r in rows.items()} for label, rows in found.items()},
            statistics.fmean(t.measure.valid_format for t in trajectories),
            _of_oracle([rows for rows in found.values() if "oracle" in rows]),
            trajectories,
        )


_Row = tuple[Measure, float]


def _together(found: Iterable[Mapping[str, list[_Row]]], name: str) -> list[_Row]:
    return [row for rows in found for row in rows.get(name, ())]


def _of_oracle(found: Sequence[Mapping[str, list[_Row]]]) -> float | None:
    if not found:
        return None
    mine, best = (_standing(_together(found, name)).reward for name in (POLICY, "oracle"))
    return mine / best if best else 0.0


def _labels(env_ids: Sequence[str]) -> dict[str, str]:
    """Each environment of the mix under a name of its own: an id may come again with other arguments."""
    made: dict[str, str] = {}
    for env_id in env_ids:
        again = sum(other == env_id for other in made.values())
        made[f"{env_id} ({again + 1})" if again else env_id] = env_id
    return made


def _scored(trajectory: Trajectory, panel: Mapping[str, Measure]) -> dict[str, _Row]:
    mine = trajectory.measure
    if not panel:
        return {} if mine.failed else {POLICY: (mine, mine.outcome)}
    everybody = {POLICY: mine, **panel}
    weight = sum(trajectory.preference.weights().values()) or 1.0
    scores = GroupReward(trajectory.preference, trajectory.keys).score(list(everybody.values()))
    return {
        name: (measure, score.total / weight)
        for (name, measure), score in zip(everybody.items(), scores, strict=True)
        if score is not None
    }


def _standing(rows: Sequence[_Row]) -> Standing:
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
    shared = {} if evaluation.of_oracle is None else {"of_oracle": evaluation.of_oracle}
    mine = {f"{CALLS}{key}": count for key, count in evaluation.standings[POLICY].calls.items()}
    made: dict[str, Any] = {**shared, "valid": evaluation.valid, **mine}
    for name, s in evaluation.standings.items():
        made |= {f"{name}/reward": s.reward, f"{name}/accuracy": s.accuracy, f"{name}/cents": s.cents}
    return made
