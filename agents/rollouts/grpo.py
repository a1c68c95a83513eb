"""GRPO, from trajectories to training data: a trajectory, its reward among its siblings, its advantage, the filters.

A group is some rollouts of one task under one preference and one price sheet. Each is measured as [tool counts...,
outcome, -dollars, -seconds]; each measure is scaled by min and max (0 where all are equal) and weighed by the
preference; what did not solve the task gets 0. Terms of the user's own (gym.make's `reward_terms`) are added to that,
solved or not, in units of the weights' sum. The reward less the group's mean, over its deviation, is the advantage of
each sampled token. Pure functions, no torch.

Grpo has the two hooks of an algorithm, score a group and turn scores into advantages; agents/algorithms/ has others.

batch = training_batch(groups, Grpo(AdvantageParams()))       # batch.data goes to Engine.train
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, get_args

from toolorchestra.agents.engines.base import Datum, Sample
from toolorchestra.envs.base.errors import NOT_NEGATIVE, ConfigError, no_such, one_of, require
from toolorchestra.envs.base.preference import Preference

Unreadable = Literal["kept", "wrong", "dropped"]
GENERAL = ("outcome", "usd", "seconds")
TERM = "term "
"""What the names of a user's own terms begin with among the parts of a reward."""
MOST_ADVANTAGE = 3.0
"""Advantages are kept between minus this and this."""
EPSILON = 1e-6
"""Added to the deviation before dividing by it."""


@dataclass(frozen=True, slots=True)
class AdvantageParams:
    """How rewards become advantages, and which groups and trajectories teach nothing."""

    least_spread: float = 0.1
    """Groups whose rewards' standard deviation is not above this are left out."""
    unreadable: Unreadable = "kept"
    """What becomes of a trajectory with an unreadable turn: it is "kept" like any other, "wrong" as if it had not
    solved its task, or "dropped", as then is one that ran into a limit."""
    count_context_cuts: bool = False
    """Teach against trajectories that ran out of context, as wrong answers. Without it they are left out of their
    group: what they would have answered is not known."""

    def __post_init__(self) -> None:
        require(self, NOT_NEGATIVE, "least_spread", where="advantage.")
        one_of("advantage.unreadable", self.unreadable, get_args(Unreadable))


# -- trajectories ------------------------------------------------------------------------------------------------------


@dataclass
class TokenSequence:
    """Tokens of a rollout, only ever appended to: ids, and for each whether (and how likely) it was sampled."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    text: str = ""
    """What the tokens say."""
    shown: Sequence[Mapping[str, Any]] = ()
    """The messages before its last turn."""
    turn_at: int = 0
    """Where in the text that turn begins, with what prompts for it."""

    @property
    def turns(self) -> int:
        """How many turns were sampled: what was given stands between two of them."""
        return sum(now and not before for before, now in pairwise((False, *self.sampled)))

    def datum(self, advantages: float | Sequence[float]) -> Datum:
        """The sequence, to be learnt from: each sampled token has the advantage of its turn, or all have this one."""
        if isinstance(advantages, float):
            advantages = [advantages] * self.turns
        spread, turn = [0.0] * len(self.sampled), -1
        for place, (before, now) in enumerate(pairwise((False, *self.sampled))):
            turn += now and not before
            spread[place] = advantages[turn] if now else 0.0
        return Datum(self.tokens, self.logprobs, spread, self.sampled)

    def force(self, ids: Sequence[int], text: str) -> None:
        """Append tokens that were given."""
        self.tokens.extend(ids)
        self.logprobs.extend([0.0] * len(ids))
        self.sampled.extend([False] * len(ids))
        self.text += text

    def take(self, sample: Sample, text: str) -> None:
        """Append tokens that were sampled."""
        self.tokens.extend(sample.tokens)
        self.logprobs.extend(sample.logprobs)
        self.sampled.extend([True] * len(sample.tokens))
        self.text += text


class Expected(NamedTuple):
    """What an episode of simulated experts was to be expected to come to, by the calls that were made."""

    chance: float
    """How likely its answer was right."""
    usd: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Measure:
    """What a trajectory came to, as far as rewards look at it."""

    outcome: float
    usd: float
    seconds: float
    calls: Mapping[str, float]
    failed: bool = False
    """Whether its episode broke: it is no evidence of anything, and never counted as 0."""
    valid_format: bool = True
    """Every turn could be read as an action."""
    valid_output: bool = True
    """Whether it came to an answer of its own, not to a limit."""
    context_cut: bool = False
    """Whether it ran out of context: what it would have answered is not known."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """What terms of the user's own came to. They are not scaled: 1 is what the best possible episode earns."""
    expected: Expected | None = None
    """What training learns from in place of what was drawn (see RolloutParams.expected_outcome); None: what was
    drawn."""

    @property
    def solved(self) -> bool:
        return self.outcome >= 1.0


@dataclass
class Trajectory:
    """One episode, with its exact tokens."""

    env_id: str
    task_id: str
    seed: int
    sheet: str
    preference: Preference
    keys: Sequence[str]
    sequences: list[TokenSequence]
    measure: Measure
    turns: int
    truncated_by: str = ""
    failure: Mapping[str, Any] | None = None
    messages: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    bill: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None
    """Record in the form of RecordTrajectories, where its job asked for it."""
    sampled_with: Mapping[int, int] = field(default_factory=dict)
    """Sampled tokens by the step of the weights that sampled them, where rollouts go on beside the training."""

    @property
    def sampled_tokens(self) -> int:
        return sum(sum(s.sampled) for s in self.sequences)

    @property
    def sampled_turns(self) -> int:
        return sum(s.turns for s in self.sequences)

    def data(self, advantages: Sequence[float]) -> list[Datum]:
        """Sequences of it, to be learnt from, by the advantage of each turn."""
        made, turn = [], 0
        for sequence in self.sequences:
            made.append(sequence.datum(advantages[turn : turn + sequence.turns]))
            turn += sequence.turns
        return made


@dataclass
class Group:
    """Rollouts of one task under one preference and one price sheet."""

    trajectories: list[Trajectory]
    baselines: Sequence[Measure] = ()
    """What baselines came to on the same task: the rewards are scaled between those that did not fail. They are not
    trained on."""
    label: str = ""
    """Label of its environment of the mix."""

    def __post_init__(self) -> None:
        first = self.trajectories[0]
        for other in self.trajectories[1:]:
            if (other.task_id, other.sheet, other.preference) != (first.task_id, first.sheet, first.preference):
                raise ValueError(
                    f"a group's rollouts must share task, prices and preference; {first.task_id} ({first.sheet}) "
                    f"stands beside {other.task_id} ({other.sheet})"
                )


# -- rewards -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """A trajectory's reward, and what each part of the preference contributed to it."""

    total: float
    parts: Mapping[str, float]
    """Weight times scaled measure, by name, and the user's own terms. An episode that did not solve its task has terms
    alone."""
    solved: bool


@dataclass(frozen=True, slots=True)
class GroupReward:
    """The paper's reward, with its signs: what a trajectory is worth among its siblings, under one preference."""

    preference: Preference
    keys: Sequence[str]
    """Countable keys of the toolbox."""

    def __post_init__(self) -> None:
        for name in self.preference.tools:
            if name not in self.keys:
                raise ConfigError(no_such("preference key", name, (*GENERAL, *self.keys)))

    def score(self, group: Sequence[Measure], baselines: Sequence[Measure] = ()) -> list[RewardBreakdown | None]:
        """One breakdown a trajectory; None for those whose episode failed. `baselines` are further measures of the same
        task that widen the scale and are not scored themselves."""
        weights = {name: weight for name, weight in self.preference.weights().items() if weight}
        scale = [m for m in (*group, *baselines) if not m.failed]
        ranges = {name: _range([_value(m, name) for m in scale], name) for name in weights}
        return [None if m.failed else _breakdown(m, weights, ranges) for m in group]


def _range(values: Sequence[float], name: str) -> tuple[float, float]:
    if wrong := [v for v in values if not math.isfinite(v)]:
        raise ValueError(f"a trajectory's {name} is not a finite number: {wrong}")
    return (min(values), max(values)) if values else (0.0, 0.0)


def _value(measure: Measure, name: str) -> float:
    if name == "outcome":
        return measure.outcome
    if name in ("usd", "seconds"):
        return -measure.usd if name == "usd" else -measure.seconds
    return float(measure.calls.get(name, 0))


def _breakdown(
    measure: Measure, weights: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]
) -> RewardBreakdown:
    parts = {f"{TERM}{name}": whole(weights) * value for name, value in measure.terms.items()}
    for name, weight in weights.items() if measure.solved else ():
        low, high = ranges[name]
        parts[name] = weight * ((_value(measure, name) - low) / (high - low)) if high > low else 0.0
    return RewardBreakdown(sum(parts.values(), 0.0), parts, measure.solved)


def whole(weights: Mapping[str, float]) -> float:
    """The most that a preference's parts can come to: their weights' sum; 1 where nothing has weight."""
    return sum(weights.values()) or 1.0


def rewards_of(group: Group, params: AdvantageParams) -> list[RewardBreakdown | None]:
    """The reward of each trajectory of a group; None where the trajectory is no evidence of anything.

    With baselines each is measured between them and itself, as held-out evaluation does: then one expensive sibling
    makes nobody else's bill look small.
    """
    first = group.trajectories[0]
    reward = GroupReward(first.preference, first.keys)
    measures = [as_counted(t.measure, params) for t in group.trajectories]
    baselines = [m for m in group.baselines if not m.failed]
    others = [*baselines, *(m for m in measures if m.expected and not m.failed)]
    wrong = [replace(others[0], outcome=0.0)] if others else []  # being right counts where everybody is
    if not baselines:
        scored = reward.score(measures, wrong)
    else:
        scored = [reward.score([measure], [*baselines, *wrong])[0] for measure in measures]
    return [_expected(made, measure.expected) for made, measure in zip(scored, measures, strict=True)]


def as_counted(measure: Measure, params: AdvantageParams) -> Measure:
    """A measure as training counts it. Where it is known what was to be expected that is scored, as right: the chance
    counts afterwards."""
    if measure.context_cut and not params.count_context_cuts:
        return replace(measure, failed=True)  # no evidence, and no end of the scale
    if params.unreadable == "wrong" and not measure.valid_format:
        return replace(measure, outcome=0.0, expected=None)
    expected = measure.expected
    return replace(measure, outcome=1.0, usd=expected.usd, seconds=expected.seconds) if expected else measure


def _expected(made: RewardBreakdown | None, expected: Expected | None) -> RewardBreakdown | None:
    """What a right answer earns, as often as it is right. The user's own terms are what they are."""
    if made is None or expected is None:
        return made
    parts = {name: part if name.startswith(TERM) else expected.chance * part for name, part in made.parts.items()}
    return RewardBreakdown(sum(parts.values(), 0.0), parts, made.solved)


# -- advantages --------------------------------------------------------------------------------------------------------

Rewards = Sequence[RewardBreakdown | None]
"""The reward of each trajectory of a group."""
Advantages = Sequence[float]
"""The advantage of each turn of a trajectory, over all its sequences."""


class Algorithm(Protocol):
    """What turns the groups of a step into advantages. The trainer knows nothing else of it."""

    params: AdvantageParams

    def score(self, group: Group) -> Rewards:
        """The reward of each trajectory; None where it is no evidence of anything."""

    def advantages(self, groups: Sequence[Group], rewards: Sequence[Rewards]) -> list[list[Advantages | None]]:
        """Advantages by group and trajectory: the one of each turn; None where nothing is learnt from the
        trajectory."""


class Grpo:
    """The paper's: the reward less the group's mean, over its deviation, for each turn alike."""

    def __init__(self, params: AdvantageParams) -> None:
        self.params = params

    def score(self, group: Group) -> Rewards:
        """The paper's reward, between baselines where some play."""
        return rewards_of(group, self.params)

    def advantages(self, groups: Sequence[Group], rewards: Sequence[Rewards]) -> list[list[Advantages | None]]:
        """Group by group."""
        return [self._of_group(group, scored) for group, scored in zip(groups, rewards, strict=True)]

    def compared(self, totals: Sequence[float], group: Group) -> list[float]:
        """How much better each reward of a group is than the others."""
        del group
        mean, deviation = statistics.fmean(totals), statistics.stdev(totals)
        return [(total - mean) / (deviation + EPSILON) for total in totals]

    def _of_group(self, group: Group, rewards: Rewards) -> list[Advantages | None]:
        totals = [reward.total for reward in rewards if reward is not None]
        if any(math.isnan(total) for total in totals):
            raise ValueError("a reward is nan; an episode without an outcome must be marked failed, not scored")
        if len(totals) < 2 or statistics.stdev(totals) <= self.params.least_spread:
            return [None] * len(rewards)
        values = iter(self.compared(totals, group))
        made: list[Advantages | None] = []
        for trajectory, reward in zip(group.trajectories, rewards, strict=True):
            advantage = None if reward is None else max(-MOST_ADVANTAGE, min(MOST_ADVANTAGE, next(values)))
            left_out = advantage is None or _left_out(trajectory.measure, self.params)
            made.append(None if left_out else [advantage or 0.0] * trajectory.sampled_turns)
        return made


def _left_out(measure: Measure, params: AdvantageParams) -> bool:
    return params.unreadable == "dropped" and not (measure.valid_format and measure.valid_output)


def teaches(group: Group, algorithm: Algorithm) -> bool:
    """Whether anything is learnt from a group."""
    return any(one is not None for one in algorithm.advantages([group], [algorithm.score(group)])[0])


@dataclass(frozen=True)
class TrainingBatch:
    """One step's data, with what was left out."""

    data: list[Datum]
    rewards: list[Rewards]
    """Rewards by group and trajectory; None where the episode failed, or ran out of context and is left out."""
    advantages: list[list[Advantages | None]]
    """Advantages by group, trajectory and turn; None where nothing is learnt from the trajectory."""
    flat_groups: int
    """Groups that teach nothing: without enough spread, or with nothing left of them."""
    failed: int
    """Trajectories whose episode failed."""

    @property
    def used(self) -> int:
        """Trajectories that are learnt from."""
        return sum(a is not None for row in self.advantages for a in row)


def training_batch(groups: Sequence[Group], algorithm: Algorithm) -> TrainingBatch:
    """Score each group, and give every sampled token the advantage of its turn."""
    rewards = [algorithm.score(group) for group in groups]
    made = algorithm.advantages(groups, rewards)
    flat = sum(all(a is None for a in row) for row in made)
    failed = sum(t.measure.failed for group in groups for t in group.trajectories)
    data: list[Datum] = []
    for group, row in zip(groups, made, strict=True):
        for trajectory, of_turns in zip(group.trajectories, row, strict=True):
            data += [] if of_turns is None else trajectory.data(of_turns)
    return TrainingBatch(data, rewards, made, flat, failed)
