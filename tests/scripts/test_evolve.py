"""Evolution over a run's start: what a candidate is worth, which weights move, and the folder that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scripts import evolve
from tests.agents.training.test_rollouts_ahead import EVEN
from tests.agents.training.test_trainer import COLD, run
from toolorchestra.agents.rollouts.grpo import RewardBreakdown, Trajectory
from toolorchestra.agents.rollouts.rollout import Job
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.training_run import TrainingRun


def test_a_candidate_is_worth_what_it_got_more_than_its_siblings() -> None:
    rewards = [[RewardBreakdown(total, {}, True) for total in row] for row in ((0.0, 1.0, 0.5), (0.2, 0.2, 0.8))]
    assert evolve.fitness(rewards) == pytest.approx([-0.35, 0.15, 0.2])
    assert evolve.fitness([[None, *rewards[0][1:]], rewards[1]]) == pytest.approx([-0.1, 0.025, 0.075])


def test_the_last_projection_and_the_norm_move_and_nothing_else() -> None:
    engine, _ = build(COLD)
    before = {name: p.detach().clone() for name, p in engine.model.named_parameters()}
    weights = evolve.Weights(engine)
    weights.put(np.ones(weights.count))
    now = dict(engine.model.named_parameters())
    moved = {name for name, p in now.items() if not torch.equal(p, before[name])}
    assert moved == {"model.layers.1.mlp.down_proj.weight", "model.norm.weight"}
    assert weights.count == sum(now[name].numel() for name in moved)
    assert torch.allclose(now["model.norm.weight"], before["model.norm.weight"] + evolve.DEVIATION_OF_VECTORS)
    weights.put(np.zeros(weights.count))
    assert all(torch.equal(p, before[name]) for name, p in now.items())


def test_it_finds_what_pays_and_is_read_as_other_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays are worth the mean of the norm's weights here."""
    monkeypatch.syspath_prepend(Path(evolve.__file__).parent)  # as where the file is run
    start, made = tmp_path / "start", tmp_path / "made"
    run(start, replace(COLD, environments=(EVEN,), max_tokens=4))
    real, worth = evolve.take_step, list[float]()

    def graded(running: TrainingRun, search: Any, weights: evolve.Weights) -> str:
        played, norm = running.rollouts.collect, dict(running.engine.model.named_parameters())["model.norm.weight"]  # type: ignore[attr-defined]

        def collect(jobs: Sequence[Job]) -> list[Trajectory]:
            value = float(norm.detach().mean())
            return [replace(one, measure=replace(one.measure, outcome=value)) for one in played(jobs)]

        with monkeypatch.context() as patched:
            patched.setattr(running.rollouts, "collect", collect)
            line = real(running, search, weights)
        worth.append(float(norm.detach().mean()))
        return line

    monkeypatch.setattr(evolve, "take_step", graded)
    given = f"{start} --out {made} --steps 12 --tasks 1 --candidates 12 --evaluate-every 6".split()
    assert evolve.main(given) == 0
    assert worth[0] < worth[5] < worth[11]
    assert worth[11] > 1.1
    rows = list(read(made / "metrics.jsonl"))
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [0, 6, 12]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [*range(12)]
    assert (made / "report" / "summary.json").is_file()
    assert checkpoint.latest(made / "checkpoints") == made / "checkpoints" / "step-000012"
