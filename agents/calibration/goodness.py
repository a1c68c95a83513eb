"""How good a fit is: each fact of the recording beside what simulations by the fit have, and what it could foretell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolorchestra.agents.calibration.experts_fit import ENDS, ExpertsFit, shared
from toolorchestra.agents.calibration.skills_and_lengths import (
    Counts,
    Numbers,
    SuccessFit,
    below,
    fit_success,
    from_mean,
    measured,
    percentiles,
)
from toolorchestra.envs.outcomes.table import Outcomes

SIMULATIONS = 100
LEAST_FOLDED = 25
"""Tasks from which on fifths of them are left out."""

# -- facts of a recording ----------------------------------------------------------------------------------------------


def facts(rows: Outcomes) -> dict[str, float]:
    """Facts that the rows can say; each has a sentence as its name."""
    made = _of_successes(Counts.of(rows)) | _of_length(rows, "seconds") | _of_length(rows, "tokens")
    made |= _tied(rows) | _of_dollars(rows)
    return {name: value for name, value in made.items() if np.isfinite(value)}


def _of_successes(counts: Counts) -> dict[str, float]:
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.asarray(counts.right / counts.runs)  # task x model; nan where a model did not run
    many = counts.runs > 1
    pairs = mean[many]
    made: dict[str, float] = {}
    if many.any():
        made["pairs of model and task that always fail"] = float((pairs == 0).mean())
        made["pairs that always succeed"] = float((pairs == 1).mean())
        made["pairs that do now one, now the other"] = float(((pairs > 0) & (pairs < 1)).mean())
    return made | _of_models(counts, mean) | _of_variance(counts, mean, many)


def _of_models(counts: Counts, mean: Numbers) -> dict[str, float]:
    of_model = _of_known(mean, 0)
    best = int(np.nanargmax(of_model))  # of some tasks, nothing of a model may be graded
    rate = counts.by_family(counts.right) / np.maximum(counts.by_family(counts.runs), 1)
    fails = 1 - np.where(np.isfinite(mean), mean, 0.0)
    of_task = np.where(np.isfinite(mean), mean, -1).max(axis=1)
    alone = 1 - rate[counts.family]
    made = {
        "best single model": float(of_model[best]),
        "weakest model": float(np.nanmin(of_model)),
        "task oracle: best model of each task": float(of_task[of_task >= 0].mean()),
        "at least one of all models right, one run each": float((1 - fails.prod(axis=1)).mean()),
        "the same, if they failed independently": float((1 - alone.prod(axis=1)).mean()),
    }
    lost, others = mean[:, best] == 0, np.delete(np.nan_to_num(mean), best, axis=1)
    if lost.any():
        made["where the best always fails, another is right half of the time"] = float(
            (others[lost].max(axis=1) >= 0.5).mean()
        )
    return made


def _of_known(mean: Numbers, axis: int) -> Numbers:
    """Means of what is known; nan where nothing is."""
    known = np.isfinite(mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, mean, 0.0).sum(axis) / known.sum(axis))


def _of_variance(counts: Counts, mean: Numbers, many: NDArray[np.bool_]) -> dict[str, float]:
    """Shares of the variance of success: of runs of one model on one task, of tasks, of models, and the rest."""
    whole = counts.right.sum() / counts.runs.sum()
    total = float((counts.squares.sum() / counts.runs.sum()) - whole**2)
    if not total or not many.any():
        return {}
    n = counts.runs[many]
    run = float(((counts.squares[many] - counts.right[many] ** 2 / n) / (n - 1)).mean())
    task, model = (float(np.nanvar(_of_known(mean, axis))) for axis in (1, 0))
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
    apart, count = from_mean(rows, known, np.log(values[known]))
    within = (apart**2).sum() / max(1, (count - 1).sum()) if (count > 1).any() else np.nan
    ratios = _by_model(rows, values, lambda v, _: float(np.percentile(v, 95) / np.percentile(v, 50)))
    over = _by_model(rows, values, _spread)
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
    of_models = (known & (rows.model == model) for model in range(len(rows.models)))
    made = [np.corrcoef(np.log(tokens[m]), np.log(seconds[m]))[0, 1] for m in of_models if m.sum() >= 20]
    longer = _by_model(rows, tokens, _failed_over_solved)
    return {
        "correlation of ln seconds and ln tokens, median model": float(np.median(made)) if made else np.nan,
        "tokens of failed over solved runs, median model": float(percentiles(longer, 50)),
    }


def _spread(values: Numbers, _: Numbers) -> float:
    return float(np.std(np.log(values)))


def _failed_over_solved(values: Numbers, success: Numbers) -> float:
    failed, solved = values[success < 0.5], values[success >= 0.5]
    return float(failed.mean() / solved.mean()) if len(failed) >= 5 and len(solved) >= 5 else np.nan


def _of_dollars(rows: Outcomes) -> dict[str, float]:
    usd = rows.measures["usd"]
    if np.isfinite(usd).sum() < 20:
        return {}
    over, longer = _by_model(rows, usd, _spread), _by_model(rows, usd, _failed_over_solved)
    return {
        "deviation of ln dollars over tasks, lowest model": float(np.min(over)),
        "deviation of ln dollars over tasks, median model": float(np.median(over)),
        "deviation of ln dollars over tasks, highest model": float(np.max(over)),
        "dollars of failed over solved runs, median model": float(percentiles(longer, 50)),
    }


# -- simulations by a fit ----------------------------------------------------------------------------------------------


def simulated(made: ExpertsFit, seed: int) -> Outcomes:
    """One drawing. Rows that were not graded, or whose lengths are not known, stay so."""
    rng = np.random.default_rng(seed)
    rows, success = made.rows, made.success
    family = made.counts.family[rows.task]
    hard = rng.standard_normal(len(rows.tasks))
    luck = success.luck(rng.standard_normal(len(rows.tasks)), rng.standard_normal((len(rows.tasks), len(rows.models))))
    behind = success.skill[family, rows.model] - success.task_sd * hard[rows.task]
    behind = behind + luck[rows.task, rows.model] + rng.standard_normal(len(rows))
    right = np.where(np.isfinite(rows.success), (behind > 0).astype(float), np.nan)
    return replace(rows, where="simulated", success=right, measures=_lengths(made, hard, rng))


def _lengths(made: ExpertsFit, hard: Numbers, rng: np.random.Generator) -> dict[str, Numbers]:
    rows, family = made.rows, made.counts.family[made.rows.task]
    measures = dict.fromkeys(rows.measures, np.full(len(rows), np.nan))
    run = rng.standard_normal(len(rows))
    task, pair = rng.standard_normal(len(rows.tasks)), rng.standard_normal((len(rows.tasks), len(rows.models)))
    tie = 0.0 if np.isnan(made.together) else made.together
    for name, one in made.lengths.items():
        own = tie * run + np.sqrt(1 - tie**2) * rng.standard_normal(len(rows)) if name == "seconds" else run
        tied = one.with_difficulty * hard + np.sqrt(1 - one.with_difficulty**2) * task
        pair_sd = 0.0 if np.isnan(one.pair_sd) else one.pair_sd
        parts = one.task_sd * tied[rows.task] + pair_sd * pair[rows.task, rows.model] + one.run_sd * own
        column = "output" if name == "tokens" else name
        drawn = one.median[family, rows.model] * np.exp(parts * one.spread[rows.model])
        measures[column] = np.where(np.isfinite(rows.measures[column]), drawn, np.nan)
    return measures


# -- tasks left out, foretold ------------------------------------------------------------------------------------------


def _drawn_right(fit: SuccessFit, skills: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    """Draw how many of the runs of each task and model are right."""
    tasks, models = runs.shape
    shared = fit.task_sd * rng.standard_normal((tasks, 1))
    behind = skills + shared + fit.luck(rng.standard_normal((tasks,)), rng.standard_normal((tasks, models)))
    return np.asarray(rng.binomial(runs.astype(int), below(behind)))


def folds_left_out(rows: Outcomes) -> dict[str, int]:
    """Counts, by fact of successes, the fifths of the tasks where it lies in what a fit of the rest foretells."""
    counts, rng = Counts.of(rows), np.random.default_rng(0)
    fold, found = rng.permutation(len(rows.tasks)) % 5, dict[str, int]()
    for left in range(5):
        seen = fit_success(counts.of_tasks(np.flatnonzero(fold != left)))
        there = counts.of_tasks(np.flatnonzero(fold == left))
        drawn = []
        for _ in range(SIMULATIONS):
            right = _drawn_right(seen, seen.skill[there.family], there.runs, rng)
            drawn.append(_of_successes(replace(there, right=right, squares=right)))
        for name, value in _of_successes(there).items():
            low, high = percentiles(np.array([one.get(name, np.nan) for one in drawn]), ENDS)
            found[name] = found.get(name, 0) + bool(low <= value <= high)
    return found


# -- the page ----------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """A fact, recorded and simulated."""

    fact: str
    recorded: float
    simulated: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.recorded <= self.high


def compared(made: ExpertsFit, simulations: int = SIMULATIONS) -> list[Compared]:
    """Compare every fact that the recording can say."""
    drawn = [facts(simulated(made, seed)) for seed in range(simulations)]
    rows = []
    for name, value in facts(made.rows).items():
        found = np.array([one[name] for one in drawn if name in one] or [np.nan])
        rows.append(Compared(name, value, float(np.nanmean(found)), *map(float, percentiles(found, ENDS))))
    return rows


def page(made: ExpertsFit, simulations: int = SIMULATIONS) -> str:
    """How good the fit is, as a page in Markdown."""
    return "\n".join([*_head(made), *_facts(compared(made, simulations)), *_folds(made), ""])


def _head(made: ExpertsFit) -> Iterator[str]:
    rows = made.rows
    families, models = len(rows.family_names), len(rows.models)
    yield f"{len(rows):,} rows: {len(rows.tasks):,} tasks of {families} families, {models} models."
    for sentence in made.warnings:
        yield f"- Warning: {sentence}."
    yield from ("", "| shared by all models | value | 95 % interval (tasks drawn anew) |", "| --- | --- | --- |")
    for name in shared(made):
        if name in made.intervals:
            value, low, high = made.intervals[name]
            yield f"| {name} | {value:.2f} | {low:.2f} to {high:.2f} |"


def _facts(rows: Sequence[Compared]) -> Iterator[str]:
    yield from ("", "| fact | recorded | simulated | 95 % of simulations |  |", "| --- | --- | --- | --- | --- |")
    for row in rows:
        mark = "" if row.inside else "outside"
        yield f"| {row.fact} | {row.recorded:.3f} | {row.simulated:.3f} | {row.low:.3f} to {row.high:.3f} | {mark} |"


def _folds(made: ExpertsFit) -> Iterator[str]:
    """What was foretold of tasks that the fit had not seen."""
    if len(made.rows.tasks) >= LEAST_FOLDED:
        yield from ("", "| fact, of each fifth of the tasks, foretold by the others | inside, of 5 |", "| --- | --- |")
        yield from (f"| {name} | {count} |" for name, count in folds_left_out(made.rows).items())
