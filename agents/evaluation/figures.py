"""What is said of a run: the figures of each policy on each environment and split, and of each group of their tasks.

Accuracy is of all trials that were planned: what failed, was cut or was not played is not known, and widens it to
bounds. Money, time, tokens and calls are means over the trials that ended. Cents are the agent's own: orchestrator,
experts and tools. Those of judges and simulated users stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from toolorchestra.agents.evaluation.statistics import Interval, Share


@dataclass(frozen=True)
class TrialCounts:
    """What became of the trials."""

    planned: int
    ended: int
    failed: int
    cut: int
    unplayed: int

    @property
    def unknown(self) -> int:
        """How many trials have no outcome: they failed, were cut or were not played."""
        return self.failed + self.cut + self.unplayed


@dataclass(frozen=True)
class Spread:
    """A mean with its median and 95th percentile."""

    mean: float
    median: float
    p95: float


@dataclass(frozen=True)
class SolvedCost:
    """Cents a solved task: all that the agent spent over what it solved. Infinite where nothing was."""

    low: float
    """If all that was played and is not known was solved."""
    high: float
    """If none of it was."""
    interval: Interval


@dataclass(frozen=True)
class PreferenceScore:
    """The paper's preference score against a baseline policy's trials: a mean over pairs whose outcomes are known."""

    mean: float
    pairs: int
    left_out: int


@dataclass(frozen=True)
class Figures:
    """What one policy came to on one environment and split, or on one group of its tasks."""

    env: str
    split: str
    policy: str
    group: str
    """What the tasks share, as "subject: logic"; empty for all of them."""
    tasks: int
    trials: TrialCounts
    accuracy: Share
    pass_hat: Mapping[int, Interval]
    pass_at: Mapping[int, Interval]
    cents: Spread | None
    minutes: Spread | None
    cents_per_solved: SolvedCost
    cents_by_role: Mapping[str, float]
    tokens: Mapping[str, Mapping[str, float]]
    """A trial's, by role and class."""
    turns: float | None
    calls: Mapping[str, float]
    """A trial's, by countable key."""
    calls_by_model: Mapping[str, float]
    entropy: float
    """Of calls over models, in nats."""
    most_used: str
    most_used_share: float
    over_budget: float | None
    """The share of ended trials that spent more than their budget."""
    estimated_charges: int
    usd_spent: float
    """By all that was played, in all roles."""
    preference: PreferenceScore | None
    sheets: tuple[str, ...]


WishMeasure = Literal["usd", "seconds", "calls"]
"""What a wish names: the agent's bill, the episode's time, or the share of the calls that go to certain tools."""


@dataclass(frozen=True)
class WishEffect:
    """How far a policy follows one kind of wish in one thing that it names, against a reference on the same tasks."""

    env: str
    split: str
    policy: str
    wish: str
    """Its kind."""
    reference: str
    """The kind of wish that it is held against; "none" for play without one."""
    measure: WishMeasure
    tasks: int
    """Played to their end on both sides, under one price sheet."""
    left_out: int
    """Played under the wish, and not so."""
    before: float
    """Under the reference: cents, seconds, or the named tools' share of the calls; a mean over tasks."""
    after: float
    """The same under the wish."""
    followed: float
    """Above 0: the share of cents or seconds that was saved, or by how much the share of the calls grew."""
    interval: Interval
    points: float
    """What it did to the accuracy: under the wish less under the reference."""


@dataclass(frozen=True)
class RunSummary:
    """All figures of a run."""

    policies: tuple[Figures, ...]
    groups: tuple[Figures, ...]
    baseline: str
    """The policy that preference scores are measured against; empty for none."""
    controllability: tuple[WishEffect, ...] = ()
    """Of policies that played the same tasks under a wish and under a reference."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know, in sentences."""
        said = [note for figures in self.policies if (note := unknown_note(figures))]
        if self.groups and (unplayed := sum(figures.trials.unplayed for figures in self.policies)):
            said.append(f"{unplayed} trials were not played; the groups are without them, as theirs are not known.")
        if estimated := sum(figures.estimated_charges for figures in self.policies):
            said.append(f"The tokens of {estimated} charges were estimated, since nobody counted them.")
        return said

    def to_json(self) -> dict[str, Any]:
        """As strict JSON has it: what is infinite is null."""
        plain: dict[str, Any] = as_plain(self)
        return {**plain, "notes": self.notes}


def unknown_note(figures: Figures) -> str:
    """Where outcomes are not known: how many of what, and the bounds; else empty."""
    share, trials = figures.accuracy, figures.trials
    if not trials.unknown:
        return ""
    parts = [f"{n} {name}" for n, name in ((trials.failed, "failed"), (trials.cut, "cut")) if n]
    parts += [f"{trials.unplayed} not played"] if trials.unplayed else []
    return (
        f"{figures.env} {figures.split}, {figures.policy}: {share.right:.6g} right, {trials.unknown} not known "
        f"({', '.join(parts)}), of {share.trials}: {100 * share.low:.3g}-{100 * share.high:.3g} %."
    )


def as_plain(value: Any) -> Any:
    """Dataclasses as objects, intervals as pairs, what is infinite as None."""
    if isinstance(value, Interval):
        return [as_plain(value.low), as_plain(value.high)]
    if is_dataclass(value):
        made = {one.name: as_plain(getattr(value, one.name)) for one in fields(value)}
        return {**made, "value": value.value, "unknown": value.unknown} if isinstance(value, Share) else made
    if isinstance(value, Mapping):
        return {str(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
