"""Outcomes drawn from a known truth, for fits to find again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

    def skill(self) -> np.ndarray:
        """family x model."""
        return np.random.default_rng(99).normal(-0.3, 0.8, (self.families, self.models))


def drawn(truth: Truth, seed: int = 0, *, named: bool = True) -> Outcomes:
    """A recording of that truth."""
    rng = np.random.default_rng(seed)
    skill, made = truth.skill(), OutcomesBuilder("drawn")
    for task in range(truth.tasks):
        family, hard = task % truth.families, rng.normal()
        long = truth.with_difficulty * hard + np.sqrt(1 - truth.with_difficulty**2) * rng.normal()
        for model in range(truth.models):
            luck = truth.pair_sd * rng.normal()
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
