"""Plays the held-out test tasks of a run with the weights of each stage of its training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.evaluation.heldout import Evaluation, HeldOut
from toolorchestra.agents.evaluation.panel import ORACLE
from toolorchestra.agents.evaluation.stages import StagesPlayed, plays_of
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.policies.cascade import cascade
from toolorchestra.agents.rollouts.rollout import Rollouts
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.saved_model import checkpoint_of, config_of
from toolorchestra.agents.training.training_run import rollout_params
from toolorchestra.envs.base.errors import ConfigError

Say = Callable[[str], None]
BEFORE, WARM, TRAINED = "before training", "supervised start", "trained"
RULES = ("cheapest", "strongest")


def stages_of(folder: Path, tasks: int, *, again: bool, say: Say) -> StagesPlayed:
    """From the run's report/stages.json where the same was played before, or played now."""
    best = checkpoint_of(folder)
    kept, made_of = folder / "report" / "stages.json", _made_of(folder, best, tasks)
    if kept.is_file() and not again:
        row = json.loads(kept.read_text(encoding="utf-8"))
        if row.get("made_of") == made_of:
            return StagesPlayed.from_json(row)
    played = _played(config_of(best), _checkpoints(folder, best), tasks, say)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"made_of": made_of, **played.as_json()}) + "\n", encoding="utf-8")
    return played


def _made_of(folder: Path, best: Path, tasks: int) -> dict[str, object]:
    """What the plays are of: other weights or other tasks are played anew."""
    return {
        "tasks": tasks,
        "checkpoints": {
            name: path and (path / checkpoint.MANIFEST).read_text(encoding="utf-8")
            for name, path in _checkpoints(folder, best).items()
        },
    }


def _checkpoints(folder: Path, best: Path) -> dict[str, Path | None]:
    """By stage, as far as the run has them. Before training there is none."""
    made: dict[str, Path | None] = {BEFORE: None}
    warm = folder / "checkpoints" / "step-000000"
    if config_of(best).warm_start.steps:
        if not warm.is_dir() or checkpoint.check(warm):
            raise ConfigError(f"{warm} is gone or damaged; the weights after the supervised start are played from it")
        made[WARM] = warm
    return made | {TRAINED: best}


def _played(config: TrainConfig, checkpoints: Mapping[str, Path | None], tasks: int, say: Say) -> StagesPlayed:
    config = replace(config, model=replace(config.model, processes=1))
    held_out = HeldOut(config.environments, tasks, "test", config.seed)
    evaluations: dict[str, Evaluation] = {}
    for name, path in checkpoints.items():
        engine, chat = build(config, lambda _line: None)
        try:
            if path is not None:
                engine.load(path)
            rollouts = Rollouts(engine, chat, rollout_params(config, config.evaluation_temperature))
            with engine.averaged():
                evaluations[name] = held_out.evaluate(rollouts)
            rollouts.close()
        finally:
            engine.close()
        say(f"{name}: {len(evaluations[name].trajectories)} tasks played")
    return _beside(held_out, evaluations, chat)


def _beside(held_out: HeldOut, evaluations: Mapping[str, Evaluation], chat: Chat) -> StagesPlayed:
    last = evaluations[TRAINED]
    plays = {name: plays_of(evaluation.tasks) for name, evaluation in evaluations.items()}
    for rule in RULES:
        plays[rule] = plays_of(held_out.beside(partial(baseline, rule), last, chat))
    plays["cascade"] = plays_of(held_out.beside(lambda: cascade, last, chat))
    if all(task is None or ORACLE in task.players for task in last.tasks):
        plays[ORACLE] = plays_of(last.tasks, ORACLE)
    wishes = [trajectory.preference.kind for trajectory in last.trajectories]
    return StagesPlayed(wishes, plays, list(evaluations), {name: e.valid for name, e in evaluations.items()})
