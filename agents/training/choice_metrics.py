"""Instruments that show a collapse while it happens: entropy of choices, share of the most used, controllability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from toolorchestra.agents.evaluation.statistics import entropy, most_used
from toolorchestra.agents.rollouts.grpo import Trajectory

LEAST_ENTROPY, MOST_SHARE = 0.3, 0.9
"""Nats, and the share of one key, beyond which choices have collapsed."""
LEAST_CALLS = 1.05
"""An orchestrator that only answers at once makes one call an episode."""
LEAST_VALID = 0.8
MOST_SEQUENCES = 1.5
"""How many times the sequences that they need rollouts may have."""


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
    key, share = most_used(calls)
    thrifty = [t.measure.usd for t in trajectories if t.preference.usd >= 0.5]
    careless = [t.measure.usd for t in trajectories if t.preference.usd == 0]
    known = thrifty and sum(careless)
    return Choices(
        entropy=entropy(calls),
        most_used=key,
        share=share,
        calls_per_episode=sum(calls.values()) / len(trajectories) if trajectories else 0.0,
        controllability=(sum(thrifty) / len(thrifty)) / (sum(careless) / len(careless)) if known else float("nan"),
    )


def warnings(seen: Choices, valid: float) -> list[str]:
    """What looks like a collapse, in words."""
    said = []
    if seen.most_used and seen.entropy < LEAST_ENTROPY:
        said.append(f"choices have collapsed: entropy {seen.entropy:.2f} nats, {seen.share:.0%} to {seen.most_used}")
    elif seen.share > MOST_SHARE:
        said.append(f"{seen.share:.0%} of all calls go to {seen.most_used}")
    if seen.calls_per_episode < LEAST_CALLS:
        said.append(f"{seen.calls_per_episode:.2f} calls an episode: it answers at once, or calls nothing")
    if valid < LEAST_VALID:
        said.append(f"only {valid:.0%} of the rollouts are readable in every turn")
    return said


def failures(trajectories: Sequence[Trajectory]) -> list[str]:
    """How many failed, and of what the first one, in words."""
    broken = [t for t in trajectories if t.measure.failed]
    if not broken:
        return []
    first = broken[0].failure["error"] if broken[0].failure else f"it ran into its {broken[0].truncated_by}"
    return [f"{len(broken)} of {len(trajectories)} rollouts failed and count for nothing; the first: {first}"]


def rewriting(trajectories: Sequence[Trajectory]) -> list[str]:
    """Whether rollouts are in clearly more sequences than they need, in words. A rollout needs one, and one more at
    each further message of its user, where many templates drop old thoughts."""
    if not trajectories:
        return []
    users = [sum(message["role"] == "user" for message in t.messages) for t in trajectories]
    made = sum(len(t.sequences) for t in trajectories) / len(trajectories)
    needed = sum(max(1, count) for count in users) / len(users)
    if made <= MOST_SEQUENCES * needed:
        return []
    return [
        f"rollouts have {made:.1f} sequences in the mean, where {needed:.1f} would do: the chat template rewrites the "
        "past each turn, which makes training slower; a template that keeps earlier turns as they are would not "
        "(docs/training.md, Tokens)"
    ]
