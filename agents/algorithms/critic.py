"""A learned critic: what a state is worth, by all plays of a step together, and an advantage for each turn.

The value of a state is its group's mean, and what ridge regression over the tokens since the opening adds to that.
Tokens are taken together with the question's and with the preference's weights, so that a choice may be worth much for
one subject or user and little for another. The advantage of a turn is the generalised one (GAE, arXiv 1506.02438). With
weights of 0 and TRACE = 1 it is the reward less the group's mean. The critic is fitted anew in each step.
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
WIDTH = 2048
"""Numbers that tokens are hashed into."""
RIDGE = 10.0
ASKED = 14
"""Tokens before the first turn that others are taken together with: the question's, or its last ones."""


class Critic(Grpo):
    """Grpo's scores, and advantages by turn."""

    def advantages(self, groups: Sequence[Group], rewards: Sequence[Rewards]) -> list[list[Advantages | None]]:
        """Keep those of Grpo's groups that teach something, by what the critic thinks of each state."""
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
    """What was said since the opening before each turn, as numbers: counts of tokens, alone, beside each token of the
    question, and as much as the user minds dollars and seconds."""
    preference = trajectory.preference
    most = whole(preference.weights())
    rows: list[Numbers] = []
    seen = np.zeros(WIDTH)
    for sequence in trajectory.sequences:
        sampled, tokens = np.array(sequence.sampled, bool), np.array(sequence.tokens, np.int64)
        begun = np.flatnonzero(sampled & ~np.concatenate([[False], sampled[:-1]]))
        if not len(begun):
            continue
        asked = tokens[max(0, begun[0] - ASKED) : begun[0]]
        beside = (tokens[:, None] * 7919 + asked * 104729 + 1) % WIDTH
        for first, last in pairwise([*begun, len(tokens)]):
            rows.append(seen.copy())
            now = tokens[first:last]
            np.add.at(seen, beside[first:last].ravel(), 1.0)
            for place, weight in enumerate((1.0, float(preference.usd) / most, float(preference.seconds) / most)):
                np.add.at(seen, (now * 7919 + place * 31) % WIDTH, weight)
    return np.stack(rows) if rows else np.zeros((0, WIDTH))


def fitted(rows: Numbers, gains: Numbers) -> Numbers:
    """Weights of ridge regression."""
    made = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(WIDTH), rows.T @ gains)
    return np.asarray(made, np.float64)


def by_turn(values: Numbers, gain: float) -> list[float]:
    """The generalised advantage of each turn, of the values of the states before them and of what was gained."""
    after = [*values[1:], gain]
    made, rest = [0.0] * len(values), 0.0
    for turn in reversed(range(len(values))):
        rest = after[turn] - values[turn] + TRACE * rest
        made[turn] = float(max(-MOST_ADVANTAGE, min(MOST_ADVANTAGE, SCALE * rest)))
    return made
