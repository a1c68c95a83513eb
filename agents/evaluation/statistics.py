"""Figures of trials with their intervals: a share, pass^k, a ratio of sums, a paired difference, an entropy.

What is not known is never left out of a share: its trials count once as all wrong and once as all right, and the
interval that is shown spans those of both. Intervals are of 95 %. Each bootstrap draws tasks, not trials, from a fixed
seed, so the same rows give the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Z = 1.959963984540054
"""Quantile of the normal distribution, for 95 %."""
POWER_Z = 0.841621
"""The same for 80 %, one-sided."""
DRAWS = 2000
"""Draws of each bootstrap."""
SEED = 20_251_121
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Interval:
    """An interval from low to high. `high` may be infinite, as that of the cost of a solved task."""

    low: float
    high: float

    def union(self, other: Interval) -> Interval:
        """The smallest that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class TaskTally:
    """The trials of one task."""

    right: float
    """Sum of the known outcomes, each from 0 to 1."""
    solved: int
    """Known outcomes of 1."""
    known: int
    trials: int

    @property
    def unknown(self) -> int:
        return self.trials - self.known

    def high(self) -> TaskTally:
        """Share as if all that is not known were right."""
        return TaskTally(self.right + self.unknown, self.solved + self.unknown, self.trials, self.trials)

    def low(self) -> TaskTally:
        """Share as if all that is not known were wrong."""
        return TaskTally(self.right, self.solved, self.trials, self.trials)


@dataclass(frozen=True)
class Share:
    """How much of the trials was right."""

    right: float
    known: int
    trials: int
    low: float
    """Share of the trials that is right for sure."""
    high: float
    """Share of the trials that is right if all that is not known is."""
    interval: Interval
    """The union of the intervals of both."""

    @property
    def unknown(self) -> int:
        return self.trials - self.known

    @property
    def value(self) -> float | None:
        """The share; None where some outcomes are not known, as there are only bounds then, or no trial is."""
        return self.low if self.trials and not self.unknown else None


def wilson(share: float, trials: float) -> Interval:
    """Wilson's score interval of a share of `trials`, which may be an effective number."""
    if trials <= 0:
        return Interval(0.0, 1.0)
    squared = Z * Z / trials
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (share * (1 - share) + squared / 4)) / (1 + squared)
    return Interval(max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def effective_trials(tallies: Sequence[TaskTally]) -> float:
    """How many independent trials these are worth: the trials over the design effect.

    The design effect is the cluster-robust variance of the share over the binomial one, held between 1 (trials of a
    task are as different as those of two) and Kish's bound (they are all alike). Where all or none are right, it is
    the bound.
    """
    sizes = np.array([t.trials for t in tallies], dtype=float)
    total = float(sizes.sum())
    if total == 0:
        return 0.0
    most = float((sizes**2).sum()) / total
    share = sum(t.right for t in tallies) / total
    binomial = share * (1 - share) / total
    if most <= 1 or len(tallies) < 2 or binomial <= 1e-15:
        return total / most
    apart = np.array([t.right for t in tallies]) - share * sizes
    robust = len(tallies) / (len(tallies) - 1) * float((apart**2).sum()) / total**2
    return total / min(most, max(1.0, robust / binomial))


def share_of(tallies: Sequence[TaskTally]) -> Share:
    """The share of what was right, its bounds and its interval, clustered by task."""
    trials = sum(t.trials for t in tallies)
    known, right = sum(t.known for t in tallies), sum(t.right for t in tallies)
    if not trials:
        return Share(0.0, 0, 0, 0.0, 1.0, Interval(0.0, 1.0))
    low, high = right / trials, (right + trials - known) / trials
    bounds = [[t.low() for t in tallies], [t.high() for t in tallies]]
    first, last = (wilson(share, effective_trials(some)) for share, some in zip((low, high), bounds, strict=True))
    return Share(right, known, trials, low, min(1.0, high), first.union(last))


def pass_hat(trials: int, solved: int, k: int) -> float:
    """The chance that k trials drawn of these are all solved: C(solved, k) / C(trials, k)."""
    _check_k(trials, k)
    return math.comb(solved, k) / math.comb(trials, k)


def pass_at(trials: int, solved: int, k: int) -> float:
    """The chance that one of k trials drawn of these is solved: 1 - C(trials - solved, k) / C(trials, k)."""
    _check_k(trials, k)
    return 1.0 - math.comb(trials - solved, k) / math.comb(trials, k)


def _check_k(trials: int, k: int) -> None:
    if not 1 <= k <= trials:
        raise ValueError(f"k from 1 to the {trials} trials of a task expected, got {k}")


def pass_rates(tallies: Sequence[TaskTally], of: Callable[[int, int, int], float]) -> dict[int, Interval]:
    """Means of pass^k or pass@k over tasks, for each k that every task has trials for: from all that is not known wrong
    to all of it right."""
    most = min((t.trials for t in tallies), default=0)
    made = {}
    for k in range(1, most + 1):
        low = sum(of(t.trials, t.solved, k) for t in tallies) / len(tallies)
        high = sum(of(t.trials, t.solved + t.unknown, k) for t in tallies) / len(tallies)
        made[k] = Interval(low, high)
    return made


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> Interval:
    """Interval of the ratio of two sums over tasks: percentiles of a bootstrap of tasks. Infinite where the lower sum
    is 0."""
    if not tops:
        return Interval(0.0, math.inf)
    above, below = _drawn_sums(np.array([tops, bottoms], dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(below > 0, above / below, math.inf)
    return _middle(ratios)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Interval of a mean over tasks: percentiles of a bootstrap of tasks. None of no tasks."""
    if not values:
        return None
    return _middle(_drawn_sums(np.array([values], dtype=float))[0] / len(values))


def _drawn_sums(columns: Array) -> Array:
    """The sums of each column over as many tasks, drawn with replacement, again and again."""
    generator = np.random.default_rng(SEED)
    tasks = columns.shape[1]
    sums = np.empty((len(columns), DRAWS))
    step = max(1, 500_000 // tasks)
    for start in range(0, DRAWS, step):
        size = min(step, DRAWS - start)
        drawn = generator.integers(0, tasks, (size, tasks), dtype=np.int32)
        for column, values in enumerate(columns):
            sums[column, start : start + size] = values[drawn].sum(axis=1)
    return sums


def _middle(values: Array) -> Interval:
    low = float(np.quantile(values, 0.025, method="lower"))
    return Interval(low, float(np.quantile(values, 0.975, method="higher")))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The median is that of 0.5. Between two values it is drawn straight. None of no values."""
    return float(np.quantile(np.array(values, dtype=float), share)) if values else None


def paired_share_interval(left: Sequence[TaskTally], right: Sequence[TaskTally]) -> Interval:
    """Interval of the difference right - left of two shares of the same tasks: Newcombe's square-and-add of both
    clustered Wilson intervals, with the correlation of the tasks."""
    if not left:
        return Interval(-1.0, 1.0)
    (p, (a, b)), (q, (c, d)) = (_with_limits(some) for some in (left, right))
    together = _correlation([t.right / t.trials for t in left], [t.right / t.trials for t in right])

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * together * one * other + other * other))

    return Interval(max(-1.0, q - p - reach(q - c, b - p)), min(1.0, q - p + reach(d - q, p - a)))


def _with_limits(tallies: Sequence[TaskTally]) -> tuple[float, tuple[float, float]]:
    share = share_of(tallies)
    return share.low, (share.interval.low, share.interval.high)


def _correlation(left: Sequence[float], right: Sequence[float]) -> float:
    one, other = (np.array(values) - np.mean(values) for values in (left, right))
    size = math.sqrt(float((one**2).sum()) * float((other**2).sum()))
    return float((one * other).sum()) / size if size > 1e-12 else 0.0


def sign_test(better: int, worse: int) -> float:
    """Two-sided and exact: how likely a split as uneven as this is if both are as good. Of pairs with outcomes of 0
    and 1 it is McNemar's exact test."""
    pairs = better + worse
    tail: int = sum(math.comb(pairs, n) for n in range(min(better, worse) + 1))
    return min(1.0, tail / 2 ** (pairs - 1)) if pairs else 1.0


def tasks_to_show(points: float) -> int:
    """How many tasks show a difference of so many points between two policies that play the same tasks, in four of five
    runs, by an interval of 95 %: where they disagree on half of them, which is the most that chance makes."""
    return math.ceil((Z + POWER_Z) ** 2 * 0.5 / (points / 100) ** 2)


def entropy(calls: Mapping[str, int]) -> float:
    """Entropy of calls by what they went to, in nats: 0 where all went to one."""
    total = sum(calls.values())
    return sum(n / total * math.log(total / n) for n in calls.values() if n)


def most_used(calls: Mapping[str, int]) -> tuple[str, float]:
    """What most calls went to, and its share of them; the first of several."""
    total = sum(calls.values())
    key = max(calls, key=calls.__getitem__, default="")
    return (key, calls[key] / total) if total else ("", 0.0)
