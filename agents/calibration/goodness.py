"""How good a fit is: each fact of the recording beside what simulations by the fit have, and what it could foretell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from toolorchestra.agents.calibration.experts_fit import ENDS, ExpertsFit, shared
from toolorchestra.agents.calibration.skills_and_lengths import (
    Counts,
    LengthFit,
    Numbers,
    SuccessFit,
    below,
    fit_success,
    measured,
    percentiles,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.table import Outcomes

DRAWS = 400
SIMULATIONS = 100
LEAST_FOLDED = 25
"""Tasks from which on fifths of them are left out."""

# -- facts of a recording ----------------------------------------------------------------------------------------------


def facts(rows: Outcomes) -> dict[str, float]:
    """Facts that the rows can say; each has a sentence as its name."""
    made = _of_successes(Counts.of(rows))
    for name in ("seconds", "tokens"):
        made.update(_of_length(rows, name))
    made.update(_tied(rows))
    made.update(_of_dollars(rows))
    return {name: value for name, value in made.items() if np.isfinite(value)}


def _of_successes(counts: Counts) -> dict[str, float]:
    return {**_of_runs(counts), **_of_models(counts), **_of_variance(counts)}


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
    nothing = np.full(len(rows), np.nan)
    measures = dict.fromkeys(rows.measures, nothing)
    run = rng.standard_normal(len(rows))
    shared = (rng.standard_normal(len(rows.tasks)), rng.standard_normal((len(rows.tasks), len(rows.models))))
    tie = 0.0 if np.isnan(made.together) else made.together
    for name, one in made.lengths.items():
        own = tie * run + np.sqrt(1 - tie**2) * rng.standard_normal(len(rows)) if name == "seconds" else run
        parts = _parts(one, rows, hard, *shared, own)
        column = "output" if name == "tokens" else name
        drawn = one.median[family, rows.model] * np.exp(parts * one.spread[rows.model])
        measures[column] = np.where(np.isfinite(rows.measures[column]), drawn, np.nan)
    return measures


def _parts(one: LengthFit, rows: Outcomes, hard: Numbers, task: Numbers, pair: Numbers, run: Numbers) -> Numbers:
    tied = one.with_difficulty * hard + np.sqrt(1 - one.with_difficulty**2) * task
    pair_sd = 0.0 if np.isnan(one.pair_sd) else one.pair_sd
    return np.asarray(one.task_sd * tied[rows.task] + pair_sd * pair[rows.task, rows.model] + one.run_sd * run)


# -- families left out, foretold ---------------------------------------------------------------------------------------

# Skills in a family that was left out are drawn from how the model's skills differ between the families that were seen.


class Foretold(NamedTuple):
    """One number that was left out, and what was foretold of it."""

    what: str
    recorded: float
    low: float
    high: float

    @property
    def covered(self) -> bool:
        return self.low <= self.recorded <= self.high


def families_left_out(rows: Outcomes, seed: int = 0) -> dict[str, list[Foretold]]:
    """Foretell, by family, each model's rate there by the others."""
    names = rows.family_names
    if len(names) < 3:
        raise ConfigError(f"{rows.where}: three families at least are needed to leave one out; it has {len(names)}")
    rng = np.random.default_rng(seed)
    return {name: _family_left_out(rows, number, rng) for number, name in enumerate(names)}


def _family_left_out(rows: Outcomes, left: int, rng: np.random.Generator) -> list[Foretold]:
    counts = Counts.of(rows)
    seen = fit_success(_only(counts, [f for f in range(counts.families) if f != left]))
    there = counts.family == left
    runs = counts.runs[there]
    drawn = np.array([_rates_of(seen, _new_skills(seen.skill, rng), runs, rng) for _ in range(DRAWS)])
    recorded = counts.right[there].sum(0) / np.maximum(runs.sum(0), 1)
    low, high = np.percentile(drawn, ENDS, axis=0)
    played = runs.sum(0) > 0
    return [
        Foretold(model, float(recorded[m]), float(low[m]), float(high[m]))
        for m, model in enumerate(rows.models)
        if played[m]
    ]


def _only(counts: Counts, families: Sequence[int]) -> Counts:
    """Tasks of these families, numbered anew."""
    number = {family: at for at, family in enumerate(families)}
    kept = counts.of_tasks(np.flatnonzero(np.isin(counts.family, families)))
    family = np.array([number[int(f)] for f in kept.family], np.int32)
    return Counts(kept.runs, kept.right, kept.squares, family, len(families))


def _new_skills(skill: Numbers, rng: np.random.Generator) -> Numbers:
    """Draw the skills of all models in a family that nobody saw, by how families differ: for all, and for one model."""
    families = len(skill)
    mean = skill.mean(0)
    common = (skill - mean).mean(1)
    own = skill - mean - common[:, None]
    wider = np.sqrt(1 + 1 / families)
    for_all = rng.standard_t(families - 1) * common.std(ddof=1) * wider
    freedom = max(1, (families - 1) * (skill.shape[1] - 1))
    for_one = rng.standard_normal(len(mean)) * np.sqrt((own**2).sum() / freedom) * wider
    return np.asarray(mean + for_all + for_one)


def _behind(fit: SuccessFit, skills: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    """Draw what lies behind the runs of each task and model, chance left out."""
    tasks, models = runs.shape
    shared = fit.task_sd * rng.standard_normal((tasks, 1))
    return np.asarray(skills + shared + fit.luck(rng.standard_normal((tasks,)), rng.standard_normal((tasks, models))))


def _drawn_right(behind: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    return np.asarray(rng.binomial(runs.astype(int), below(behind)))


def _rates_of(fit: SuccessFit, skills: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    right = _drawn_right(_behind(fit, skills, runs, rng), runs, rng)
    return np.asarray(right.sum(0) / np.maximum(runs.sum(0), 1))


def folds_left_out(rows: Outcomes, folds: int = 5, seed: int = 0) -> dict[str, int]:
    """Counts, by fact of successes, the fifths of the tasks where it lies in what a fit of the rest foretells."""
    counts, rng = Counts.of(rows), np.random.default_rng(seed)
    fold, found = rng.permutation(len(rows.tasks)) % folds, dict[str, int]()
    for left in range(folds):
        seen = fit_success(counts.of_tasks(np.flatnonzero(fold != left)))
        there = counts.of_tasks(np.flatnonzero(fold == left))
        drawn = []
        for _ in range(SIMULATIONS):
            behind = _behind(seen, seen.skill[there.family], there.runs, rng)
            right = _drawn_right(behind, there.runs, rng)
            drawn.append(_of_successes(replace(there, right=right, squares=right)))
        for name, value in _of_successes(there).items():
            low, high = percentiles(np.array([one.get(name, np.nan) for one in drawn]), ENDS)
            found[name] = found.get(name, 0) + bool(low <= value <= high)
    return found


def coverage(foretold: Sequence[Foretold]) -> float:
    """The share of numbers that lie in their intervals."""
    return sum(one.covered for one in foretold) / len(foretold) if foretold else float("nan")


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
    return "\n".join([*_head(made), *_facts(compared(made, simulations)), *_folds(made), *_left_out(made), ""])


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


def _left_out(made: ExpertsFit) -> Iterator[str]:
    """What was foretold of families that the fit had not seen."""
    try:
        families = families_left_out(made.rows)
    except ConfigError as err:
        yield from ("", f"No family could be left out: {err}.")
    else:
        yield from ("", "| left out | rates of models in their 95 % intervals | mean width |", "| --- | --- | --- |")
        for name, found in families.items():
            width = np.mean([one.high - one.low for one in found])
            yield f"| {name or 'all'} | {coverage(found):.0%} of {len(found)} | {width:.2f} |"
