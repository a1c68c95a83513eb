"""Evolution in place of gradients: sep-CMA-ES over the last layer of a trained start, as Trinity trains its router.

python scripts/evolve.py runs/tiny-seed0/checkpoints/step-000000 --out runs/evolved-seed0    # pip install "cma>=4,<5"

Each step draws candidates, and every one plays the same tasks: the siblings of a group are the plays of as many
candidates. The fitness of a candidate is how much better it did than its siblings, by the scores that training takes.
The folder is a run's: scripts/learning.py and `toolorchestra report` read it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from toolorchestra.agents.algorithms.leave_one_out import LeaveOneOut
from toolorchestra.agents.commands.console import say
from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import chosen_tasks, seed_of
from toolorchestra.agents.evaluation.heldout import baseline_measures
from toolorchestra.agents.reports.training_report import write_report
from toolorchestra.agents.rollouts.grpo import Group, Rewards, training_batch
from toolorchestra.agents.rollouts.rollout import siblings
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.rollouts_ahead import TakenGroups
from toolorchestra.agents.training.saved_model import checkpoint_of, config_of
from toolorchestra.agents.training.step_log import StepTimes, log_step
from toolorchestra.agents.training.trainer import evaluate
from toolorchestra.agents.training.training_run import TrainingRun, claimed, open_run

Numbers = NDArray[np.float64]
EVOLVED = ("layers.{last}.mlp.down_proj.weight", "model.norm.weight")
"""The weights that evolve, about as many as Trinity's: the last projection and the norm before the head."""
DEVIATION_OF_VECTORS = 0.1
"""What a step of 1 is for a vector; for a matrix it is the deviation of its own numbers."""


class SepCmaEs(LeaveOneOut):
    """Scores of leave-one-out. What is told a search is the fitness of each candidate."""


class Weights:
    """The weights that evolve, as one vector whose start is 0."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        last = engine.model.config.num_hidden_layers - 1
        ends = tuple(name.format(last=last) for name in EVOLVED)
        self._parts = [p for name, p in engine.model.named_parameters() if name.endswith(ends)]
        self._start = [p.detach().clone() for p in self._parts]
        self._units = [float(p.std()) if p.ndim > 1 else DEVIATION_OF_VECTORS for p in self._start]
        self.count = sum(p.numel() for p in self._parts)

    def put(self, vector: Numbers) -> None:
        """Give the engine these."""
        moved = torch.split(torch.from_numpy(vector).float(), [p.numel() for p in self._parts])
        with torch.no_grad():
            for part, start, unit, one in zip(self._parts, self._start, self._units, moved, strict=True):
                part.copy_(start + unit * one.view_as(start))
        self._engine.adopt(self._engine.snapshot())  # its sampler takes them then


def fitness(rewards: Sequence[Rewards]) -> Numbers:
    """The mean over tasks of what each candidate got more than the mean of all. A play without a reward tells
    nothing."""
    worth = np.zeros(len(rewards[0]))
    for row in rewards:
        known = [one.total for one in row if one is not None]
        worth += [0.0 if one is None else one.total - statistics.fmean(known) for one in row]
    return worth / len(rewards)


def take_step(run: TrainingRun, search: Any, weights: Weights) -> str:
    """Draw candidates, play, and tell the search. Gives the line to show."""
    began, config = time.monotonic(), run.config
    tasks = chosen_tasks(config, run.step)
    jobs = [siblings(task.job, config.rollouts) for task in tasks]
    drawn, played = search.ask(), []
    for number, candidate in enumerate(drawn):
        weights.put(candidate)
        played.append(run.rollouts.collect([some[number] for some in jobs]))
    groups = [
        Group(list(some), baseline_measures(task.job, config.baselines, run.chat), task.label)
        for some, task in zip(zip(*played, strict=True), tasks, strict=True)
    ]
    collected = time.monotonic()
    batch = training_batch(groups, run.algorithm)
    search.tell(drawn, list(-fitness(batch.rewards)))
    weights.put(search.result.xfavorite)
    times = StepTimes(collected - began, time.monotonic() - collected, 0.0)
    return log_step(run, TakenGroups(groups), batch, {"step_size": float(search.sigma)}, times)


def evolve(run: TrainingRun, step_size: float) -> None:
    """Take all steps; save the best and the last."""
    with warnings.catch_warnings(action="ignore"):  # it warns where matplotlib, which is not used, is not there
        import cma

    weights = Weights(run.engine)
    options = {
        "CMA_diagonal": True,
        "popsize": run.config.rollouts,
        "seed": seed_of(run.config.seed, 0, "evolution") % 2**31 + 1,
        "verbose": -9,
    }
    search = cma.CMAEvolutionStrategy(np.zeros(weights.count), step_size, options)
    say(f"{weights.count:,} weights evolve, {run.config.rollouts} candidates a step on {run.config.groups} tasks each")
    run.warm = True  # no supervised start is to come
    evaluate(run)
    run.save()
    while run.step < run.config.steps:
        line = take_step(run, search, weights)
        run.step += 1
        say(f"{run.step}/{run.config.steps} {line}, step size {search.sigma:.2f}")
        if run.step % run.config.evaluate_every == 0 or run.step == run.config.steps:
            evaluate(run)
        if run.best_step == run.step or run.step == run.config.steps:
            run.save()


def settings_of(start: Path, given: argparse.Namespace) -> TrainConfig:
    """The settings of the run that the start is of, with other steps. Each candidate has its own weights, so one
    process plays."""
    found = config_of(checkpoint_of(start))
    return replace(
        found,
        init_from=str(start),
        model=replace(found.model, processes=1),
        warm_start=replace(found.warm_start, steps=0),
        algorithm=f"{Path(__file__).stem}:{SepCmaEs.__name__}",
        average=0.0,
        temperature=found.evaluation_temperature,  # candidates explore by their weights
        steps=given.steps,
        groups=given.tasks,
        rollouts=given.candidates,
        evaluate_every=given.evaluate_every,
    )


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start", type=Path, help="a checkpoint of a run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=16, help="tasks a step")
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--step-size", type=float, default=2.0, help="at first, in deviations of a weight")
    parser.add_argument("--evaluate-every", type=int, default=20)
    args = parser.parse_args(given)
    config = settings_of(args.start, args)
    with claimed(args.out):
        engine, chat = build(config, say)
        with closing(engine):
            run = open_run(config, args.out, engine, chat, resume=False, say=say)
            evolve(run, args.step_size)
            say(f"report: {write_report(run, say)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
