"""A learned critic: what a state is worth, by all plays of a step together, and an advantage for each turn.

One play says little of a choice, and a group says little of one turn of it; but the turns of all tasks have much in
common. The value of a state is its group's mean, and what ridge regression over the tokens since the opening adds to
that. Tokens are taken together with those of the question's first line, so that a choice may be worth much for one
subject and little for another. The advantage of a turn is the generalised one (GAE, arXiv 1506.02438): what the states
behind it turned out to be worth beyond its own. With weights of 0 and TRACE = 1 it is the reward less the group's mean.

The critic is fitted anew in each step and keeps nothing, so a resumed run has the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from toolorchestra.agents.algorithms.leave_one_out import SCALE
from toolorchestra.agents.rollouts.grpo import MOST_ADVANTAGE, Advantages, Group, Grpo, Rewards, Trajectory, whole

Numbers = NDArray[np.float64]
TRACE = 0.9
"""Share of a later turn's surprise that an earlier one is given: 0 its own alone, 1 all of them."""
WIDTH = 1024
"""Numbers that tokens are hashed into."""
RIDGE = 10.0
HEAD = 4
"""Tokens of the question that others are taken together with."""


class Critic(Grpo):
    """Grpo's scores, and advantages by turn."""

    def advantages(self, groups: Sequence[Group], rewards: Sequence[Rewards]) -> list[list[Advantages | None]]:
        """Those of Grpo's groups that teach something, by what the critic thinks of each state."""
        made = super().advantages(groups, rewards)
        kept = [(g, t) for g, row in enumerate(made) for t, one in enumerate(row) if one is not None]
        states = {(g, t): states_of(groups[g].trajectories[t]) for g, t in kept}
        gains = {}
        for g, group in enumerate(groups):
            totals = [reward.total for reward in rewards[g] if reward is not None]
            most = whole(group.trajectories[0].preference.weights())
            for t, reward in enumerate(rewards[g]):
                if reward is not None and (g, t) in states:
                    gains[g, t] = (reward.total - sum(totals) / len(totals)) / most
        if not kept:
            return made
        rows = np.concatenate([states[one] for one in kept])
        weights = fitted(rows, np.concatenate([np.full(len(states[one]), gains[one]) for one in kept]))
        for g, t in kept:
            made[g][t] = by_turn(states[g, t] @ weights, gains[g, t])
        return made


def states_of(trajectory: Trajectory) -> Numbers:
    """What was said since the opening before each turn, as numbers."""
    rows: list[Numbers] = []
    seen = np.zeros(WIDTH)
    for sequence in trajectory.sequences:
        opening = sequence.sampled.index(True) if any(sequence.sampled) else len(sequence.tokens)
        head = sequence.tokens[max(0, opening - 24) : opening][:HEAD]
        for place, (before, now) in enumerate(pairwise((False, *sequence.sampled))):
            if now and not before:
                rows.append(seen.copy())
            if place >= opening:
                token = sequence.tokens[place]
                seen[(token * 2654435761) % WIDTH] += 1.0
                for other in head:
                    seen[(token * 2654435761 + other * 40503) % WIDTH] += 1.0
    return np.stack(rows) if rows else np.zeros((0, WIDTH))


def fitted(rows: Numbers, gains: Numbers) -> Numbers:
    """Weights of ridge regression."""
    made: Numbers = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(WIDTH), rows.T @ gains)
    return made


def by_turn(values: Numbers, gain: float) -> list[float]:
    """The generalised advantage of each turn, of the values of the states before them and of what was gained."""
    after = [*values[1:], gain]
    made, rest = [0.0] * len(values), 0.0
    for turn in reversed(range(len(values))):
        rest = after[turn] - values[turn] + TRACE * rest
        made[turn] = float(max(-MOST_ADVANTAGE, min(MOST_ADVANTAGE, SCALE * rest)))
    return made
