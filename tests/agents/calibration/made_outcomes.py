"""Outcomes drawn from a known truth, and whether a fit finds it again: its intervals beside the numbers drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolorchestra.agents.calibration.experts_file import SUBJECTS
from toolorchestra.agents.calibration.experts_fit import FitFile
from toolorchestra.agents.calibration.goodness import Compared
from toolorchestra.envs.models.simulated import Law, Skill
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder


@dataclass(frozen=True)
class Truth:
    """What the rows are drawn from."""

    tasks: int = 200
    models: int = 8
    runs: int = 4
    families: int = 4
    task_sd: float = 1.2
    pair_sd: float = 0.7
    length_task: float = 0.5
    length_run: float = 0.6
    with_difficulty: float = 0.6
    tie: float = 0.8
    luck_by_strength: float = 0.0
    """Of a model whose skill is 1.5 deviations above the mean."""

    def skill(self) -> np.ndarray:
        """family x model."""
        return np.random.default_rng(99).normal(-0.3, 0.8, (self.families, self.models))


def drawn(truth: Truth, seed: int = 0, *, named: bool = True) -> Outcomes:
    """A recording of that truth."""
    rng = np.random.default_rng(seed)
    skill, made = truth.skill(), OutcomesBuilder("drawn")
    mean = skill.mean(0)
    strength = np.clip((mean - mean.mean()) / mean.std(), -1.5, 1.5) / 1.5
    for task in range(truth.tasks):
        family, hard = task % truth.families, rng.normal()
        worth = rng.normal() if truth.luck_by_strength else 0.0
        long = truth.with_difficulty * hard + np.sqrt(1 - truth.with_difficulty**2) * rng.normal()
        for model in range(truth.models):
            tied = truth.luck_by_strength * strength[model]
            luck = truth.pair_sd * (tied * worth + np.sqrt(1 - tied**2) * rng.normal())
            for run in range(truth.runs):
                right = skill[family, model] - truth.task_sd * hard + luck + rng.normal() > 0
                noise = rng.normal()
                other = truth.tie * noise + np.sqrt(1 - truth.tie**2) * rng.normal()
                made.add(
                    f"task {task}",
                    f"model {model}",
                    bool(right),
                    family=f"family {family}",
                    run=run if named else None,
                    input=1000,
                    output=max(1, round(5000 * np.exp(truth.length_task * long + truth.length_run * noise))),
                    seconds=float(60 * np.exp(truth.length_task * long + truth.length_run * other)),
                )
    return made.made()


def coverage(found: Sequence[Compared]) -> float:
    """The share of numbers that lie in their intervals."""
    return sum(one.inside for one in found) / len(found) if found else float("nan")


def recovered(fit: FitFile, known: Mapping[str, Skill]) -> list[Compared]:
    """Each number that fit and experts both have. Levels are no part of it: they are the same for all here."""
    return [*_shared(fit, next(iter(known.values())).law), *_skills(fit, known)]


def _shared(fit: FitFile, law: Law) -> Iterator[Compared]:
    numbers = {"task_sd": law.task, "pair_sd": law.pair}
    for measure, spread in (("tokens", law.tokens), ("seconds", law.seconds)):
        for name, value in spread._asdict().items():
            numbers[f"{measure} {name if name == 'with_difficulty' else f'{name}_sd'}"] = value
    for name, value in numbers.items():
        interval = fit.told["shared"].get(name)
        if interval is not None:
            yield Compared(name, value, interval[0], *interval[1:])


def _skills(fit: FitFile, known: Mapping[str, Skill]) -> Iterator[Compared]:
    for model, one in fit.models.items():
        for family, ends in (one.get("skill ends") or {}).items():
            if model in known and family in SUBJECTS and ends is not None and all(map(math.isfinite, ends)):
                yield Compared(f"skill of {model} in {family}", known[model].answering[family], sum(ends) / 2, *ends)
