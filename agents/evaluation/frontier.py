"""Policies on the plane of cost and accuracy: who is on the front, and how far the others are from the best there is.

All policies are measured on the same trials, those whose outcomes are known for each of them; how many are left out for
that is said, and bounds of each accuracy take them as all wrong and all right. A task with several trials counts with
their mean. The definitions follow LLMRouterBench (arXiv 2601.07206) and ORBIT (arXiv 2606.18774); where a policy is no
choice among given models, as here, they are put in terms of the policies compared. docs/evaluation.md has each in a
line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolorchestra.agents.evaluation.rows import EvaluationRow

ORACLE, ANY_RIGHT = "task oracle", "any right"
TaskTrial = tuple[str, int]
"""A task and one of its trials."""


@dataclass(frozen=True)
class PolicyPoint:
    """One policy on the plane, and how it stands to the others."""

    policy: str
    accuracy: float
    low: float
    """The bound with what was left out all wrong."""
    high: float
    """The bound with what was left out all right."""
    cents: float
    on_front: bool
    perf_gain: float | None
    """Accuracy over the best single policy's, less 1; None where that is 0."""
    cost_save: float | None
    """1 less its cost over the best single policy's; None where it is less accurate or that costs nothing."""
    pareto_dist: float
    """How far it is from the nearest policy on the front, with cost and accuracy each scaled to 0..1."""
    nauc: float
    """The mean accuracy to be had of it and the cheapest way, over all budgets between cheapest and most expensive."""
    collapse: float
    """The share of tasks where it was not the best, or paid what the most expensive costs though a cheaper one was as
    good."""


@dataclass(frozen=True)
class PolicyFrontier:
    """Policies compared on the same trials."""

    points: tuple[PolicyPoint, ...]
    best_single: str
    """The most accurate of the single policies; the cheaper of equals."""
    oracle_accuracy: float
    """Accuracy of taking each task's cheapest best policy. Where each task has several trials it is chosen by the
    others and judged by each in turn; with one trial it is whether any policy was right, which no choice comes to."""
    oracle_cents: float
    cross_fitted: bool
    """Whether it was judged by trials that did not choose it."""
    nauc: float
    """nAUC of all policies together."""
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
        return _mean(self.right[policy])

    def cost(self, policy: str) -> float:
        return _mean(self.cents[policy])

    @property
    def tasks(self) -> range:
        return range(len(next(iter(self.right.values()))))


def frontier(
    trials: Mapping[str, Mapping[TaskTrial, EvaluationRow]], singles: Sequence[str] = ()
) -> PolicyFrontier | None:
    """The front over policies, each with its rows by task and trial. `singles` are those that the best single policy
    is sought among: policies that always ask one model; all of them when left out. None where no trial is known for
    all."""
    every = sorted(set().union(*trials.values())) if trials else []
    known = [key for key in every if all(_right(rows.get(key)) is not None for rows in trials.values())]
    if not known:
        return None
    plane = _plane(trials, known)
    best = min(singles or plane.right, key=lambda p: (-plane.accuracy(p), plane.cost(p), p))
    front = {p for p in plane.right if not any(_dominates(plane, other, p) for other in plane.right)}
    oracle = _cross_fitted(trials, known)
    cross_fitted = oracle is not None
    if oracle is None:
        choices = list(enumerate(_oracle_choice(plane, task) for task in plane.tasks))
        oracle = (
            _mean([plane.right[p][task] for task, p in choices]),
            _mean([plane.cents[p][task] for task, p in choices]),
        )
    points = [_point(plane, policy, best, front, _bounds(rows, every)) for policy, rows in trials.items()]
    return PolicyFrontier(
        tuple(points),
        best,
        *oracle,
        cross_fitted,
        _area(plane, list(plane.right)),
        len(known),
        len(every) - len(known),
    )


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Give, of names with cost and accuracy, those that no other beats in one without losing in the other, cheapest
    first."""
    kept = [n for n, one in points.items() if not any(_beats(other, one) for other in points.values())]
    return sorted(kept, key=lambda name: (*points[name], name))


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other


def _dominates(plane: _Plane, one: str, other: str) -> bool:
    return _beats((plane.cost(one), plane.accuracy(one)), (plane.cost(other), plane.accuracy(other)))


def _right(row: EvaluationRow | None) -> float | None:
    return None if row is None else row.right


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _plane(trials: Mapping[str, Mapping[TaskTrial, EvaluationRow]], known: Sequence[TaskTrial]) -> _Plane:
    by_task: dict[str, list[TaskTrial]] = {}
    for key in known:
        by_task.setdefault(key[0], []).append(key)
    right = {
        p: [_mean([rows[k].right or 0.0 for k in keys]) for keys in by_task.values()] for p, rows in trials.items()
    }
    cents = {
        p: [_mean([100 * rows[k].agent_usd for k in keys]) for keys in by_task.values()] for p, rows in trials.items()
    }
    return _Plane(right, cents)


def _bounds(rows: Mapping[TaskTrial, EvaluationRow], every: Sequence[TaskTrial]) -> tuple[float, float]:
    by_task: dict[str, list[float | None]] = {}
    for key in every:
        by_task.setdefault(key[0], []).append(_right(rows.get(key)))
    low = _mean([_mean([value or 0.0 for value in values]) for values in by_task.values()])
    return low, low + _mean([_mean([float(value is None) for value in values]) for values in by_task.values()])


def _cross_fitted(
    trials: Mapping[str, Mapping[TaskTrial, EvaluationRow]], known: Sequence[TaskTrial]
) -> tuple[float, float] | None:
    """Accuracy and cents of the policy that a task's other trials choose; None where a task has no other trial."""
    by_task: dict[str, list[TaskTrial]] = {}
    for key in known:
        by_task.setdefault(key[0], []).append(key)
    if min(map(len, by_task.values())) < 2:
        return None
    right, cents = [], []
    for keys in by_task.values():
        chosen = []
        for key in keys:
            rest = _plane(trials, [other for other in keys if other != key])
            chosen.append(trials[_oracle_choice(rest, 0)][key])
        right.append(_mean([row.right or 0.0 for row in chosen]))
        cents.append(_mean([100 * row.agent_usd for row in chosen]))
    return _mean(right), _mean(cents)


def _oracle_choice(plane: _Plane, task: int) -> str:
    return min(plane.right, key=lambda p: (-plane.right[p][task], plane.cents[p][task], p))


def _point(plane: _Plane, policy: str, best: str, front: set[str], bounds: tuple[float, float]) -> PolicyPoint:
    accuracy, cents = plane.accuracy(policy), plane.cost(policy)
    most, price = plane.accuracy(best), plane.cost(best)
    return PolicyPoint(
        policy,
        accuracy,
        *bounds,
        cents,
        policy in front,
        accuracy / most - 1 if most else None,
        1 - cents / price if accuracy >= most and price else None,
        _distance(plane, policy, front),
        _area(plane, [policy]),
        _collapse(plane, policy),
    )


def _distance(plane: _Plane, policy: str, front: set[str]) -> float:
    wide = _width([plane.cost(p) for p in plane.right])
    tall = _width([plane.accuracy(p) for p in plane.right])
    return min(
        math.hypot((plane.cost(policy) - plane.cost(p)) / wide, (plane.accuracy(policy) - plane.accuracy(p)) / tall)
        for p in front
    )


def _width(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0


def _area(plane: _Plane, policies: Sequence[str]) -> float:
    """Area under the accuracy that a budget buys, over the budgets from each task's cheapest policy to its most
    expensive, divided by their range. Where only each task's cheapest can be paid, it is that one's accuracy."""
    every = list(plane.right)
    cheapest = [min(every, key=lambda p, t=task: (plane.cents[p][t], -plane.right[p][t], p)) for task in plane.tasks]  # type: ignore[misc]
    start = _mean([plane.cents[p][task] for task, p in enumerate(cheapest)])
    end = _mean([max(plane.cents[p][task] for p in every) for task in plane.tasks])
    bought = _mean([plane.right[p][task] for task, p in enumerate(cheapest)])
    area, at = 0.0, start
    for cost, accuracy in sorted((plane.cost(p), plane.accuracy(p)) for p in policies):
        area += bought * (cost - at)
        at, bought = cost, max(bought, accuracy)
    return (area + bought * (end - at)) / (end - start) if end - start > 1e-12 else bought


def _collapse(plane: _Plane, policy: str) -> float:
    costliest = max(plane.right, key=lambda p: (plane.cost(p), p))
    others = [p for p in plane.right if p != costliest]
    lost = 0
    for task in plane.tasks:
        best = max(plane.right[p][task] for p in plane.right)
        only_costliest = all(plane.right[p][task] < best for p in others)
        cheaper = policy != costliest and plane.cents[policy][task] < plane.cents[costliest][task]
        lost += not (plane.right[policy][task] >= best and (cheaper or only_costliest))
    return lost / len(plane.tasks)
