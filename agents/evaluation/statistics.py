"""Figures of trials with their intervals: a share, pass^k, a ratio of sums, a paired difference, an entropy.

What is not known is never left out of a share: its trials count once as all wrong and once as all right, and the
interval that is shown spans those of both. Intervals are of 95 %. Each bootstrap draws tasks, not trials, from a fixed
seed, so the same rows give the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

Z = 1.959963984540054
"""Quantile of the normal distribution, for 95 %."""
POWER_Z = 0.841621
"""The same for 80 %, one-sided."""
DRAWS = 2000
"""Draws of each bootstrap."""
LEAST_ERROR = 0.6
"""The least standard error of a draw, as a share of that of all tasks: tasks that are drawn alike have none."""
FEW_TASKS = 20
"""Below so many tasks their correlation is taken lower than it was seen, and an interval of a mean is no narrower than
Student's. From here on intervals hold the truth as it is, and figures of so many tasks are published."""
SEED = 20_251_121
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Interval:
    """An interval from low to high. `high` may be infinite, as that of the cost of a solved task."""

    low: float
    high: float

    def wider(self, value: float, reach: float) -> Interval:
        """The interval of a value with another, independent uncertainty: square and add."""
        return Interval(value - math.hypot(value - self.low, reach), value + math.hypot(self.high - value, reach))

    def within(self, least: float, most: float) -> Interval:
        """What of it is possible."""
        return Interval(max(least, self.low), min(most, self.high))

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

    @classmethod
    def of(cls, outcomes: Iterable[float | None], missing: int = 0) -> TaskTally:
        """Sum up outcomes, None for one that is not known. Trials that were never played are `missing`."""
        every = list(outcomes)
        known = [value for value in every if value is not None]
        return cls(math.fsum(known), sum(v >= 1.0 for v in known), len(known), len(every) + missing)

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


def wilson(share: float, trials: float, z: float = Z) -> Interval:
    """Wilson's score interval of a share of `trials`, which may be an effective number."""
    if trials <= 0:
        return Interval(0.0, 1.0)
    squared = z * z / trials
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


def share_of(tallies: Sequence[TaskTally], z: float = Z) -> Share:
    """The share of what was right, its bounds and its interval, clustered by task. `z` is the normal quantile of the
    interval, where it is one of several."""
    trials = sum(t.trials for t in tallies)
    known, right = sum(t.known for t in tallies), sum(t.right for t in tallies)
    if not trials:
        return Share(0.0, 0, 0, 0.0, 1.0, Interval(0.0, 1.0))
    low, high = right / trials, (right + trials - known) / trials
    bounds = [[t.low() for t in tallies], [t.high() for t in tallies]]
    first, last = (wilson(share, effective_trials(some), z) for share, some in zip((low, high), bounds, strict=True))
    return Share(right, known, trials, low, min(1.0, high), first.union(last))


def pass_hat(trials: int, solved: int, k: int) -> float:
    """The chance that k trials drawn of these are all solved: C(solved, k) / C(trials, k)."""
    if not 1 <= k <= trials:
        raise ValueError(f"k from 1 to the {trials} trials of a task expected, got {k}")
    return math.comb(solved, k) / math.comb(trials, k)


def pass_at(trials: int, solved: int, k: int) -> float:
    """The chance that one of k trials drawn of these is solved: 1 - C(trials - solved, k) / C(trials, k)."""
    return 1.0 - pass_hat(trials, trials - solved, k)


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


def mean_interval(
    values: Sequence[float], of: int = 1, *, outcomes: bool = False, never_below_0: bool = False
) -> Interval | None:
    """Interval of a mean over tasks: a bootstrap-t of tasks. None of fewer than two, which say nothing of how far
    others are from them. `of` is how many such intervals hold their means together in 95 %. `outcomes`: the values are
    mostly outcomes, as accuracy and rewards are, and have no long tails. `never_below_0`: as bills and times, whose
    mean cannot be below 0 either.

    Without `outcomes` its tails are as much longer than 2.5 % as Student's are than the normal ones: costs have long
    tails, which few tasks do not show (Hesterberg 2015, The American Statistician 69:371)."""
    column, n = np.array(values, dtype=float), len(values)
    if n < 2:
        return None
    centre, error = _mean_and_error(column)
    tail = 0.025 if outcomes else max(0.0125, NormalDist().cdf(-math.sqrt(n / (n - 1)) * student(n - 1)))
    low, high = _pivots(column, tail / of, quantile_of(of)) if error else (0.0, 0.0)
    least = 0.0 if never_below_0 else -math.inf
    return Interval(max(least, centre - high * error), centre - low * error)


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> Interval:
    """Interval of the ratio of two sums over tasks: Fieller's, by a bootstrap-t of tasks. Infinite where the lower sum
    is 0, or may be."""
    above, below = np.array(tops, dtype=float), np.array(bottoms, dtype=float)
    if not tops or not below.sum() > 0:
        return Interval(math.inf if any(tops) else 0.0, math.inf)
    ratio = float(above.sum() / below.sum())
    apart = above - ratio * below
    if np.ptp(apart) <= 1e-12 * float(np.abs(above).max()):
        return Interval(ratio, ratio) if len(tops) > 1 else Interval(-math.inf, math.inf)
    low, high = _pivots(apart, 0.025, Z)
    least = 0.0 if float(above.min()) >= 0 else -math.inf
    lower = [one for one in _fieller(above, below, high) if one < ratio]
    upper = [one for one in _fieller(above, below, low) if one > ratio]
    return Interval(max(least, max(lower, default=-math.inf)), min(upper, default=math.inf))


def _fieller(above: Array, below: Array, pivot: float) -> list[float]:
    """The ratios R at which the mean of above - R * below is `pivot` standard errors from 0, on either side."""
    (one, both), (_, other) = np.cov(above, below) / len(above)
    x, y = float(above.mean()), float(below.mean())
    roots = np.roots([y * y - pivot**2 * other, -2 * (x * y - pivot**2 * both), x * x - pivot**2 * one])
    return [float(root.real) for root in roots if abs(root.imag) < 1e-12]


def _mean_and_error(values: Array) -> tuple[float, float]:
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    centre = float(values.mean())
    return centre, error if error > 1e-12 * abs(centre) else 0.0


def _pivots(values: Array, tail: float, z: float) -> tuple[float, float]:
    """How many of its own standard errors the mean of as many tasks, drawn with replacement, is from that of all: the
    values below and above which the share `tail` of the draws is. Few tasks have few such draws: there it is as far at
    least as Student's quantile, where the normal one is `z`."""
    generator = np.random.default_rng(SEED)
    n, (centre, error) = len(values), _mean_and_error(values)
    found = np.empty(DRAWS)
    step = max(1, 500_000 // n)
    for start in range(0, DRAWS, step):
        size = min(step, DRAWS - start)
        drawn = values[generator.integers(0, n, (size, n), dtype=np.int32)]
        errors = np.maximum(drawn.std(axis=1, ddof=1) / math.sqrt(n), LEAST_ERROR * error)
        found[start : start + size] = (drawn.mean(axis=1) - centre) / errors
    low, high = (
        float(np.quantile(found, tail, method="lower")),
        float(np.quantile(found, 1 - tail, method="higher")),
    )
    if n >= FEW_TASKS:
        return low, high
    reach = student(n - 1, z)
    return min(low, -reach), max(high, reach)


def student(freedom: int, z: float = Z) -> float:
    """Quantile of Student's distribution, where the normal one is `z`, of 95 % when left out. From a freedom of 2 on by
    the expansion in 1 / freedom, which is right to 1 % there for 95 %."""
    if freedom == 1:  # of which the expansion falls short; this is exact
        return math.tan(math.pi * (NormalDist().cdf(z) - 0.5))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The median is that of 0.5. Between two values it is drawn straight. None of no values."""
    return float(np.quantile(np.array(values, dtype=float), share)) if values else None


def quantile_of(several: int) -> float:
    """The normal quantile at which so many intervals hold their figures together in 95 % (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / several)


def holm(chances: Sequence[float]) -> list[float]:
    """The p of several tests, so corrected that one below 0.05 comes by chance in at most 5 % of the cases (Holm
    1979)."""
    made, least = [0.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = made[place] = max(least, min(1.0, (len(chances) - rank) * chances[place]))
    return made


def reach_of_seeds(values: Array) -> float:
    """How far a mean over several trainings may be from that of all trainings, with 95 %. `values` has a row for each
    training and a column for each task. What chance of the plays alone makes of their means is taken off."""
    seeds, tasks = values.shape
    means = values.mean(axis=1)
    rest = values - means[:, None] - values.mean(axis=0) + values.mean()
    chance = float((rest**2).sum()) / (seeds - 1) / max(1, tasks - 1) / tasks
    return student(seeds - 1) * math.sqrt(max(0.0, float(means.var(ddof=1)) - chance) / seeds)


def paired_share_interval(left: Sequence[TaskTally], right: Sequence[TaskTally], z: float = Z) -> Interval:
    """Interval of the difference right - left of two shares of the same tasks: Newcombe's square-and-add of both
    clustered Wilson intervals, with the correlation of the tasks."""
    if not left:
        return Interval(-1.0, 1.0)
    one, other = share_of(left, z), share_of(right, z)
    p, q = one.low, other.low
    apart = [np.array([t.right / t.trials for t in some]) for some in (left, right)]
    first, second = (values - np.mean(values) for values in apart)
    size = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    together = float((first * second).sum()) / size if size > 1e-12 else 0.0
    if len(left) < FEW_TASKS:
        together = _at_least(together, len(left))

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * together * a * b + b * b))

    low = q - p - reach(q - other.interval.low, one.interval.high - p)
    high = q - p + reach(other.interval.high - q, p - one.interval.low)
    return Interval(low, high).within(-1.0, 1.0)


def _at_least(correlation: float, tasks: int) -> float:
    """A correlation as low as it may well be, by one error of Fisher's transform, but not below 0 for that. Two tasks
    are always correlated fully or not at all, and one that is seen too high makes an interval too narrow."""
    if tasks < 4:
        return 0.0
    held = max(-0.99, min(0.99, correlation))
    return min(correlation, max(0.0, math.tanh(math.atanh(held) - 1 / math.sqrt(tasks - 3))))


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
