"""Who succeeds at what: skill by family, difficulty that all models share, luck of a model with a task, chance.

    success of a run  =  skill[model, family] - task + pair + chance  >  0

`task` is one draw for each task and the same for all models, `pair` one for each model on each task, `chance` one for
each run; all are normal, chance has deviation 1. Their sizes follow from how often two runs agree: two runs of one
model on one task share task and pair, runs of two models on one task share the task alone. (These are tetrachoric
correlations; nothing is iterated, and rows may be missing.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolorchestra.agents.calibration.normal import Numbers, given_shared, nodes, quantile
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.rows import Outcomes

PRIOR_RUNS = 2.0
"""Runs that a model's rate over all families counts for in each family."""
MOST_SHARED = 0.97
_HALVINGS = 24


@dataclass(frozen=True, eq=False)
class Counts:
    """Successes by task and model: what a fit of success needs, and what is drawn anew for its intervals."""

    runs: Numbers
    """How many runs were graded, task x model."""
    right: Numbers
    """The sum of their successes, task x model."""
    squares: Numbers
    """The sum of the squares of their successes, task x model."""
    family: NDArray[np.int32]
    """The number of each task's family."""
    families: int

    @classmethod
    def of(cls, rows: Outcomes) -> Counts:
        """Counts the rows that were graded. Raises ConfigError where there are none."""
        graded = np.isfinite(rows.success)
        if not graded.any():
            raise ConfigError(f"{rows.where}: no row says whether the run succeeded")
        at = (rows.task[graded], rows.model[graded])
        shape = (len(rows.tasks), len(rows.models))
        runs, right, squares = (np.zeros(shape) for _ in range(3))
        values = rows.success[graded]
        np.add.at(runs, at, 1.0)
        np.add.at(right, at, values)
        np.add.at(squares, at, values**2)
        names = rows.family_names
        family = np.array([names.index(name) for name in rows.families], np.int32)
        return cls(runs, right, squares, family, len(names))

    def of_tasks(self, chosen: NDArray[np.int64]) -> Counts:
        """The counts of these tasks alone. A task may be named twice, and then counts twice."""
        return Counts(self.runs[chosen], self.right[chosen], self.squares[chosen], self.family[chosen], self.families)

    def by_family(self, table: Numbers) -> Numbers:
        """Sums over the tasks of each family: family x model."""
        made = np.zeros((self.families, table.shape[1]))
        np.add.at(made, self.family, table)
        return made


@dataclass(frozen=True, eq=False)
class SuccessFit:
    """What was found. Skills and deviations are in deviations of chance."""

    rate: Numbers
    """Share of successes, family x model, pulled a little to the model's overall rate."""
    skill: Numbers
    """family x model."""
    task_sd: float
    pair_sd: float
    repeated: bool
    """Whether any model ran any task twice: without, pair and chance cannot be told apart, and pair_sd is 0."""


def fit_success(counts: Counts) -> SuccessFit:
    """By the agreement of pairs of runs."""
    rate = rates(counts)
    z = quantile(rate)
    pairs = counts.by_family(_pairs_in(counts.runs, counts.runs))
    repeated = bool(pairs.sum())
    alike = _agreeing(z, pairs, _pairs_in(counts.right, counts.squares).sum()) if repeated else 0.0
    shared = _agreeing_between(z, counts)
    both = max(alike, shared) if repeated else shared
    scale = 1.0 / np.sqrt(1.0 - both)
    return SuccessFit(
        rate,
        z * scale,
        float(scale * np.sqrt(shared)),
        float(scale * np.sqrt(both - shared)),
        repeated,
    )


def rates(counts: Counts) -> Numbers:
    """family x model; a family in which a model did not run has the model's overall rate."""
    right, runs = counts.right.sum(0), counts.runs.sum(0)
    overall = (right + 0.5) / (runs + 1.0)
    right_there = counts.by_family(counts.right) + PRIOR_RUNS * overall
    return np.asarray(right_there / (counts.by_family(counts.runs) + PRIOR_RUNS))


def _pairs_in(sums: Numbers, squares: Numbers) -> Numbers:
    """Of each cell: the sum over pairs of its runs of the product of both."""
    return (sums**2 - squares) / 2


def _agreeing(z: Numbers, pairs: Numbers, observed: float) -> float:
    """The shared part of variance at which pairs of runs of one model on one task both succeed as often as observed."""
    _, weights = nodes()

    def expected(share: float) -> float:
        return float(((given_shared(z, share) ** 2 @ weights) * pairs).sum())

    return _where(expected, observed)


def _agreeing_between(z: Numbers, counts: Counts) -> float:
    """Likewise for runs of two models on one task. Tasks with one model say nothing."""
    _, weights = nodes()
    total = counts.right.sum(1)
    observed = float(((total**2 - (counts.right**2).sum(1)) / 2).sum())
    if not ((counts.runs > 0).sum(1) > 1).any():
        return 0.0
    of_family = [counts.runs[counts.family == family] for family in range(counts.families)]

    def expected(share: float) -> float:
        both = 0.0
        for runs, chances in zip(of_family, given_shared(z, share), strict=True):
            each = (runs**2).sum(0) @ chances**2
            both += float((((runs @ chances) ** 2).sum(0) - each) @ weights) / 2
        return both

    return _where(expected, observed)


def _where(expected: Callable[[float], float], observed: float) -> float:
    """The share from 0 to MOST_SHARED at which a rising function reaches a value, or the end that is nearer."""
    low, high = 0.0, MOST_SHARED
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < observed else (low, middle)
    return low if low > 1e-6 else 0.0
