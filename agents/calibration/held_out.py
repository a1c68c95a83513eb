"""Whether a fit tells what it has not seen: a family of tasks left out, or a model left out, with intervals.

A family: skills there are drawn from how the model's skills differ between the families that were seen. A model: its
own rate in each family is taken as known, and how its runs fall together (always, never, now and then) is foretold by
what the other models share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toolorchestra.agents.calibration.normal import Numbers, below, quantile
from toolorchestra.agents.calibration.success import Counts, SuccessFit, fit_success
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.outcomes.rows import Outcomes

DRAWS = 400
ENDS = (2.5, 97.5)


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
    """By family: each model's rate there, foretold by the others."""
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
    """Of all models in a family that nobody saw: their mean, how families differ for all, how for one model."""
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
    """Of each task and model: what lies behind its runs, chance left out."""
    tasks, models = runs.shape
    shared = fit.task_sd * rng.standard_normal((tasks, 1)) + fit.pair_sd * rng.standard_normal((tasks, models))
    return np.asarray(skills + shared)


def _drawn_right(behind: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    return np.asarray(rng.binomial(runs.astype(int), below(behind)))


def _rates_of(fit: SuccessFit, skills: Numbers, runs: Numbers, rng: np.random.Generator) -> Numbers:
    right = _drawn_right(_behind(fit, skills, runs, rng), runs, rng)
    return np.asarray(right.sum(0) / np.maximum(runs.sum(0), 1))


def models_left_out(rows: Outcomes, seed: int = 0) -> list[Foretold]:
    """Of each model: the shares of tasks it always, never and sometimes solves, by what the others share."""
    counts = Counts.of(rows)
    if not (counts.runs > 1).any():
        raise ConfigError(f"{rows.where}: no model ran a task twice, so there is nothing to foretell of its runs")
    rng = np.random.default_rng(seed)
    made: list[Foretold] = []
    for at, model in enumerate(rows.models):
        others = np.array([m for m in range(len(rows.models)) if m != at])
        kept = Counts(
            counts.runs[:, others], counts.right[:, others], counts.squares[:, others], counts.family, counts.families
        )
        made += _model_left_out(counts, at, model, fit_success(kept), rng)
    return made


def _model_left_out(
    counts: Counts, at: int, model: str, others: SuccessFit, rng: np.random.Generator
) -> list[Foretold]:
    many = counts.runs[:, at] > 1
    if not many.any():
        return []
    runs, right = counts.runs[many, at], counts.right[many, at]
    by_family = np.zeros(counts.families)
    total = np.zeros(counts.families)
    np.add.at(by_family, counts.family[many], right)
    np.add.at(total, counts.family[many], runs)
    scale = np.sqrt(1 + others.task_sd**2 + others.pair_sd**2)
    drawn = []
    for _ in range(DRAWS):  # its rate is known as well as these runs tell it
        rate = rng.beta(by_family + 0.5, total - by_family + 0.5)
        skills = (quantile(rate) * scale)[counts.family[many]][:, None]
        once = _drawn_right(_behind(others, skills, runs[:, None], rng), runs[:, None], rng)[:, 0]
        drawn.append(_kinds(once, runs))
    low, high = np.percentile(np.array(drawn), ENDS, axis=0)
    names = ("never", "always", "sometimes")
    found = _kinds(right, runs)
    return [
        Foretold(f"{model}: {name}", float(found[n]), float(low[n]), float(high[n])) for n, name in enumerate(names)
    ]


def _kinds(right: Numbers, runs: Numbers) -> Numbers:
    never, always = (right == 0).mean(), (right == runs).mean()
    return np.array([never, always, 1 - never - always])


def coverage(foretold: Sequence[Foretold]) -> float:
    """The share of numbers that lie in their intervals."""
    return sum(one.covered for one in foretold) / len(foretold) if foretold else float("nan")
