"""The supervised start as a run sees it: it says where it is, is saved within, and goes on as if nothing had been."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.training import checkpoint, warmstart
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import train
from toolorchestra.agents.training.training_run import TrainingRun
from toolorchestra.envs.base.errors import ConfigError

START = WarmStart(steps=5, batch=4, demonstrations=12)
CONFIG = replace(
    COLD, warm_start=START, groups=1, rollouts=2, evaluation_tasks=1, model=ModelConfig(hidden=16, lora_rank=2)
)


_GATE = warmstart.gate


def _the_gate_says(monkeypatch: pytest.MonkeyPatch, *, opens: bool) -> None:
    monkeypatch.setattr(warmstart, "gate", lambda *given: (opens, _GATE(*given)[1]))


@pytest.fixture(autouse=True)
def _the_gate_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it sees; and every second step is saved."""
    _the_gate_says(monkeypatch, opens=True)
    monkeypatch.setattr(warmstart, "SAVES", 2)


Before = Callable[[int], None]
"""Is told how many optimiser steps were taken, before each."""


def run(
    folder: Path,
    config: TrainConfig = CONFIG,
    *,
    resume: bool = False,
    before: Before = lambda _: None,
    said: list[str] | None = None,
) -> TrainingRun:
    engine, chat = build(config)
    whole, taken = engine.train, list[int]()

    def watched(data: Sequence[Datum], loss: LossParams, rate: float) -> Mapping[str, float]:
        before(len(taken))
        taken.append(1)
        made: Mapping[str, float] = whole(data, loss, rate)
        return made

    engine.train = watched
    return train(config, folder, engine, chat, resume=resume, say=(said if said is not None else []).append)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = checkpoint.latest(folder)
    assert found is not None
    kept: dict[str, torch.Tensor] = torch.load(found / "engine.pt", weights_only=True)["weights"]
    return kept


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(value, right[name]) for name, value in left.items())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read(folder / "metrics.jsonl") if row["kind"] == "warm"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, replace(CONFIG, warm_start=replace(START, gate=0)))
    return folder


def test_it_says_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    run(tmp_path, said=said)
    found = rows(tmp_path)
    assert [row["step"] for row in found] == [0, 1, 2, 3, 4]
    assert all("mismatch" not in row for row in found)  # of demonstrations, which no sampler made
    assert all(row["loss"] > 0 and row["tokens_per_second"] > 0 and row["learning_rate"] > 0 for row in found)
    shown = capsys.readouterr().err
    assert f"5/5 warm start, loss {found[-1]['loss']:.3f} a token, 0 s left" in shown
    assert "12/12 random plays" in shown
    assert any(text.startswith(f"warm start, round 1: loss {found[-1]['loss']:.3f} a token; readable") for text in said)
    others = {(row["kind"], row["step"]) for row in read(tmp_path / "metrics.jsonl")} - {("warm", n) for n in range(5)}
    assert others == {("eval", 0), ("train", 0), ("eval", 1)}


def killed(at: int) -> Before:
    def before(taken: int) -> None:
        if taken == at:
            raise MemoryError("killed here")

    return before


def test_a_kill_loses_the_steps_since_the_last_save_alone(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        run(tmp_path, before=killed(3))
    assert [path.name for path in checkpoint.all_of(tmp_path / "warm_start")] == ["step-000002"]
    assert not checkpoint.all_of(tmp_path / "checkpoints")
    with pytest.raises(ConfigError, match=r"holds a run already \(step-000002 of the warm start\); go on with it"):
        run(tmp_path)
    said: list[str] = []
    taken: list[int] = []
    run(tmp_path, resume=True, before=taken.append, said=said)
    assert "resuming from step-000002 of the warm start" in said
    assert len(taken) == 3 + sum(row["kind"] == "train" and row["used"] > 0 for row in read(whole / "metrics.jsonl"))
    assert_same(weights(tmp_path / "checkpoints"), weights(whole / "checkpoints"))
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [(r["step"], r["loss"]) for r in rows(whole)]
    assert not (tmp_path / "warm_start").exists()


def test_an_interrupt_lets_the_step_end_and_saves(whole: Path, tmp_path: Path) -> None:
    def interrupt(taken: int) -> None:
        if taken == 2:
            signal.raise_signal(signal.SIGTERM)

    said: list[str] = []
    stopped = run(tmp_path, before=interrupt, said=said)
    assert (stopped.stopping, stopped.warm, stopped.warm_steps, stopped.step) == (True, False, 3, 0)
    assert "stopping after this step; the signal again to stop at once" in said
    resumed = run(tmp_path, resume=True, said=said)
    assert (resumed.stopping, resumed.warm, resumed.warm_steps, resumed.step) == (False, True, 5, 1)
    assert_same(weights(tmp_path / "checkpoints"), weights(whole / "checkpoints"))


def test_an_interrupt_while_the_gate_looks_ends_at_once_and_loses_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> tuple[bool, str]:
        signal.raise_signal(signal.SIGINT)
        return True, ""

    whole_gate = warmstart.gate
    monkeypatch.setattr(warmstart, "gate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    monkeypatch.setattr(warmstart, "gate", whole_gate)
    said: list[str] = []
    run(tmp_path, resume=True, said=said)
    assert "resuming from step-000005 of the warm start" in said
    assert any(text.startswith("warm start, round 1: readable") for text in said)
    assert_same(weights(tmp_path / "checkpoints"), weights(whole / "checkpoints"))


@pytest.mark.parametrize(("at", "rounds"), [(7, [2]), (4, [1, 2])])
def test_a_round_whose_gate_did_not_open_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, rounds: list[int]
) -> None:
    _the_gate_says(monkeypatch, opens=False)
    monkeypatch.setattr(warmstart, "ROUNDS", 2)
    with pytest.raises(MemoryError):
        run(tmp_path, before=killed(at))
    said: list[str] = []
    with pytest.raises(ConfigError, match="did not reach what reinforcement learning needs in 2 rounds"):
        run(tmp_path, resume=True, said=said)
    assert [int(text.split(":")[0][-1]) for text in said if text.startswith("warm start, round")] == rounds
    assert [row["step"] for row in rows(tmp_path)] == list(range(10))
    with pytest.raises(ConfigError, match=r"in 2 rounds: readable"):
        run(tmp_path, resume=True)


def test_a_batch_follows_from_the_number_of_its_step() -> None:
    """And nothing comes again before an epoch is over."""
    data = [Datum([n], [0.0], [1.0], [True]) for n in range(11)]
    drawn = [[d.tokens[0] for d in warmstart.batch_of(data, 3, 7, number)] for number in range(6)]
    for epoch in (drawn[:3], drawn[3:]):
        assert len({n for batch in epoch for n in batch}) == 9
    assert drawn[:3] != drawn[3:]
    assert drawn[4] == [d.tokens[0] for d in warmstart.batch_of(data, 3, 7, 4)]
    assert drawn[0] != [d.tokens[0] for d in warmstart.batch_of(data, 3, 8, 0)]
    assert len(warmstart.batch_of(data, 100, 7, 5)) == 11
