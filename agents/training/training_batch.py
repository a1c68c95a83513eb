"""From groups of trajectories to training data: reward, advantage, filters. Pure; the engine comes after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.rollouts.rewards import AdvantageParams, GroupReward, RewardBreakdown, advantages
from toolorchestra.agents.rollouts.trajectory import Group


@dataclass(frozen=True)
class TrainingBatch:
    """One step's data, with what was left out."""

    data: list[Datum]
    rewards: list[list[RewardBreakdown | None]]
    """By group and trajectory; None where the episode failed."""
    used: int
    flat_groups: int
    """Groups without enough spread to teach anything."""
    failed: int


def build(groups: Sequence[Group], params: AdvantageParams) -> TrainingBatch:
    """Score each group, and give every sampled token of a trajectory that trajectory's advantage."""
    data: list[Datum] = []
    rewards: list[list[RewardBreakdown | None]] = []
    used = flat = failed = 0
    for group in groups:
        first = group.trajectories[0]
        measures = [t.measure for t in group.trajectories]
        scored = GroupReward(first.preference, first.keys, params.strict_format).score(measures, group.anchors)
        rewards.append(scored)
        failed += sum(r is None for r in scored)
        made = advantages(scored, measures, params)
        flat += all(a is None for a in made)
        for trajectory, advantage in zip(group.trajectories, made, strict=True):
            if advantage:
                used += 1
                for s in trajectory.sequences:
                    spread = [advantage if sampled else 0.0 for sampled in s.sampled]
                    data.append(Datum(s.tokens, s.logprobs, spread))
    return TrainingBatch(data, rewards, used, flat, failed)
