"""Which tasks a step's groups play: fresh ones, and among them those of late that were far from being done well.

Hard tasks are a small part of the stream, and what solves them is dear and wrong for the rest. Seen at their own rate
they teach too little before the rest has taught the policy never to try. So a share of the groups goes back to tasks of
the last steps, the more often the farther their rollouts stayed behind the best that was seen: the best sibling, or a
fixed policy that played the task too. (Prioritized level replay, arXiv 2010.03934, with that gap as the score.)
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from toolorchestra.agents.rewards import GroupReward
from toolorchestra.agents.trajectory import Group


class Pick(NamedTuple):
    """One task: an environment of the mix, by its place there, and an episode's seed."""

    mix: int
    seed: int


class Curriculum:
    """Draws tasks, and remembers the last ones with their scores."""

    def __init__(self, weights: Sequence[float], replay: float, remembered: int) -> None:
        self._weights = weights
        self._replay = replay
        self._remembered = remembered
        self._scores: dict[Pick, float] = {}
        """Oldest first."""

    def draw(self, rng: random.Random, count: int) -> list[Pick]:
        """No task twice in one step."""
        again = sum(rng.random() < self._replay for _ in range(count))
        picks = self._again(rng, min(again, sum(s > 0 for s in self._scores.values())))
        while len(picks) < count:
            mix = rng.choices(range(len(self._weights)), self._weights)[0]
            picks.append(Pick(mix, rng.randrange(10**9)))
        return picks

    def _again(self, rng: random.Random, count: int) -> list[Pick]:
        picks: list[Pick] = []
        left = dict(self._scores)
        for _ in range(count):
            pick = rng.choices(list(left), list(left.values()))[0]
            del left[pick]
            picks.append(pick)
        return picks

    def note(self, picks: Sequence[Pick], groups: Sequence[Group]) -> None:
        """What came of them. The oldest tasks are forgotten."""
        for pick, group in zip(picks, groups, strict=True):
            self._scores.pop(pick, None)
            self._scores[pick] = gap(group)
        for pick in list(self._scores)[: max(0, len(self._scores) - self._remembered)]:
            del self._scores[pick]

    def state(self) -> list[list[float]]:
        """For a checkpoint."""
        return [[*pick, score] for pick, score in self._scores.items()]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        """What state() gave."""
        self._scores = {Pick(int(mix), int(seed)): float(score) for mix, seed, score in state}


def gap(group: Group) -> float:
    """By how much the best reward among siblings and fixed policies exceeds the siblings' mean, as a share of the most
    there is to get."""
    first = group.trajectories[0]
    reward = GroupReward(first.preference, first.keys)
    scores = reward.score([*(t.measure for t in group.trajectories), *group.anchors])
    mine = [s.total for s in scores[: len(group.trajectories)] if s is not None]
    most = sum(first.preference.weights().values())
    if not mine or most <= 0:
        return 0.0
    return (max(s.total for s in scores if s is not None) - statistics.fmean(mine)) / most
