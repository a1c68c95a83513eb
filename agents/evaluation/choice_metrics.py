"""Instruments that show a collapse while it happens: entropy of choices, share of the most used, controllability, and
the regret against the oracle where there is one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.rollouts.rewards import GroupReward
from toolorchestra.agents.rollouts.trajectory import Group, Trajectory


@dataclass(frozen=True)
class Choices:
    """What a batch of rollouts chose."""

    entropy: float
    """Of the countable keys called, in nats."""
    most_used: str
    share: float
    """Of all calls, that went to the most used key."""
    calls_per_episode: float
    controllability: float
    """Mean dollars of episodes whose user weighs money, over those whose user does not; below 1 is obedient."""


def choices(trajectories: Sequence[Trajectory]) -> Choices:
    """Read them off a batch."""
    calls: Counter[str] = Counter()
    for t in trajectories:
        calls.update(t.measure.calls)
    total = sum(calls.values())
    key, count = calls.most_common(1)[0] if calls else ("", 0)
    shares = [n / total for n in calls.values()]
    return Choices(
        entropy=-sum(p * math.log(p) for p in shares if p),
        most_used=key,
        share=count / total if total else 0.0,
        calls_per_episode=total / len(trajectories) if trajectories else 0.0,
        controllability=_controllability(trajectories),
    )


def _controllability(trajectories: Sequence[Trajectory]) -> float:
    thrifty = [t.measure.usd for t in trajectories if t.preference.usd >= 0.5]
    careless = [t.measure.usd for t in trajectories if t.preference.usd == 0]
    if not thrifty or not careless or not sum(careless):
        return float("nan")
    return (sum(thrifty) / len(thrifty)) / (sum(careless) / len(careless))


def regret(groups: Sequence[Group]) -> float:
    """By how much the oracle's reward exceeds the policy's, as a share of the most there is to get; nan without one.

    The oracle is scored among the group and its anchors. It goes for the likeliest route and does not know the
    preference, so a policy that obeys can come below 0.
    """
    lost = []
    for group in groups:
        first = group.trajectories[0]
        if group.oracle is None:
            continue
        reward = GroupReward(first.preference, first.keys)
        *mine, best = reward.score([*(t.measure for t in group.trajectories), group.oracle], group.anchors)
        kept = [score.total for score in mine if score is not None]
        most = sum(first.preference.weights().values())
        if kept and best is not None and most:
            lost.append((best.total - sum(kept) / len(kept)) / most)
    return sum(lost) / len(lost) if lost else float("nan")


@dataclass(frozen=True)
class Alarms:
    """When to warn."""

    least_entropy: float = 0.3
    most_share: float = 0.9
    least_calls: float = 1.05
    """An orchestrator that only answers at once makes one call an episode."""
    least_valid: float = 0.8


def warnings(seen: Choices, valid: float, alarms: Alarms | None = None) -> list[str]:
    """What looks like a collapse, in words."""
    alarms = alarms or Alarms()
    said = []
    if seen.entropy < alarms.least_entropy:
        said.append(f"choices have collapsed: entropy {seen.entropy:.2f} nats, {seen.share:.0%} to {seen.most_used}")
    elif seen.share > alarms.most_share:
        said.append(f"{seen.share:.0%} of all calls go to {seen.most_used}")
    if seen.calls_per_episode < alarms.least_calls:
        said.append(f"{seen.calls_per_episode:.2f} calls an episode: it answers at once, or calls nothing")
    if valid < alarms.least_valid:
        said.append(f"only {valid:.0%} of the rollouts are readable in every turn")
    return said


def failures(trajectories: Sequence[Trajectory]) -> list[str]:
    """How many failed, and of what the first one, in words."""
    broken = [t for t in trajectories if t.measure.failed]
    if not broken:
        return []
    first = broken[0].failure["error"] if broken[0].failure else f"it ran into its {broken[0].truncated_by}"
    return [f"{len(broken)} of {len(trajectories)} rollouts failed and count for nothing; the first: {first}"]
