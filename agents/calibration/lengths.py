"""How long runs are: tokens, seconds and dollars, on a logarithmic scale, in the same parts as success.

    ln x  =  median[model, family] + task + pair + run

Deviations follow from products of residuals: two runs of one model on one task share task and pair, runs of two models
on one task share the task. How a length goes with difficulty is taken across models (whether one succeeds, and how much
another one writes on the same task), so that it is difficulty and not failure that is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolorchestra.agents.calibration.normal import Numbers, density, quantile
from toolorchestra.agents.calibration.success import Counts, SuccessFit
from toolorchestra.envs.outcomes.rows import Outcomes

LENGTHS = ("tokens", "seconds", "usd")
"""What is fitted: output tokens with reasoning, seconds, and dollars, of the rows that know them."""
_LEAST_ROWS = 8


@dataclass(frozen=True, eq=False)
class LengthFit:
    """Of one measure. Deviations are of the natural logarithm; nan: the rows cannot say."""

    median: Numbers
    """family x model."""
    task_sd: float
    pair_sd: float
    run_sd: float
    spread: Numbers
    """By model: its deviation over tasks and runs as a share of that of all models."""
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
    """Of each measure that enough rows know."""
    made = {name: _cells(rows, counts, measured(rows, name)) for name in LENGTHS}
    return {name: _fit(cells, counts, success) for name, cells in made.items() if len(cells.rows) >= _LEAST_ROWS}


def together(rows: Outcomes) -> float:
    """Correlation of ln seconds and ln tokens between the runs of one model on one task; nan where none ran twice."""
    tokens, seconds = (
        np.log(np.where(x > 0, x, np.nan)) for x in (measured(rows, "tokens"), measured(rows, "seconds"))
    )
    known = np.isfinite(tokens) & np.isfinite(seconds)
    cell = rows.task[known].astype(np.int64) * len(rows.models) + rows.model[known]
    parts = [_from_mean(values[known], cell) for values in (tokens, seconds)]
    below = float(np.sqrt((parts[0] ** 2).sum() * (parts[1] ** 2).sum()))
    return float((parts[0] * parts[1]).sum() / below) if below > 0 else float("nan")


def _from_mean(values: Numbers, cell: NDArray[np.int64]) -> Numbers:
    _, at, count = np.unique(cell, return_inverse=True, return_counts=True)
    return np.asarray(values - (np.bincount(at, values) / count)[at])


def _cells(rows: Outcomes, counts: Counts, lengths: Numbers) -> _Cells:
    kept = np.flatnonzero(np.isfinite(lengths) & (lengths > 0))
    logs = np.log(lengths[kept])
    task, model = rows.task[kept], rows.model[kept]
    shape, family = counts.runs.shape, counts.family[task]
    total, count = np.zeros((counts.families, shape[1])), np.zeros((counts.families, shape[1]))
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
    run = _within(cells)
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


def _within(cells: _Cells) -> float:
    """Variance between the runs of one model on one task; nan where none ran twice."""
    many = cells.count > 1
    freedom = float((cells.count[many] - 1).sum())
    if not freedom:
        return float("nan")
    return float((cells.squares[many] - cells.total[many] ** 2 / cells.count[many]).sum() / freedom)


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
