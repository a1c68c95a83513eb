"""The reward of a panel: how good play was for the user's wish, beside fixed players of the same tasks.

Every player is scored by himself on one scale: the bills, seconds and calls of the fixed players of this task (random,
cheapest, strongest, oracle), widened by his own. An answer that is not right earns nothing. So nobody's score depends
on who else is looked at. Divided by the sum of the wish's weights it lies in [0, 1]; terms of the user's own
(gym.make's `reward_terms`) are added to that for everybody, right or wrong.

The oracle knows the question, everybody's skill and the wish, and plans by expectation. Shares of it are over the same
tasks, with the interval of a bootstrap of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolorchestra.agents.evaluation.statistics import Interval, mean_interval, ratio_interval, wilson
from toolorchestra.agents.rollouts.grpo import GroupReward, Measure, whole
from toolorchestra.envs.base.preference import Preference

POLICY, ORACLE = "policy", "oracle"


class Scored(NamedTuple):
    """What a player came to on a task, and its reward: from 0 to 1, and the user's own terms."""

    measure: Measure
    reward: float


class TaskScores(NamedTuple):
    """What each policy scored on one task."""

    wish: str
    """Its kind."""
    players: Mapping[str, Scored]


@dataclass
class Standing:
    """How one player did over some tasks."""

    reward: float = 0.0
    accuracy: float = 0.0
    cents: float = 0.0
    seconds: float = 0.0
    calls: dict[str, float] = field(default_factory=dict)
    tasks: int = 0

    @property
    def cents_per_solved(self) -> float:
        return self.cents / self.accuracy if self.accuracy else float("inf")


@dataclass(frozen=True)
class OracleShare:
    """A player's reward as a share of the oracle's, and its interval of 95 %."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.value:.1%} [{self.interval.low:.1%}, {self.interval.high:.1%}]"


def scores(
    keys: Sequence[str], wish: Preference, policy: Measure, fixed: Mapping[str, Measure]
) -> Mapping[str, Scored] | None:
    """Everybody's score on a task. None where the policy's episode failed: the task then counts for nobody. Where no
    fixed player can play, the reward is the outcome."""
    if policy.failed:
        return None
    if not fixed:
        return {POLICY: Scored(policy, policy.outcome + sum(policy.terms.values()))}
    reward = GroupReward(wish, keys)
    weight = whole(wish.weights())
    wrong = replace(next(iter(fixed.values())), outcome=0.0)  # being right counts where everybody is
    scale = [*fixed.values(), wrong]

    def scored(measure: Measure) -> Scored:
        (made,) = reward.score([measure], scale)
        return Scored(measure, made.total / weight if made else 0.0)

    return {name: scored(measure) for name, measure in {POLICY: policy, **fixed}.items()}


def standing(tasks: Sequence[TaskScores], name: str) -> Standing:
    """A player's means, over the tasks that he played."""
    rows = [task.players[name] for task in tasks if name in task.players]
    if not rows:
        return Standing()
    calls: Counter[str] = Counter()
    for measure, _ in rows:
        calls.update(measure.calls)
    n = len(rows)
    return Standing(
        reward=sum(reward for _, reward in rows) / n,
        accuracy=sum(m.outcome for m, _ in rows) / n,
        cents=100 * sum(m.usd for m, _ in rows) / n,
        seconds=sum(m.seconds for m, _ in rows) / n,
        calls={key: count / n for key, count in sorted(calls.items())},
        tasks=n,
    )


def intervals(tasks: Sequence[TaskScores], name: str) -> dict[str, Interval]:
    """Of 95 %, of a player's means over the tasks that he played: reward and cents by a bootstrap of tasks, accuracy by
    Wilson's. Empty where he played none."""
    rows = [task.players[name] for task in tasks if name in task.players]
    rewards = mean_interval([reward for _, reward in rows])
    cents = mean_interval([100 * measure.usd for measure, _ in rows])
    if rewards is None or cents is None:
        return {}
    share = sum(measure.outcome for measure, _ in rows) / len(rows)
    return {"reward": rewards, "accuracy": wilson(share, len(rows)), "cents": cents}


def share_of_oracle(tasks: Sequence[TaskScores], name: str = POLICY) -> OracleShare | None:
    """Over the tasks that both played; None of none, or where the oracle earns nothing."""
    both = [task.players for task in tasks if ORACLE in task.players and name in task.players]
    mine, best = ([players[who].reward for players in both] for who in (name, ORACLE))
    if not sum(best):
        return None
    return OracleShare(sum(mine) / sum(best), ratio_interval(mine, best))


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
