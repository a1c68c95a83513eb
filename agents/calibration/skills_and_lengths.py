"""What lies behind recorded outcomes: who succeeds at what, and how long runs are.

    success of a run  =  skill[model, family] - task + pair + chance  >  0
    ln length         =  median[model, family] + task + pair + run

`task` is one draw for each task and the same for all models, `pair` one for each model on each task, `chance` one for
each run; all are normal, chance has deviation 1. Their sizes follow from how often two runs agree: two runs of one
model on one task share task and pair, runs of two models on one task share the task alone. (These are tetrachoric
correlations; nothing is iterated, and rows may be missing.) How a length goes with difficulty is taken across models
(whether one succeeds, and how much another one writes on the same task), so that it is difficulty and not failure that
is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.table import Outcomes

# -- the normal distribution -------------------------------------------------------------------------------------------


Numbers = NDArray[np.float64]
_EDGE, _STEPS = 8.0, 16_000
NODES = 41


@cache
def _table() -> tuple[Numbers, Numbers]:
    points = np.linspace(-_EDGE, _EDGE, _STEPS + 1)
    whole = NormalDist()
    return points, np.array([whole.cdf(float(x)) for x in points])


def below(x: ArrayLike) -> Numbers:
    """The chance of a value below x."""
    points, chances = _table()
    return np.asarray(np.interp(np.asarray(x, float), points, chances))


def quantile(p: ArrayLike) -> Numbers:
    """The value that a share p lies below."""
    points, chances = _table()
    return np.asarray(np.interp(np.asarray(p, float), chances, points))


def density(x: ArrayLike) -> Numbers:
    """The density of the normal distribution at each x."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2 * np.pi))


def percentiles(values: ArrayLike, at: ArrayLike) -> Numbers:
    """Percentiles of the values that are numbers; nan where none is."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    return np.asarray(np.percentile(known, np.asarray(at, float))) if len(known) else np.full(np.shape(at), np.nan)


@cache
def nodes() -> tuple[Numbers, Numbers]:
    """Points and weights by which a mean over a standard normal is a sum."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return points, weights / weights.sum()


def given_shared(z: Numbers, share: float) -> Numbers:
    """The chance of a success whose overall chance is below(z), at each of the nodes of what it shares: `share` is the
    part of its variance that is shared. The nodes are a new last axis."""
    points, _ = nodes()
    return below((z[..., None] + np.sqrt(share) * points) / np.sqrt(1 - share))


# -- success -----------------------------------------------------------------------------------------------------------


PRIOR_RUNS = 2.0
"""Runs that a model's rate over all families counts for in each family."""
MOST_SHARED = 0.97
_HALVINGS = 24
LEAST_MODELS, STRONGEST = 5, 1.5
"""Models from which on a tie of luck with strength is sought, and deviations of strength at which it is greatest."""
_FEW_NODES = 9
_LEAST_ROWS = 8


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
    luck_by_strength: Numbers
    """Correlation of each model's luck with what strength is worth on a task: strong models fail together on tasks
    where it is worth nothing, and then weak ones do as well as they."""

    def luck(self, worth: Numbers, own: Numbers) -> Numbers:
        """Luck of tasks and models, of what strength is worth on each task and of what each model has for itself."""
        tie = self.luck_by_strength
        return np.asarray(self.pair_sd * (tie * worth[:, None] + np.sqrt(1 - tie**2) * own))


def fit_success(counts: Counts) -> SuccessFit:
    """Fit by the agreement of pairs of runs."""
    rate = rates(counts)
    z = quantile(rate)
    pairs = counts.by_family(_pairs_in(counts.runs, counts.runs))
    repeated = bool(pairs.sum())
    alike = _agreeing(z, pairs, _pairs_in(counts.right, counts.squares).sum()) if repeated else 0.0
    shared = _agreeing_between(z, counts)
    both = max(alike, shared) if repeated else shared
    scale = 1.0 / np.sqrt(1.0 - both)
    deviations = float(scale * np.sqrt(shared)), float(scale * np.sqrt(both - shared))
    return SuccessFit(rate, z * scale, *deviations, repeated, _luck_by_strength(z, counts, shared, both))


def _luck_by_strength(z: Numbers, counts: Counts, shared: float, both: float) -> Numbers:
    """The tie at which models alike in strength succeed together as often as observed, and unlike ones."""
    mean = np.bincount(counts.family, minlength=counts.families) @ z / len(counts.family)
    if both <= shared or len(mean) < LEAST_MODELS or not mean.std():
        return np.zeros_like(mean)
    strength = np.clip((mean - mean.mean()) / mean.std(), -STRONGEST, STRONGEST) / STRONGEST
    points, weights = (np.asarray(some) for some in np.polynomial.hermite_e.hermegauss(_FEW_NODES))
    hard, worth = (some.ravel() for some in np.meshgrid(points, points))
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    signed = counts.right * strength
    observed = float(((signed.sum(1) ** 2 - (signed**2).sum(1)) / 2).sum())
    of_family = [counts.runs[counts.family == family] for family in range(counts.families)]

    def expected(most: float) -> float:
        tie = (most * strength)[:, None]
        together, total = (both - shared) * tie**2, 0.0
        for behind, runs in zip(z, of_family, strict=True):
            reach = np.sqrt(shared) * hard + np.sqrt(both - shared) * tie * worth
            chances = strength[:, None] * below((behind[:, None] + reach) / np.sqrt(1 - shared - together))
            total += float((((runs @ chances) ** 2).sum(0) - (runs**2).sum(0) @ chances**2) @ weight) / 2
        return total

    return np.asarray(_where(expected, observed) * strength)


def rates(counts: Counts) -> Numbers:
    """Rates, family x model; a family in which a model did not run has the model's overall rate."""
    right, runs = counts.right.sum(0), counts.runs.sum(0)
    overall = (right + 0.5) / (runs + 1.0)
    right_there = counts.by_family(counts.right) + PRIOR_RUNS * overall
    return np.asarray(right_there / (counts.by_family(counts.runs) + PRIOR_RUNS))


def _pairs_in(sums: Numbers, squares: Numbers) -> Numbers:
    """Each cell's sum over pairs of its runs of the product of both."""
    return (sums**2 - squares) / 2


def _agreeing(z: Numbers, pairs: Numbers, observed: float) -> float:
    """The shared part of variance at which pairs of runs of one model on one task both succeed as often as observed."""
    _, weights = nodes()

    def expected(share: float) -> float:
        return float(((given_shared(z, share) ** 2 @ weights) * pairs).sum())

    return _where(expected, observed)


def _agreeing_between(z: Numbers, counts: Counts) -> float:
    """The same of runs of two models on one task. Tasks with one model say nothing."""
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


# -- lengths -----------------------------------------------------------------------------------------------------------


LENGTHS = ("tokens", "seconds", "usd")
"""What is fitted: output tokens with reasoning, seconds, and dollars, of the rows that know them."""


@dataclass(frozen=True, eq=False)
class LengthFit:
    """The fit of one measure. Deviations are of the natural logarithm; nan: the rows cannot say."""

    median: Numbers
    """family x model."""
    task_sd: float
    pair_sd: float
    run_sd: float
    spread: Numbers
    """Deviation of each model over tasks and runs, as a share of that of all models."""
    with_difficulty: float
    """Correlation of the task's part with the task's difficulty."""


@dataclass(frozen=True, eq=False)
class _Cells:
    """Logarithms less their model's and family's mean, and sums of them by task and model."""

    rows: NDArray[np.int64]
    values: Numbers
    """Residuals of those rows."""
    count: Numbers
    total: Numbers
    squares: Numbers
    median: Numbers


def measured(rows: Outcomes, name: str) -> Numbers:
    """A length of each row; nan where it is not known."""
    if name != "tokens":
        return rows.measures[name]
    reasoning = np.nan_to_num(rows.measures["reasoning"], nan=0.0)
    return np.asarray(rows.measures["output"] + reasoning)


def fit_lengths(rows: Outcomes, counts: Counts, success: SuccessFit) -> dict[str, LengthFit]:
    """Fit each measure that enough rows know."""
    made = {name: _cells(rows, counts, measured(rows, name)) for name in LENGTHS}
    return {name: _fit(cells, counts, success) for name, cells in made.items() if len(cells.rows) >= _LEAST_ROWS}


def together(rows: Outcomes) -> float:
    """Correlation of ln seconds and ln tokens between the runs of one model on one task; nan where none ran twice."""
    tokens, seconds = (
        np.log(np.where(x > 0, x, np.nan)) for x in (measured(rows, "tokens"), measured(rows, "seconds"))
    )
    known = np.isfinite(tokens) & np.isfinite(seconds)
    parts = [from_mean(rows, known, values[known])[0] for values in (tokens, seconds)]
    below = float(np.sqrt((parts[0] ** 2).sum() * (parts[1] ** 2).sum()))
    return float((parts[0] * parts[1]).sum() / below) if below > 0 else float("nan")


def from_mean(rows: Outcomes, known: NDArray[np.bool_], values: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """Values of the known rows less the mean of their model's on their task, and how many each such mean is of."""
    cell = rows.task[known].astype(np.int64) * len(rows.models) + rows.model[known]
    _, at, count = np.unique(cell, return_inverse=True, return_counts=True)
    return np.asarray(values - (np.bincount(at, values) / count)[at]), count


def _cells(rows: Outcomes, counts: Counts, lengths: Numbers) -> _Cells:
    kept = np.flatnonzero(np.isfinite(lengths) & (lengths > 0))
    logs = np.log(lengths[kept])
    task, model = rows.task[kept], rows.model[kept]
    shape, family = counts.runs.shape, counts.family[task]
    total, count = (np.zeros((counts.families, shape[1])) for _ in range(2))
    np.add.at(total, (family, model), logs)
    np.add.at(count, (family, model), 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_model = total.sum(0) / count.sum(0)
        mean = np.where(count > 0, total / count, of_model)
    values = logs - mean[family, model]
    sums = [np.zeros(shape) for _ in range(3)]
    for made, part in zip(sums, (np.ones_like(values), values, values**2), strict=True):
        np.add.at(made, (task, model), part)
    return _Cells(kept, values, sums[0], sums[1], sums[2], np.exp(mean))


def _fit(cells: _Cells, counts: Counts, success: SuccessFit) -> LengthFit:
    whole = float((cells.values**2).mean())
    many = cells.count > 1
    freedom = float((cells.count[many] - 1).sum())
    within = float((cells.squares[many] - cells.total[many] ** 2 / cells.count[many]).sum())
    run = within / freedom if freedom else float("nan")  # none ran twice
    task = min(whole, max(0.0, _between(cells, counts)))
    pair = whole - task - run if np.isfinite(run) else float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        of_model = np.sqrt(cells.squares.sum(0) / cells.count.sum(0) / whole)
    return LengthFit(
        cells.median,
        float(np.sqrt(task)),
        float(np.sqrt(max(0.0, pair))) if np.isfinite(pair) else float("nan"),
        float(np.sqrt(run)) if np.isfinite(run) else float(np.sqrt(max(0.0, whole - task))),
        np.where(np.isfinite(of_model), of_model, 1.0),
        _with_difficulty(cells, counts, success, task),
    )


def _between(cells: _Cells, counts: Counts) -> float:
    """Covariance of two models on one task. Means were taken out by family, which hides one task's part in each."""
    pairs = (cells.count.sum(1) ** 2 - (cells.count**2).sum(1)).sum()
    products = (cells.total.sum(1) ** 2 - (cells.total**2).sum(1)).sum()
    return float(products / pairs * _unhidden(counts)) if pairs else 0.0


def _unhidden(counts: Counts) -> float:
    """n / (n - 1) of the tasks of a family, on average over tasks."""
    sizes = np.bincount(counts.family, minlength=counts.families).astype(float)
    return float((sizes / np.maximum(sizes - 1, 1.0))[counts.family].mean())


def _with_difficulty(cells: _Cells, counts: Counts, success: SuccessFit, task: float) -> float:
    """Stein's lemma: the covariance of a success with a normal thing is its density times that of what is behind it."""
    expected = success.rate[counts.family]
    steep = density(quantile(expected)) * counts.runs
    over = counts.right - expected * counts.runs
    crossed = (over.sum(1) * cells.total.sum(1) - (over * cells.total).sum(1)).sum()
    weight = (steep.sum(1) * cells.count.sum(1) - (steep * cells.count).sum(1)).sum()
    scale = float(np.sqrt(1 + success.task_sd**2 + success.pair_sd**2))
    below = success.task_sd / scale * np.sqrt(task)
    if not weight or not below:
        return 0.0
    return float(np.clip(-crossed / weight * _unhidden(counts) / below, -1.0, 1.0))


def as_plain(fits: Mapping[str, LengthFit]) -> dict[str, dict[str, float]]:
    """The numbers that all models share."""
    names = ("task_sd", "pair_sd", "run_sd", "with_difficulty")
    return {measure: {name: float(getattr(fit, name)) for name in names} for measure, fit in fits.items()}
