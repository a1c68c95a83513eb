"""How often intervals that are printed hold the truth, which they say of 95 %: python -m scripts.interval_coverage

Runs are drawn from worlds whose truth is known: tasks that are hard for all alike, bills with the tails of recorded
ones (the 95th percentile is 3.7 times the median), several numbers of tasks. Same seed, same table.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from toolorchestra.agents.evaluation.frontier import frontier
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.statistics import (
    Interval,
    TaskTally,
    mean_interval,
    paired_share_interval,
    ratio_interval,
    reach_of_seeds,
    share_of,
)

TASKS = (20, 40, 100)
FEW = (2, 3, 4, 6, 10)
OF_FEW = ("points", "points, 4 trials a task", "¢, min", "¢/solved", "reward")
"""Figures whose intervals are made otherwise where tasks are few."""
SPREAD = 0.8
"""Deviation of the logarithm of a bill."""
MEAN = math.exp(SPREAD**2 / 2)
Draw = Callable[[np.random.Generator, int], bool]
"""Draws a run of so many tasks, and says whether its interval holds the truth."""


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high


def _singles(right: Any) -> list[TaskTally]:
    return [TaskTally(float(one), int(one), 1, 1) for one in right]


def _hard(rng: np.random.Generator, n: int, chance: float, hard: Any) -> Any:
    """Outcomes of tasks, right with this chance, the less the harder they are."""
    return (0.8 * rng.normal(size=n) + 0.6 * hard < NormalDist().inv_cdf(chance)).astype(float)


def _bills(rng: np.random.Generator, n: int, hard: Any, mean: float = 1.0) -> Any:
    return mean * np.exp(SPREAD * (0.6 * hard + 0.8 * rng.normal(size=n))) / MEAN


def accuracy(rng: np.random.Generator, n: int) -> bool:
    """The share of tasks that are right, of a truth between 20 and 90 %."""
    truth = rng.uniform(0.2, 0.9)
    return _holds(share_of(_singles(rng.random(n) < truth)).interval, truth)


def accuracy_of_trials(rng: np.random.Generator, n: int) -> bool:
    """The same of four trials a task."""
    truth = rng.uniform(0.2, 0.9)
    solved = rng.binomial(4, rng.beta(truth, 1 - truth, n))
    return _holds(share_of([TaskTally(float(one), int(one == 4), 4, 4) for one in solved]).interval, truth)


def cents(rng: np.random.Generator, n: int) -> bool:
    """The mean bill; minutes are alike."""
    return _holds(mean_interval(list(_bills(rng, n, rng.normal(size=n)))), 1.0)


def cents_per_solved(rng: np.random.Generator, n: int) -> bool:
    """All bills over the tasks that were right."""
    hard, truth = rng.normal(size=n), rng.uniform(0.4, 0.9)
    return _holds(ratio_interval(list(_bills(rng, n, hard)), list(_hard(rng, n, truth, hard))), 1 / truth)


def reward(rng: np.random.Generator, n: int) -> bool:
    """The mean of outcomes less bills."""
    hard, truth = rng.normal(size=n), rng.uniform(0.3, 0.9)
    return _holds(
        mean_interval(list(_hard(rng, n, truth, hard) - _bills(rng, n, hard, 0.1)), outcomes=True), truth - 0.1
    )


def share_of_oracle(rng: np.random.Generator, n: int) -> bool:
    """A policy's reward over the oracle's."""
    hard, (least, most) = rng.normal(size=n), sorted(rng.uniform(0.5, 0.9, 2))
    best = _hard(rng, n, most, hard) - _bills(rng, n, hard, 0.1)
    mine = _hard(rng, n, least, hard) - _bills(rng, n, hard, 0.14)
    return _holds(ratio_interval(list(mine), list(best)), (least - 0.14) / (most - 0.1))


def saved(rng: np.random.Generator, n: int) -> bool:
    """Controllability: the share of the bills that a preference saves."""
    hard = rng.normal(size=n)
    return _holds(ratio_interval(list(_bills(rng, n, hard, 0.7)), list(_bills(rng, n, hard))), 0.7)


def points(rng: np.random.Generator, n: int) -> bool:
    """The difference in accuracy of two policies on the same tasks."""
    hard, (left, right) = rng.normal(size=n), rng.uniform(0.2, 0.9, 2)
    one, other = (_singles(_hard(rng, n, chance, hard)) for chance in (left, right))
    return _holds(paired_share_interval(one, other), right - left)


def points_of_trials(rng: np.random.Generator, n: int) -> bool:
    """The same of four trials a task."""
    hard, (left, right) = rng.normal(size=n), rng.uniform(0.2, 0.9, 2)
    solved = (sum(_hard(rng, n, chance, hard) for _ in range(4)) for chance in (left, right))
    one, other = ([TaskTally(float(n), int(n == 4), 4, 4) for n in side] for side in solved)
    return _holds(paired_share_interval(one, other), right - left)


def cents_apart(rng: np.random.Generator, n: int) -> bool:
    """The difference of their bills."""
    hard = rng.normal(size=n)
    return _holds(mean_interval(list(_bills(rng, n, hard) - _bills(rng, n, hard, 0.5))), 0.5)


def reward_apart(rng: np.random.Generator, n: int) -> bool:
    """The difference of their rewards."""
    hard, (left, right) = rng.normal(size=n), rng.uniform(0.3, 0.9, 2)
    sides = [_hard(rng, n, chance, hard) - _bills(rng, n, hard, bill) for chance, bill in ((left, 0.1), (right, 0.2))]
    return _holds(mean_interval(list(sides[1] - sides[0]), outcomes=True), right - left - 0.1)


def best_of_five(rng: np.random.Generator, n: int) -> bool:
    """The accuracy of whichever of five policies was best: all are alike, so the best had luck."""
    right = (rng.random((5, n)) < 0.6).astype(float)
    trials = {
        name: {
            (str(n), 0): EvaluationRow("made", "test", name, str(n), 0, 0, "ended", one) for n, one in enumerate(row)
        }
        for name, row in zip("abcde", right, strict=True)
    }
    made = frontier(trials)
    assert made is not None
    return all(_holds(point.interval, 0.6) for point in made.points)


def trainings(rng: np.random.Generator, n: int) -> bool:
    """The difference in reward of a policy that was trained three times, each training with a luck of its own."""
    hard = rng.normal(size=n)
    against = _hard(rng, n, 0.6, hard) - _bills(rng, n, hard, 0.1)
    luck = rng.normal(0, 0.05, 3)
    mine = np.array([_hard(rng, n, 0.6, hard) - _bills(rng, n, hard, 0.1) + one for one in luck])
    apart = list(mine.mean(axis=0) - against)
    interval = mean_interval(apart, outcomes=True)
    return interval is not None and _holds(interval.wider(float(np.mean(apart)), reach_of_seeds(mine)), 0.0)


DRAWN: dict[str, Draw] = {
    "accuracy": accuracy,
    "accuracy, 4 trials a task": accuracy_of_trials,
    "¢, min": cents,
    "¢/solved": cents_per_solved,
    "reward": reward,
    "share of the oracle's reward": share_of_oracle,
    "controllability, ¢ saved": saved,
    "points": points,
    "points, 4 trials a task": points_of_trials,
    "¢ apart": cents_apart,
    "reward apart": reward_apart,
    "reward apart, 3 trainings": trainings,
    "accuracy of five, together": best_of_five,
}


def covered(name: str, tasks: int, runs: int, seed: int = 0) -> float:
    """The share of so many runs whose interval holds the truth."""
    rng = np.random.default_rng([seed, tasks])
    return sum(DRAWN[name](rng, tasks) for _ in range(runs)) / runs


def main() -> None:
    """The tables: of all figures, and of those that are made otherwise where tasks are few."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="runs for each cell")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for names, counts in ((DRAWN, TASKS), (OF_FEW, FEW)):
        print("| holds the truth, of", *(f"| {n} tasks" for n in counts), "|")
        print("|---" * (len(counts) + 1) + "|")
        for name in names:
            cells = (f"| {covered(name, n, given.runs, given.seed):.1%}" for n in counts)
            print(f"| {name}", *cells, "|", flush=True)
        print()


if __name__ == "__main__":
    main()
