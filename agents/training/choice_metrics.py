"""Instruments that show a collapse while it happens: entropy of choices, share of the most used, controllability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.evaluation.statistics import entropy, most_used
from toolorchestra.agents.rollouts.grpo import Trajectory


@dataclass(frozen=True)
class Choices:
    """What a batch of rollouts chose."""

    entropy: float
    """Entropy of the countable keys called, in nats."""
    most_used: str
    share: float
    """Share of all calls that went to the most used key."""
    calls_per_episode: float
    controllability: float
    """Mean dollars of episodes whose user weighs money, over those whose user does not; below 1 is obedient."""


def choices(trajectories: Sequence[Trajectory]) -> Choices:
    """Read them off a batch."""
    calls: Counter[str] = Counter()
    for t in trajectories:
        calls.update(t.measure.calls)
    total = sum(calls.values())
    key, share = most_used(calls)
    return Choices(
        entropy=entropy(calls),
        most_used=key,
        share=share,
        calls_per_episode=total / len(trajectories) if trajectories else 0.0,
        controllability=_controllability(trajectories),
    )


def _controllability(trajectories: Sequence[Trajectory]) -> float:
    thrifty = [t.measure.usd for t in trajectories if t.preference.usd >= 0.5]
    careless = [t.measure.usd for t in trajectories if t.preference.usd == 0]
    if not thrifty or not careless or not sum(careless):
        return float("nan")
    return (sum(thrifty) / len(thrifty)) / (sum(careless) / len(careless))


@dataclass(frozen=True)
class Alarms:
    """The limits beyond which a training run warns that its policy may have collapsed."""

    least_entropy: float = 0.3
    most_share: float = 0.9
    least_calls: float = 1.05
    """An orchestrator that only answers at once makes one call an episode."""
    least_valid: float = 0.8
    most_sequences: float = 1.5
    """How many times the sequences that they need rollouts may have."""


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


def rewriting(trajectories: Sequence[Trajectory], alarms: Alarms | None = None) -> list[str]:
    """Whether rollouts are in clearly more sequences than they need, in words. A rollout needs one, and one more at
    each further message of its user, where many templates drop old thoughts."""
    alarms = alarms or Alarms()
    if not trajectories:
        return []
    users = [sum(message["role"] == "user" for message in t.messages) for t in trajectories]
    made = sum(len(t.sequences) for t in trajectories) / len(trajectories)
    needed = sum(max(1, count) for count in users) / len(users)
    if made <= alarms.most_sequences * needed:
        return []
    return [
        f"rollouts have {made:.1f} sequences in the mean, where {needed:.1f} would do: the chat template rewrites the "
        "past each turn, which makes training slower; a template that keeps earlier turns as they are would not "
        "(docs/training.md, Tokens)"
    ]
