"""The report of a run that has ended: the best checkpoint plays the test split and the probes. What came out is kept as
numbers (report/summary.json), as episodes (report/trajectories.jsonl), and as the run's page (page.html)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import as_json
from toolorchestra.agents.configuration.environments import simulated
from toolorchestra.agents.evaluation.heldout import Evaluation, HeldOut, WishStanding
from toolorchestra.agents.evaluation.panel import POLICY, OracleShare, Standing, intervals
from toolorchestra.agents.evaluation.probes import PROBED, Probe, standard_probes
from toolorchestra.agents.reports.page import write_page
from toolorchestra.agents.reports.training_data import SUMMARY, TESTED
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.training_run import TrainingRun, rollout_params
from toolorchestra.envs.wrappers.record import trajectory_line

TESTED_MEGABYTES = 20.0
"""That the test's episodes may take; beyond it every second one goes, until the rest fits."""


def write_report(run: TrainingRun) -> Path:
    """Evaluate the best checkpoint on the test split, probe, draw and write. Gives the page's path; the engine is left
    with that checkpoint's weights."""
    folder = run.folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    step = _take_best(run)
    config = run.config
    evaluating = run.rollouts.with_params(rollout_params(config, config.evaluation_temperature))
    with run.engine.averaged():
        held_out = HeldOut(config.environments, config.evaluation_tasks, "test", config.seed)
        final = held_out.evaluate(evaluating, record=True)
        # Where an evaluation is short because the model is slow, so are they.
        probes = standard_probes(evaluating, config.environments, min(PROBED, config.evaluation_tasks))
    summary = as_summary(run, step, final, probes)
    (run.folder / SUMMARY).write_text(json.dumps(summary, indent=1))
    _keep_episodes(run.folder / TESTED, final)
    return write_page(run.folder).file


def _keep_episodes(path: Path, final: Evaluation) -> None:
    """Keep the test's episodes, turn by turn. All of them, or an even sample: figures of the page are then of the
    sample, and of nothing that was picked."""
    lines = [_line(one) for one in final.trajectories if one.record is not None]
    while len(lines) > 1 and sum(map(len, lines)) > TESTED_MEGABYTES * 1e6:
        lines = lines[::2]
    path.write_bytes(b"".join(lines))


def _line(one: Trajectory) -> bytes:
    named = {"policy": POLICY, "env": one.env_id.rpartition("/")[2]}
    return trajectory_line({**named, **(one.record or {})})


def _take_best(run: TrainingRun) -> int:
    """The weights that did best on the validation split, where their checkpoint is still whole. Gives their step."""
    best = run.folder / "checkpoints" / f"step-{run.best_step:06d}"
    if run.best_step in (-1, run.step):
        return run.step
    if wrong := checkpoint.check(best):
        lost = f"is damaged ({wrong})" if best.exists() else "is gone"
        run.say(f"reporting on the last step: {best.name}, which did best on the validation split, {lost}")
        return run.step
    run.engine.load(best)
    run.say(f"reporting on step {run.best_step}, which did best on the validation split")
    return run.best_step


def as_summary(run: TrainingRun, best_step: int, final: Evaluation, probes: Sequence[Probe]) -> dict[str, Any]:
    """What the report says, as numbers; `best_step` is the step whose weights it is of."""
    return {
        "simulated": simulated(run.config),
        "preset": run.config.preset,
        "seed": run.config.seed,
        "steps": run.step,
        "best_step": best_step,
        "of_oracle": _share_row(final.of_oracle),
        "by_wish": {wish: _wish_row(found) for wish, found in final.by_wish.items()},
        "failed": final.failed,
        "valid": final.valid,
        "standings": {name: {**_row(s), "intervals": _intervals(final, name)} for name, s in final.standings.items()},
        "by_environment": {e: {n: _row(s) for n, s in p.items()} for e, p in final.by_environment.items()},
        "probes": [{**p.__dict__, "shift": p.shift} for p in probes],
        "configuration": as_json(run.config),
    }


def _intervals(final: Evaluation, name: str) -> dict[str, list[float]]:
    known = [task for task in final.tasks if task is not None]
    return {of: [ends.low, ends.high] for of, ends in intervals(known, name).items()}


def _share_row(share: OracleShare | None) -> dict[str, float] | None:
    if share is None:
        return None
    return {"value": share.value, "low": share.interval.low, "high": share.interval.high}


def _wish_row(found: WishStanding) -> dict[str, Any]:
    return {"policy": _row(found.policy), "oracle": _row(found.oracle), "of_oracle": _share_row(found.share)}


def _row(s: Standing) -> dict[str, Any]:
    return {
        "reward": s.reward,
        "accuracy": s.accuracy,
        "cents": s.cents,
        "cents_per_solved": s.cents_per_solved if s.accuracy else None,
        "seconds": s.seconds,
        "calls": s.calls,
        "tasks": s.tasks,
    }
