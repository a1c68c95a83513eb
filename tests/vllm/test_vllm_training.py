"""GRPO with vLLM rollouts: it learns as with the local sampler, many episodes at once, and survives a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.doors import ID, demonstrations
from tests.vllm.processes import children
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.engines.base import EngineLost, LossParams
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group, Grpo, Trajectory, training_batch
from toolorchestra.agents.rollouts.rollout import Chat, Job, RolloutParams, Rollouts, factory_of
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import recorded
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import train
from toolorchestra.envs.registration import register

register(ID, "tests.vllm.doors:DoorSource")
MODEL = ModelConfig(hidden=128, sampler="vllm", rows=64)
CONFIG = TrainConfig(environments=(EnvMix(ID),), model=MODEL, max_tokens=48, max_context=384)
PARAMS = RolloutParams(max_tokens=48, max_context=384, concurrency=64)
FACTORY = factory_of(ID, preference="none", max_turns=4)
GROUPS, ROLLOUTS, STEPS = 8, 8, 8


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Any, Chat]]:
    others = children()  # other files' engine, which lives as long as the session
    engine, chat = build(CONFIG, say=lambda _: None)
    yield engine, chat
    engine.close()
    assert not [c for pid, c in children().items() if pid not in others and ("VLLM" in c or c.startswith("Z"))]


def imitate(engine: Any, chat: Chat, folder: Path, thought: str = "") -> None:
    """Learn to open either door."""
    data = recorded(chat, demonstrations(folder / "doors.jsonl", thought))
    for step in range(70):
        engine.train(data, LossParams("cross_entropy"), 3e-3 * min(1.0, (step + 1) / 10))


def jobs(step: int, count: int = GROUPS * ROLLOUTS) -> list[Job]:
    return [Job(ID, FACTORY, 1000 * step + number // ROLLOUTS) for number in range(count)]


def accuracy(trajectories: Sequence[Trajectory]) -> float:
    return sum(t.measure.outcome for t in trajectories) / len(trajectories)


def curve(
    engine: Any, chat: Chat, *, steps: int = STEPS, first: int = 0, rate: float = 1e-3, least_sequences: float = 0
) -> list[float]:
    """The whole of GRPO, small: rollouts, groups' rewards and advantages, a step; the share of gold by step."""
    rollouts, seen = Rollouts(engine, chat, PARAMS), []
    for step in range(steps):
        got = rollouts.collect(jobs(first + step))
        assert sum(len(t.sequences) for t in got) > least_sequences * len(got), "no turn forgot its thought"
        seen.append(accuracy(got))
        groups = [Group(got[i : i + ROLLOUTS]) for i in range(0, len(got), ROLLOUTS)]
        found = engine.train(training_batch(groups, Grpo(AdvantageParams())).data, LossParams(), rate)
        assert found.get("mismatch", 0.0) < 1e-4, found
    return seen


def test_grpo_learns_as_it_does_with_the_local_sampler(made: tuple[Any, Chat], tmp_path: Path) -> None:
    local = build(replace(CONFIG, model=replace(MODEL, sampler="local")))
    for engine, chat in (local, made):
        imitate(engine, chat, tmp_path)
        seen = curve(engine, chat)
        assert 0.2 < seen[0] < 0.8, seen
        assert sum(seen[-2:]) / 2 > 0.9, seen


def test_a_crash_fails_the_episodes_in_flight_and_the_run_goes_on(made: tuple[Any, Chat], tmp_path: Path) -> None:
    engine, chat = made
    imitate(engine, chat, tmp_path)
    sampler, heard = engine.sampler, 0

    def kill_at_the_third(_: Trajectory) -> None:
        nonlocal heard
        heard += 1
        if heard == 3:
            os.kill(sampler.pids[0], signal.SIGKILL)

    rollouts = Rollouts(engine, chat, replace(PARAMS, concurrency=12))
    got = rollouts.collect(jobs(7), kill_at_the_third)
    failed = [t for t in got if t.measure.failed]
    assert 0 < len(failed) <= 12
    assert {t.truncated_by for t in failed} == {"outage"}
    assert all("the vLLM engine broke off" in str(t.failure) for t in failed)
    assert accuracy([t for t in got if not t.measure.failed]) > 0
    assert sampler.restarts == 1
    groups = [Group(got[i : i + ROLLOUTS]) for i in range(0, len(got), ROLLOUTS)]
    batch = training_batch(groups, Grpo(AdvantageParams()))
    assert batch.failed == len(failed)
    assert engine.train(batch.data, LossParams(), 1e-4)["mismatch"] < 1e-4
    assert not [c for c in children().values() if c.startswith("Z")]


def test_rollouts_go_on_beside_the_training_and_through_a_crash(made: tuple[Any, Chat], tmp_path: Path) -> None:
    """Weights are published between turns; a crash fails the episodes whose turn was being sampled, and no others."""
    engine, chat = made
    imitate(engine, chat, tmp_path)
    config = replace(
        CONFIG,
        environments=(EnvMix(ID, 1.0, {"preference": "none", "max_turns": 4}, validation="train", test="train"),),
        steps=6,
        groups=4,
        rollouts=4,
        max_staleness=1,
        advantage=AdvantageParams(least_spread=0.0),
        evaluate_every=2,
        evaluation_tasks=4,
        warm_start=WarmStart(steps=0),
    )
    before = engine.sampler.restarts

    def kill_once(said: str) -> None:
        if "held out, step 2" in said:
            os.kill(engine.sampler.pids[0], signal.SIGKILL)

    run = train(config, tmp_path / "run", engine, chat, resume=False, say=kill_once)
    assert run.step == 6
    assert engine.sampler.restarts == before + 1
    rows = [row for row in read(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert sorted(number for row in rows for number in row["groups_taken"]) == list(range(24))
    assert any(0 < row["oldest"] <= 1 for row in rows)
    assert sum(row["failed"] for row in rows) <= 2 * 16  # no more than the two steps that were being played
    assert all(row["loss/mismatch"] < 1e-4 for row in rows if row["oldest"] == 0 and "loss/mismatch" in row)


def test_too_many_crashes_end_the_run(made: tuple[Any, Chat]) -> None:
    engine, chat = made
    sampler = engine.sampler
    allowed = max(1, sampler.restarts)  # other tests of this file have killed the same engine
    sampler.config = replace(sampler.config, restarts=allowed)
    sampler.restarts = allowed
    (pid,) = sampler.pids
    victims = [pid]
    rollouts = Rollouts(engine, chat, replace(PARAMS, concurrency=2))
    with pytest.raises(EngineLost, match=f"died {allowed + 1} times, and {allowed} restarts are allowed"):
        rollouts.collect(jobs(8, 16), lambda _: os.kill(victims.pop(), signal.SIGKILL) if victims else None)
