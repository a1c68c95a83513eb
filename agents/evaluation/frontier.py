"""Policies on the plane of cost and accuracy: who is on the front, and how far the others are from the best there is.

All policies are measured on the same trials, those whose outcomes are known for each of them; how many are left out for
that is said, and bounds of each accuracy take them as all wrong and all right. A task with several trials counts with
their mean. PerfGain and CostSave are those of LLMRouterBench (arXiv 2601.07206), in terms of the policies compared.
docs/evaluation.md has each in a line.

Which policy is best, and which are on the front, was chosen by the same figures that are shown: so the intervals of all
policies hold together, in 95 %, and with them that of whichever was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

import numpy as np

from toolorchestra.agents.evaluation.rows import EvaluationRow, grouped
from toolorchestra.agents.evaluation.statistics import (
    DRAWS,
    SEED,
    Interval,
    TaskTally,
    mean_interval,
    paired_share_interval,
    quantile_of,
    reach_of_seeds,
    share_of,
)

ORACLE, ANY_RIGHT = "task oracle", "any right"
TaskTrial = tuple[str, int]
"""A task and one of its trials."""
TrialRows = Mapping[TaskTrial, EvaluationRow]
Trainings = Mapping[str, Sequence[TrialRows]]
"""The rows of each training, by the policy that they are trainings of."""
Trials = Mapping[str, TrialRows]
"""A policy's rows, by task and trial."""


@dataclass(frozen=True)
class PolicyPoint:
    """One policy on the plane, and how it stands to the others."""

    policy: str
    accuracy: float
    low: float
    """The bound with what was left out all wrong."""
    high: float
    """The bound with what was left out all right."""
    interval: Interval
    """Interval of the accuracy; those of all policies hold together."""
    cents: float
    cents_interval: Interval
    on_front: bool
    front_share: float
    """How often it is on the front when the tasks are drawn again."""
    perf_gain: float | None
    """Accuracy over the best single policy's, less 1; None where that is 0."""
    cost_save: float | None
    """1 less its cost over the best single policy's; None where it is less accurate or that costs nothing."""


@dataclass(frozen=True)
class PolicyFrontier:
    """Policies compared on the same trials."""

    points: tuple[PolicyPoint, ...]
    best_single: str
    """The most accurate of the single policies; the cheaper of equals."""
    may_be_best: tuple[str, ...]
    """The single policies that are not shown to be less accurate than that one; corrected for their number."""
    oracle_accuracy: float
    """Accuracy of taking each task's cheapest best policy. Where each task has several trials it is chosen by the
    others and judged by each in turn; with one trial it is whether any policy was right, which no choice comes to."""
    oracle_cents: float
    cross_fitted: bool
    """Whether it was judged by trials that did not choose it."""
    trials: int
    left_out: int
    """Trials whose outcome is not known for each policy."""

    @property
    def front(self) -> list[str]:
        """The policies on the front, from the cheapest."""
        return [p.policy for p in sorted(self.points, key=lambda p: p.cents) if p.on_front]


@dataclass(frozen=True)
class _Plane:
    """Mean outcome and cents by policy and task, in the same order of tasks."""

    right: Mapping[str, Sequence[float]]
    cents: Mapping[str, Sequence[float]]

    def accuracy(self, policy: str) -> float:
        return fmean(self.right[policy])

    def cost(self, policy: str) -> float:
        return fmean(self.cents[policy])

    @property
    def tasks(self) -> range:
        return range(len(next(iter(self.right.values()))))


def frontier(trials: Trials, singles: Sequence[str] = (), trainings: Trainings | None = None) -> PolicyFrontier | None:
    """The front over policies. `singles` are those that the best single policy is sought among: policies that always
    ask one model; all of them when left out. `trainings` has the rows of each training of the policies that are
    several. None where no trial is known for all."""
    every = sorted(set().union(*trials.values())) if trials else []
    known = [key for key in every if all(_right(rows.get(key)) is not None for rows in trials.values())]
    if not known:
        return None
    plane = _plane(trials, known)
    among = singles or list(plane.right)
    best = min(among, key=lambda p: (-plane.accuracy(p), plane.cost(p), p))
    front = {p for p in plane.right if not any(_dominates(plane, other, p) for other in plane.right)}
    oracle = _cross_fitted(trials, known)
    cross_fitted = oracle is not None
    if oracle is None:
        choices = list(enumerate(_oracle_choice(plane, task) for task in plane.tasks))
        oracle = (
            fmean([plane.right[p][task] for task, p in choices]),
            fmean([plane.cents[p][task] for task, p in choices]),
        )
    drawn, means = _drawn_fronts(plane), _Means(plane, trials, known, trainings or {})
    points = [_point(means, p, best, (front, drawn[p]), _bounds(rows, every)) for p, rows in trials.items()]
    return PolicyFrontier(
        tuple(points),
        best,
        tuple(p for p in among if p != best and means.may_beat(p, best, len(among))),
        *oracle,
        cross_fitted,
        len(known),
        len(every) - len(known),
    )


def _dominates(plane: _Plane, one: str, other: str) -> bool:
    mine, theirs = ((plane.cost(policy), plane.accuracy(policy)) for policy in (one, other))
    return mine[0] <= theirs[0] and mine[1] >= theirs[1] and mine != theirs


def _right(row: EvaluationRow | None) -> float | None:
    return None if row is None else row.right


def _by_task(keys: Sequence[TaskTrial]) -> list[list[TaskTrial]]:
    return list(grouped(keys, lambda key: key[0]).values())


def _plane(trials: Trials, known: Sequence[TaskTrial]) -> _Plane:
    tasks = _by_task(known)
    right = {p: [fmean([rows[k].value for k in keys]) for keys in tasks] for p, rows in trials.items()}
    cents = {p: [fmean([rows[k].cents for k in keys]) for keys in tasks] for p, rows in trials.items()}
    return _Plane(right, cents)


def _bounds(rows: Mapping[TaskTrial, EvaluationRow], every: Sequence[TaskTrial]) -> tuple[float, float]:
    tasks = [[_right(rows.get(key)) for key in keys] for keys in _by_task(every)]
    low = fmean([fmean([value or 0.0 for value in values]) for values in tasks])
    return low, low + fmean([fmean([float(value is None) for value in values]) for values in tasks])


def _cross_fitted(trials: Trials, known: Sequence[TaskTrial]) -> tuple[float, float] | None:
    """Accuracy and cents of the policy that a task's other trials choose; None where a task has no other trial."""
    tasks = _by_task(known)
    if min(map(len, tasks)) < 2:
        return None
    right, cents = [], []
    for keys in tasks:
        chosen = []
        for key in keys:
            rest = _plane(trials, [other for other in keys if other != key])
            chosen.append(trials[_oracle_choice(rest, 0)][key])
        right.append(fmean([row.value for row in chosen]))
        cents.append(fmean([row.cents for row in chosen]))
    return fmean(right), fmean(cents)


def _oracle_choice(plane: _Plane, task: int) -> str:
    return min(plane.right, key=lambda p: (-plane.right[p][task], plane.cents[p][task], p))


def _tally(values: Sequence[float], each: int) -> TaskTally:
    """A task's trials as so many: in the mean over tasks each weighs the same, however many of its trials are known."""
    one = TaskTally.of(values)
    return one if one.trials == each else TaskTally(fmean(values) * each, 0, each, each)


class _Means:
    """Intervals of the policies' means, and of their differences."""

    def __init__(self, plane: _Plane, trials: Trials, known: Sequence[TaskTrial], trainings: Trainings) -> None:
        self.plane, self._known, self._trainings = plane, known, trainings
        tasks = _by_task(known)
        each = len(known) // len(tasks)
        self._tallies = {
            p: [_tally([rows[k].value for k in keys], each) for keys in tasks] for p, rows in trials.items()
        }

    def accuracy(self, policy: str) -> Interval:
        """Interval of a policy's accuracy, with those of all others."""
        interval = share_of(self._tallies[policy], quantile_of(len(self._tallies))).interval
        reach = self._reach(policy, attrgetter("value"))
        return interval.wider(self.plane.accuracy(policy), reach).within(0.0, 1.0) if reach else interval

    def cents(self, policy: str) -> Interval:
        """The same of its cents."""
        interval = mean_interval(self.plane.cents[policy], len(self._tallies)) or Interval(-math.inf, math.inf)
        found = interval.wider(self.plane.cost(policy), self._reach(policy, attrgetter("cents")))
        return found.within(0.0, math.inf)

    def may_beat(self, policy: str, best: str, of: int) -> bool:
        """Whether a policy is not shown to be less accurate than the best one of so many."""
        found = paired_share_interval(self._tallies[best], self._tallies[policy], quantile_of(of))
        reach = math.hypot(*(self._reach(one, attrgetter("value")) for one in (policy, best)))
        return found.wider(self.plane.accuracy(policy) - self.plane.accuracy(best), reach).high >= 0

    def _reach(self, policy: str, of: Callable[[EvaluationRow], float]) -> float:
        return reach_over(self._trainings.get(policy, ()), self._known, of)


def _drawn_fronts(plane: _Plane) -> dict[str, float]:
    """How often each policy is on the front when tasks are drawn with replacement."""
    n = len(plane.tasks)
    often = np.random.default_rng(SEED).multinomial(n, [1 / n] * n, size=DRAWS)
    right, cents = (often @ np.array(list(side.values())).T / n for side in (plane.right, plane.cents))
    as_good = (right[:, None] >= right[:, :, None] - 1e-9) & (cents[:, None] <= cents[:, :, None] + 1e-9)
    better = (right[:, None] > right[:, :, None] + 1e-9) | (cents[:, None] < cents[:, :, None] - 1e-9)
    beaten = (as_good & better).any(axis=2).mean(axis=0)
    return {policy: 1.0 - float(share) for policy, share in zip(plane.right, beaten, strict=True)}


def _point(
    means: _Means, policy: str, best: str, fronts: tuple[set[str], float], bounds: tuple[float, float]
) -> PolicyPoint:
    plane, (front, drawn) = means.plane, fronts
    accuracy, cents = plane.accuracy(policy), plane.cost(policy)
    most, price = plane.accuracy(best), plane.cost(best)
    return PolicyPoint(
        policy,
        accuracy,
        *bounds,
        means.accuracy(policy),
        cents,
        means.cents(policy),
        policy in front,
        drawn,
        accuracy / most - 1 if most else None,
        1 - cents / price if accuracy >= most and price else None,
    )


# -- several trainings of one policy, compared as it -------------------------------------------------------------------

# An interval over tasks alone holds these trainings' mean. What another one would come to is a second source of chance.


def mean_rows(policy: str, trainings: Sequence[TrialRows]) -> list[EvaluationRow]:
    """A row for each trial that every training played under the same seed and prices, with the means of outcome, bill
    and time. What is not known of one is not known."""
    shared = set.intersection(*({(*key, row.seed, row.sheet) for key, row in rows.items()} for rows in trainings))
    made = []
    for task, trial, *_ in sorted(shared):
        rows = [some[task, trial] for some in trainings]
        known = [row.right for row in rows if row.right is not None]
        right = math.fsum(known) / len(rows) if len(known) == len(rows) else None
        roles = dict.fromkeys(role for row in rows for role in row.nano_usd_by_role)
        bill = {role: round(sum(row.nano_usd_by_role.get(role, 0) for row in rows) / len(rows)) for role in roles}
        first = next((row for row in rows if row.right is None), rows[0])
        time = round(sum(row.elapsed_ns for row in rows) / len(rows))
        made.append(replace(first, policy=policy, right=right, nano_usd_by_role=bill, elapsed_ns=time))
    return made


def reach_over(
    trainings: Sequence[TrialRows], keys: Sequence[TaskTrial], of: Callable[[EvaluationRow], float]
) -> float:
    """How far another training's mean over these trials may be, with 95 %; 0 where there is one training."""
    if len(trainings) < 2 or not keys:
        return 0.0
    by_task = grouped(keys, lambda key: key[0]).values()
    means = [[math.fsum(of(rows[key]) for key in some) / len(some) for some in by_task] for rows in trainings]
    return reach_of_seeds(np.array(means))
