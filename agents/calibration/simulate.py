"""Outcomes as a fit would have them: the same models, tasks of the same families, as many runs, all drawn anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from toolorchestra.agents.calibration.fit import Fit
from toolorchestra.agents.calibration.lengths import LengthFit
from toolorchestra.agents.calibration.normal import Numbers
from toolorchestra.envs.outcomes.rows import Outcomes


def simulated(made: Fit, seed: int) -> Outcomes:
    """One drawing. Rows that were not graded, or whose lengths are not known, stay so."""
    rng = np.random.default_rng(seed)
    rows, success = made.rows, made.success
    family = made.counts.family[rows.task]
    hard = rng.standard_normal(len(rows.tasks))
    luck = rng.standard_normal((len(rows.tasks), len(rows.models)))
    behind = success.skill[family, rows.model] - success.task_sd * hard[rows.task]
    behind = behind + success.pair_sd * luck[rows.task, rows.model] + rng.standard_normal(len(rows))
    right = np.where(np.isfinite(rows.success), (behind > 0).astype(float), np.nan)
    return replace(rows, where="simulated", success=right, measures=_lengths(made, hard, rng))


def _lengths(made: Fit, hard: Numbers, rng: np.random.Generator) -> dict[str, Numbers]:
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
