"""From groups of rollouts to training data: reward, advantage, filters. Pure; the engine comes after.

"grpo" normalises each rollout's reward within its group. "gdpo" (arXiv 2601.05242) normalises each part of the reward
within the group, adds the parts up by their weights, and then brings the whole batch to mean 0 and deviation 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.rollouts.rewards import TERM, GroupReward, Measure, RewardBreakdown, whole
from toolorchestra.agents.rollouts.trajectory import Group
from toolorchestra.envs.base.errors import NOT_NEGATIVE, POSITIVE, ConfigError, no_such, require
from toolorchestra.envs.base.preference import Preference

AdvantageMethod = Literal["grpo", "gdpo"]
RewardScale = Literal["group", "anchors"]


@dataclass(frozen=True, slots=True)
class AdvantageParams:
    """How rewards become advantages, and which groups teach nothing."""

    method: AdvantageMethod = "grpo"
    """"grpo" normalises the reward in its group, "gdpo" each part of it, and then the batch."""
    least_spread: float = 0.1
    """Groups whose rewards' standard deviation is not above this are left out."""
    least_range: float = 0.0
    """A measure (dollars, seconds, a tool's calls) whose range in its group is at most this share of its largest value
    teaches nothing: eight right answers that differ by a thousandth of a cent are equally good. The paper has none."""
    by_deviation: bool = True
    """Of "grpo": divide by the group's standard deviation, as the paper does. Without it a group counts as much as its
    rewards differ, and a few cents between right answers weigh less than right against wrong."""
    floor: float = 0.0
    """Divide by no less than this. Where fixed policies widen the scale, rollouts that are all right differ by little:
    with a floor and without the filter they teach what is cheaper, and no more loudly than it is worth."""
    clip: float = 3.0
    """Advantages are kept between minus this and this."""
    boost: float = 0.0
    """Added to advantages of 1 or more, as the released code does with 0.1."""
    epsilon: float = 1e-6
    """Added to the deviation before dividing."""
    scale: RewardScale = "group"
    """What bills and calls are measured between: the ends of the whole group, as the paper does, or with "anchors"
    those of the fixed policies and the rollout itself, as held-out evaluation does. Then one dear sibling makes nobody
    else's bill look small."""
    strict_format: bool = False
    """A trajectory with an unreadable turn is taught against, as if it had not solved its task."""
    drop_invalid_format: bool = False
    """Leave out trajectories with an unreadable turn instead of teaching against them."""
    drop_invalid_output: bool = False
    """Leave out trajectories that ran into a limit instead of teaching against them."""
    count_context_cuts: bool = False
    """Teach against trajectories that ran out of context, as wrong answers. Without it they are left out of their
    group: what they would have answered is not known."""

    def __post_init__(self) -> None:
        if self.method not in get_args(AdvantageMethod):
            raise ConfigError(no_such("advantage.method", self.method, get_args(AdvantageMethod)))
        if self.scale not in get_args(RewardScale):
            raise ConfigError(no_such("advantage.scale", self.scale, get_args(RewardScale)))
        require(self, NOT_NEGATIVE, "least_spread", "least_range", "floor", "boost", "epsilon", where="advantage.")
        require(self, POSITIVE, "clip", where="advantage.")


@dataclass(frozen=True)
class TrainingBatch:
    """One step's data, with what was left out."""

    data: list[Datum]
    rewards: list[list[RewardBreakdown | None]]
    """By group and trajectory; None where the episode failed, or ran out of context and is left out."""
    advantages: list[list[float | None]]
    """Alike; None where nothing is learnt from the trajectory."""
    flat_groups: int
    """Groups that teach nothing: without enough spread, or with nothing left of them."""
    failed: int
    """Trajectories whose episode failed."""

    @property
    def used(self) -> int:
        """Trajectories that are learnt from."""
        return sum(a is not None for row in self.advantages for a in row)


def training_batch(groups: Sequence[Group], params: AdvantageParams) -> TrainingBatch:
    """Score each group, and give every sampled token of a trajectory that trajectory's advantage."""
    rewards = [_scored(group, params) for group in groups]
    made = [
        in_group(scored, group.trajectories[0].preference, params)
        for group, scored in zip(groups, rewards, strict=True)
    ]
    if params.method == "gdpo":
        made = _whitened(made, params.epsilon)
    made = [_kept(group, row, params) for group, row in zip(groups, made, strict=True)]
    flat = sum(all(a is None for a in row) for row in made)
    failed = sum(t.measure.failed for group in groups for t in group.trajectories)
    data = [
        sequence.datum(advantage)
        for group, row in zip(groups, made, strict=True)
        for trajectory, advantage in zip(group.trajectories, row, strict=True)
        if advantage is not None
        for sequence in trajectory.sequences
    ]
    return TrainingBatch(data, rewards, made, flat, failed)


def teaches(group: Group, params: AdvantageParams) -> bool:
    """Whether anything is learnt from a group."""
    row = in_group(_scored(group, params), group.trajectories[0].preference, params)
    return any(advantage is not None for advantage in _kept(group, row, params))


def _scored(group: Group, params: AdvantageParams) -> list[RewardBreakdown | None]:
    first = group.trajectories[0]
    reward = GroupReward(first.preference, first.keys, params.strict_format, params.least_range)
    measures = [t.measure for t in group.trajectories]
    if not params.count_context_cuts:  # as good as failed: no evidence, and no end of the scale
        measures = [replace(m, failed=True) if m.context_cut else m for m in measures]
    if params.scale == "anchors" and group.anchors:
        wrong = replace(group.anchors[0], outcome=0.0)  # being right counts where everybody is
        return [reward.score([measure], [*group.anchors, wrong])[0] for measure in measures]
    return reward.score(measures, group.anchors)


def _kept(group: Group, row: Sequence[float | None], params: AdvantageParams) -> list[float | None]:
    return [kept_advantage(advantage, t.measure, params) for advantage, t in zip(row, group.trajectories, strict=True)]


def in_group(
    rewards: Sequence[RewardBreakdown | None], wish: Preference, params: AdvantageParams
) -> list[float | None]:
    """Each sound rollout against its siblings; None for the others, and for all of a group that teaches nothing."""
    kept = [r for r in rewards if r is not None]
    totals = [r.total for r in kept]
    if any(math.isnan(total) for total in totals):
        raise ValueError("a reward is nan; an episode without an outcome must be marked failed, not scored")
    if len(kept) < 2 or statistics.stdev(totals) <= params.least_spread:
        return [None] * len(rewards)
    if params.method == "grpo":
        made = _normal(totals, params)
    else:
        made = [0.0] * len(kept)
        weights = wish.weights()
        own = {name: whole(weights) for r in kept for name in r.parts if name.startswith(TERM)}
        for name, weight in {**weights, **own}.items():
            part = _normal([r.parts.get(name, 0.0) / weight for r in kept], params) if weight else made
            made = [sum_ + weight * one for sum_, one in zip(made, part, strict=True)]
    values = iter(made)
    return [None if r is None else next(values) for r in rewards]


def _normal(values: Sequence[float], params: AdvantageParams) -> list[float]:
    """(value - mean) / (deviation + epsilon), or value - mean; 0 where all are equal."""
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    if not spread:
        return [0.0] * len(values)
    divisor = max(spread, params.floor) + params.epsilon if params.by_deviation else 1.0
    return [(value - mean) / divisor for value in values]


def _whitened(groups: Sequence[Sequence[float | None]], epsilon: float) -> list[list[float | None]]:
    """The whole batch at mean 0 and deviation 1."""
    values = [a for row in groups for a in row if a is not None]
    mean = statistics.fmean(values) if values else 0.0
    spread = (statistics.stdev(values) if len(values) > 1 else 0.0) + epsilon
    return [[None if a is None else (a - mean) / spread for a in row] for row in groups]


def kept_advantage(advantage: float | None, measure: Measure, params: AdvantageParams) -> float | None:
    """Boosted and clipped; None where a filter leaves the trajectory out."""
    left_out = (params.drop_invalid_format and not measure.valid_format) or (
        params.drop_invalid_output and not measure.valid_output
    )
    if advantage is None or left_out:
        return None
    advantage += params.boost if advantage >= 1.0 else 0.0
    return max(-params.clip, min(params.clip, advantage))
