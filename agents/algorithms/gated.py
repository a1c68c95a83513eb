"""Costs behind a gate: only a right answer pays for what it cost, the more so the more of its group are right.

score = right x (weights' sum - pass rate x what the paper's reward took off for dollars, seconds and favoured tools)

A task that nobody solves teaches nothing about costs, and one that all solve teaches costs alone: being right is learnt
before being cheap. prime-rl and NeMo-RL weigh costs so. The scale is that of the baselines, where some play.
"""

from __future__ import annotations

from statistics import fmean

from toolorchestra.agents.algorithms.leave_one_out import LeaveOneOut
from toolorchestra.agents.rollouts.grpo import TERM, Group, RewardBreakdown, Rewards, as_counted, whole


class Gated(LeaveOneOut):
    """Leave one out, over costs behind a gate."""

    def score(self, group: Group) -> Rewards:
        """The paper's reward, with its costs weighed by the share of the group that is right."""
        rewards = super().score(group)
        measures = [as_counted(trajectory.measure, self.params) for trajectory in group.trajectories]
        right = [m.expected.chance if m.expected else m.outcome for m in measures]
        known = [share for share, reward in zip(right, rewards, strict=True) if reward is not None]
        rate, most = fmean(known) if known else 0.0, whole(group.trajectories[0].preference.weights())
        made: list[RewardBreakdown | None] = []
        for reward, share in zip(rewards, right, strict=True):
            if reward is None:
                made.append(None)
                continue
            parts = {name: value for name, value in reward.parts.items() if name.startswith(TERM)}
            if reward.solved:
                parts["gated"] = rate * (reward.total - sum(parts.values())) + (1 - rate) * most * share
            made.append(RewardBreakdown(sum(parts.values(), 0.0), parts, reward.solved))
        return made
