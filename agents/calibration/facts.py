"""What recordings of real models look like, as numbers: taken of a recording and of a simulation alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toolorchestra.agents.calibration.lengths import measured
from toolorchestra.agents.calibration.normal import Numbers, percentiles
from toolorchestra.agents.calibration.success import Counts
from toolorchestra.envs.outcomes.rows import Outcomes


def facts(rows: Outcomes) -> dict[str, float]:
    """Those that the rows can say; each has a sentence as its name."""
    counts = Counts.of(rows)
    made: dict[str, float] = {}
    for group in (_of_runs, _of_models, _of_variance):
        made.update(group(counts))
    for name in ("seconds", "tokens"):
        made.update(_of_length(rows, name))
    made.update(_tied(rows))
    made.update(_of_dollars(rows))
    return {name: value for name, value in made.items() if np.isfinite(value)}


def _of_runs(counts: Counts) -> dict[str, float]:
    many = counts.runs > 1
    if not many.any():
        return {}
    mean = counts.right[many] / counts.runs[many]
    return {
        "pairs of model and task that always fail": float((mean == 0).mean()),
        "pairs that always succeed": float((mean == 1).mean()),
        "pairs that do now one, now the other": float(((mean > 0) & (mean < 1)).mean()),
    }


def _mean(counts: Counts) -> Numbers:
    """Share of successes, task x model; nan where a model did not run."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(counts.right / counts.runs)


def _of_models(counts: Counts) -> dict[str, float]:
    mean = _mean(counts)
    of_model = np.nanmean(mean, axis=0)
    best = int(np.argmax(of_model))
    rate = counts.by_family(counts.right) / np.maximum(counts.by_family(counts.runs), 1)
    fails = 1 - np.where(np.isfinite(mean), mean, 0.0)
    alone = 1 - rate[counts.family]
    made = {
        "best single model": float(of_model[best]),
        "weakest model": float(np.nanmin(of_model)),
        "task oracle: best model of each task": float(np.nanmax(np.where(np.isfinite(mean), mean, -1), axis=1).mean()),
        "at least one of all models right, one run each": float((1 - fails.prod(axis=1)).mean()),
        "the same, if they failed independently": float((1 - alone.prod(axis=1)).mean()),
    }
    lost, others = mean[:, best] == 0, np.delete(np.nan_to_num(mean), best, axis=1)
    if lost.any():
        made["where the best always fails, another is right half of the time"] = float(
            (others[lost].max(axis=1) >= 0.5).mean()
        )
    return made


def _of_variance(counts: Counts) -> dict[str, float]:
    """Shares of the variance of success: of runs of one model on one task, of tasks, of models, and the rest."""
    mean = _mean(counts)
    whole = counts.right.sum() / counts.runs.sum()
    total = float((counts.squares.sum() / counts.runs.sum()) - whole**2)
    many = counts.runs > 1
    if not total or not many.any():
        return {}
    n = counts.runs[many]
    run = float(((counts.squares[many] - counts.right[many] ** 2 / n) / (n - 1)).mean())
    task = float(np.nanvar(np.nanmean(mean, axis=1)))
    model = float(np.nanvar(np.nanmean(mean, axis=0)))
    return {
        "share of variance: runs": run / total,
        "share of variance: tasks": task / total,
        "share of variance: models": model / total,
    }


def _of_length(rows: Outcomes, name: str) -> dict[str, float]:
    values = measured(rows, name)
    known = np.isfinite(values) & (values > 0)
    if known.sum() < 8:
        return {}
    logs, cell = np.log(values[known]), rows.task[known].astype(np.int64) * len(rows.models) + rows.model[known]
    _, at, count = np.unique(cell, return_inverse=True, return_counts=True)
    mean = np.bincount(at, logs) / count
    within = ((logs - mean[at]) ** 2).sum() / max(1, (count - 1).sum()) if (count > 1).any() else np.nan
    ratios = _by_model(rows, values, lambda v, _: float(np.percentile(v, 95) / np.percentile(v, 50)))
    over = _by_model(rows, values, lambda v, _: float(np.std(np.log(v))))
    return {
        f"deviation of ln {name}, runs of one model on one task": float(np.sqrt(within)),
        f"deviation of ln {name} over tasks, median model": float(np.median(over)),
        f"{name}: 95th percentile over median, lowest model": float(np.min(ratios)),
        f"{name}: 95th percentile over median, median model": float(np.median(ratios)),
        f"{name}: 95th percentile over median, highest model": float(np.max(ratios)),
    }


def _by_model(rows: Outcomes, values: Numbers, of: Callable[[Numbers, Numbers], float]) -> Numbers:
    """A number of each model that has enough rows: of its values and their successes."""
    made = []
    for model in range(len(rows.models)):
        mine = (rows.model == model) & np.isfinite(values) & (values > 0)
        if mine.sum() >= 20:
            made.append(of(values[mine], rows.success[mine]))
    return np.array(made or [np.nan])


def _tied(rows: Outcomes) -> dict[str, float]:
    tokens, seconds = measured(rows, "tokens"), measured(rows, "seconds")
    known = (tokens > 0) & (seconds > 0)
    if known.sum() < 20:
        return {}
    made = []
    for model in range(len(rows.models)):
        mine = known & (rows.model == model)
        if mine.sum() >= 20:
            made.append(np.corrcoef(np.log(tokens[mine]), np.log(seconds[mine]))[0, 1])
    longer = _by_model(rows, tokens, _failed_over_solved)
    return {
        "correlation of ln seconds and ln tokens, median model": float(np.median(made)) if made else np.nan,
        "tokens of failed over solved runs, median model": float(percentiles(longer, 50)),
    }


def _failed_over_solved(values: Numbers, success: Numbers) -> float:
    failed, solved = values[success < 0.5], values[success >= 0.5]
    return float(failed.mean() / solved.mean()) if len(failed) >= 5 and len(solved) >= 5 else np.nan


def _of_dollars(rows: Outcomes) -> dict[str, float]:
    usd = rows.measures["usd"]
    if np.isfinite(usd).sum() < 20:
        return {}
    over = _by_model(rows, usd, lambda v, _: float(np.std(np.log(v))))
    return {
        "deviation of ln dollars over tasks, lowest model": float(np.min(over)),
        "deviation of ln dollars over tasks, median model": float(np.median(over)),
        "deviation of ln dollars over tasks, highest model": float(np.max(over)),
        "dollars of failed over solved runs, median model": float(
            percentiles(_by_model(rows, usd, _failed_over_solved), 50)
        ),
    }
