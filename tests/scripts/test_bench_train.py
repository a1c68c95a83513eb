"""The bench of training: the run that it times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts.bench_train import rollouts_against_sampler, warmed
from toolorchestra.agents.configuration.config import WarmStart
from toolorchestra.agents.configuration.presets import preset


def test_rollouts_of_a_warm_run_are_timed_beside_the_bare_sampler(tmp_path: Path) -> None:
    base = preset("tiny")
    start = WarmStart(steps=1, batch=2, demonstrations=2, gate=0)
    model = replace(base.model, processes=1)
    run = warmed(replace(base, warm_start=start, model=model, groups=2, rollouts=2), tmp_path)
    mine, bare, played = rollouts_against_sampler(run, 1)
    assert len(mine) == len(bare) == 1
    assert len(played) == 4
    assert all(trajectory.sequences for trajectory in played)
