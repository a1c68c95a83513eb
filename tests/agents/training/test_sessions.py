"""What a run says before it trains, and what is kept of when and where it was trained."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.evaluation.test_heldout import CHAT
from tests.agents.reports.test_training_report import UNEVEN, Moody
from toolorchestra import __version__
from toolorchestra.agents.configuration.config import WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import ModelSize
from toolorchestra.agents.engines.machine import Machine, this_machine
from toolorchestra.agents.training import sessions
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.sessions import model_words, opening
from toolorchestra.agents.training.trainer import train
from toolorchestra.agents.training.training_run import open_run

MACHINE = Machine("Fast CPU", 2, 8.2, "", "3.11.7", "2.13.0")
SIZE = Moody().size()


def test_a_run_says_what_it_trains_where_and_how_to_watch_stop_and_go_on(tmp_path: Path) -> None:
    hle = UNEVEN.environments[0]
    config = replace(
        UNEVEN,
        environments=(hle, replace(hle, env_id="ToolOrchestra/FRAMES-v0", weight=3.0)),
        model=replace(UNEVEN.model, threads=2),
        groups=3,
        rollouts=5,
        warm_start=WarmStart(steps=700, demonstrations=1_500),
    )
    run = open_run(config, tmp_path, Moody(), CHAT, resume=False, say=lambda _: None)  # type: ignore[arg-type]
    told = opening(run, MACHINE, SIZE)
    words = "\n".join(told)
    assert told[0].startswith("training tiny, seed 0: the tiny model")
    assert "1.72 million parameters, of which 16,000 are trained" in told[0]
    assert "environments: HLE-v0 25%, FRAMES-v0 75% (simulated experts, nothing is paid)" in told
    assert "a supervised start of 700 steps on 1,500 demonstrations" in words
    assert "steps: 4 of 4; in each, 3 tasks are played 5 times (15 rollouts), 60 rollouts in all" in words
    assert "machine: Fast CPU, 2 cores, 8 GB of memory; 2 threads train, 1 process plays" in told
    run.config = replace(config, model=replace(config.model, processes=2))
    assert "machine: Fast CPU, 2 cores, 8 GB of memory; 2 processes play and train" in opening(run, MACHINE, SIZE)
    assert f"folder: {tmp_path}" in told
    assert str(tmp_path / "tensorboard") in words
    assert "Ctrl-C once ends the step and saves; to go on, give the same command with --resume" in words


def test_a_disk_without_room_for_the_checkpoints_is_told_before_the_run(tmp_path: Path) -> None:
    run = open_run(UNEVEN, tmp_path, Moody(), CHAT, resume=False, say=lambda _: None)  # type: ignore[arg-type]
    whole = ModelSize(8_200_000_000_000, 8_200_000_000_000)
    (line,) = (line for line in opening(run, MACHINE, whole) if line.startswith("folder: "))
    assert line.endswith(" GB are free, 4 more checkpoints of 98400 GB may lie there at once")


def test_a_run_that_goes_on_says_how_many_steps_are_left(tmp_path: Path) -> None:
    run = open_run(UNEVEN, tmp_path, Moody(), CHAT, resume=False, say=lambda _: None)  # type: ignore[arg-type]
    run.step, run.warm = 3, True
    words = "\n".join(opening(run, MACHINE, SIZE))
    assert "steps: 1 of 4" in words
    assert "supervised start" not in words
    run.step = 4
    assert "steps: all 4 are taken; what is left is the report" in opening(run, MACHINE, SIZE)


def test_real_experts_are_said_to_cost_money(tmp_path: Path) -> None:
    (file := tmp_path / "mine.toml").write_text('[endpoints.a]\nbase_url = "http://a/v1"\n[models."*"]\n')
    mix = replace(UNEVEN.environments[0], arguments={**UNEVEN.environments[0].arguments, "backends": str(file)})
    run = open_run(UNEVEN, tmp_path / "run", Moody(), CHAT, resume=False, say=lambda _: None)  # type: ignore[arg-type]
    run.config = replace(UNEVEN, environments=(mix,))
    assert "environments: HLE-v0 100% (experts may be real models that cost money)" in opening(run, MACHINE, SIZE)


def test_the_local_engine_counts_the_weights_of_its_model() -> None:
    pytest.importorskip("torch", reason="the local engine needs it")
    config = replace(preset("tiny"), model=replace(preset("tiny").model, processes=1))
    engine, _ = build(config)
    size = engine.size()
    assert size.parameters == size.trained == sum(p.numel() for p in engine.model.parameters())
    assert "parameters, all trained" in model_words(config, size)
    engine.close()


def test_this_machine_has_a_processor_and_cores() -> None:
    found = this_machine("cpu")
    assert found.processor
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert not found.gpu


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_training_and_what_it_went_on_with_are_two_sessions(tmp_path: Path) -> None:
    said: list[str] = []
    train(replace(UNEVEN, steps=2), tmp_path, Moody(), CHAT, resume=False, say=said.append)  # type: ignore[arg-type]
    train(replace(UNEVEN, steps=3), tmp_path, Moody(), CHAT, resume=True, say=said.append)  # type: ignore[arg-type]
    first, second = sessions.read_sessions(tmp_path)
    assert first.version == __version__
    assert first.size == SIZE
    assert first.ended is not None
    assert first.began < first.ended <= second.began
    assert sum(line.startswith("folder: ") for line in said) == 2


def test_a_session_that_was_killed_ends_with_the_newest_checkpoint(tmp_path: Path) -> None:
    began = 1_700_000_000.0
    row = {"began": began, "version": "0.1.0", "machine": "Fast CPU", "size": SIZE._asdict()}
    (tmp_path / sessions.SESSIONS).write_text(json.dumps(row) + '\n{"ended": 17')
    kept = tmp_path / "checkpoints" / "step-000002"
    kept.mkdir(parents=True)
    os.utime(kept, (began + 90, began + 90))
    with sessions.recorded(tmp_path, MACHINE, SIZE):
        going_on = sessions.read_sessions(tmp_path)
        assert [one.ended for one in going_on] == [began + 90, None]
        now = going_on[1].began + 5
        assert sessions.seconds_of(going_on, lambda: now) == pytest.approx(95)
    assert sessions.read_sessions(tmp_path)[1].ended is not None
    assert going_on[0].date == "2023-11-14 22:13 UTC"
