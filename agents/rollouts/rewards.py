"""The paper's reward, with its signs: what a trajectory is worth among its siblings, under the user's preference.

Per group of rollouts of one task, each trajectory is measured as [tool counts..., outcome, -dollars, -seconds]; each
measure is scaled by min and max over the whole group (0 where all are equal) and weighed by the preference; what did
not solve the task gets 0. Terms of the user's own (gym.make's `reward_terms`) are added to that, solved or not, in
units of the weights' sum. Pure functions, no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.preference import Preference

GENERAL = ("outcome", "usd", "seconds")
TERM = "term "
"""What the names of a user's own terms begin with among the parts of a reward."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a trajectory came to, as far as rewards look at it."""

    outcome: float
    usd: float
    seconds: float
    calls: Mapping[str, float]
    failed: bool = False
    """Its episode broke: it is no evidence of anything, and never counted as 0."""
    valid_format: bool = True
    """Every turn could be read as an action."""
    valid_output: bool = True
    """It came to an answer of its own, not to a limit."""
    context_cut: bool = False
    """It ran out of context: what it would have answered is not known."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """What terms of the user's own came to. They are not scaled: 1 is what the best possible episode earns."""

    @property
    def solved(self) -> bool:
        return self.outcome >= 1.0


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """A trajectory's reward, and what each wish contributed to it."""

    total: float
    parts: Mapping[str, float]
    """Weight times scaled measure, by name, and the user's own terms. An episode that did not solve its task has terms
    alone."""
    solved: bool


@dataclass(frozen=True, slots=True)
class GroupReward:
    """The reward of one group: one task, one preference, one price sheet."""

    preference: Preference
    keys: Sequence[str]
    """Countable keys of the toolbox."""
    strict_format: bool = False
    """A trajectory with an unreadable turn counts as one that did not solve its task."""
    least_range: float = 0.0
    """Share of its largest value that a measure has to range over to count: below it, all are equally good in it."""

    def __post_init__(self) -> None:
        for name in self.preference.tools:
            if name not in self.keys:
                raise ConfigError(no_such("preference key", name, (*GENERAL, *self.keys)))

    def score(self, group: Sequence[Measure], anchors: Sequence[Measure] = ()) -> list[RewardBreakdown | None]:
        """One breakdown a trajectory; None for those whose episode failed. `anchors` are further measures of the same
        task that widen the scale and are not scored themselves."""
        if self.strict_format:
            group = [m if m.valid_format else replace(m, outcome=0.0) for m in group]
        kept = [m for m in group if not m.failed]
        weights = {name: weight for name, weight in self.preference.weights().items() if weight}
        scale = [*kept, *(m for m in anchors if not m.failed)]
        ranges = {name: self._range([_value(m, name) for m in scale], name) for name in weights}
        return [None if m.failed else _breakdown(m, weights, ranges) for m in group]

    def _range(self, values: Sequence[float], name: str) -> tuple[float, float]:
        if any(not math.isfinite(v) for v in values):
            wrong = [v for v in values if not math.isfinite(v)]
            raise ValueError(f"a trajectory's {name} is not a finite number: {wrong}")
        low, high = (min(values), max(values)) if values else (0.0, 0.0)
        return (low, high) if high - low > self.least_range * max(-low, high) else (high, high)


def _value(measure: Measure, name: str) -> float:
    if name == "outcome":
        return measure.outcome
    if name == "usd":
        return -measure.usd
    if name == "seconds":
        return -measure.seconds
    return float(measure.calls.get(name, 0))


def _breakdown(
    measure: Measure, weights: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]
) -> RewardBreakdown:
    parts = {f"{TERM}{name}": whole(weights) * value for name, value in measure.terms.items()}
    if measure.solved:
        parts |= {name: weight * _scaled(_value(measure, name), *ranges[name]) for name, weight in weights.items()}
    return RewardBreakdown(sum(parts.values(), 0.0), parts, measure.solved)


def whole(weights: Mapping[str, float]) -> float:
    """The most that a wish's parts can come to: their weights' sum; 1 where nothing has weight."""
    return sum(weights.values()) or 1.0


def _scaled(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.0


def preference_score(measure: Measure, baseline: Measure, preference: Preference) -> float:
    """The paper's preference-aware evaluation of one task (its appendix L), against a baseline's run of the same task.

    Counts and outcome as a ratio to the baseline's, at least 1 below the line; cents and minutes the other way round.
    """
    if not measure.solved:
        return 0.0
    total = preference.outcome * measure.outcome / max(1.0, baseline.outcome)
    total += preference.usd * (100 * baseline.usd) / max(1.0, 100 * measure.usd)
    total += preference.seconds * (baseline.seconds / 60) / max(1.0, measure.seconds / 60)
    for key, weight in preference.tools.items():
        total += weight * measure.calls.get(key, 0) / max(1, baseline.calls.get(key, 0))
    return total
