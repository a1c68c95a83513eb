"""Rollouts in several processes: the same weights, the same order, the same again, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.engines.test_guarded_processes import ended
from tests.agents.training.test_trainer import COLD, SMALL, run, weights
from tests.agents.training.trained_models import same
from tests.support.toy import AdderSource
from toolorchestra.agents.commands.train import trained
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.local import LocalEngine
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Job, factory_of
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.trainer import rollout_params
from toolorchestra.agents.training.workers import SharedRollouts, Workers
from toolorchestra.envs.base.errors import ConfigError

TWO = replace(COLD, model=ModelConfig(hidden=32, processes=2), loss=LossParams(kl_weight=0.1, entropy_weight=0.01))


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[LocalEngine, SharedRollouts]]:
    engine, chat = build(TWO)
    made = SharedRollouts(engine, chat, rollout_params(TWO), Workers(TWO, 1))
    yield engine, made
    made.close()
    assert not multiprocessing.active_children()


def jobs(count: int) -> list[Job]:
    mix = TWO.environments[0]
    made = factory_of(mix.env_id, **mix.arguments)
    return [Job(mix.env_id, made, seed) for seed in range(count)]


def sampled(trajectory: Trajectory) -> list[Datum]:
    return [s.datum(1.0) for s in trajectory.sequences]


def test_every_process_samples_from_the_weights_of_now(shared: tuple[LocalEngine, SharedRollouts]) -> None:
    """Before and after a step that changes them, what any of them sampled has the trainer's log-probabilities."""
    engine, rollouts = shared
    for _ in range(2):
        made = rollouts.collect(jobs(6))
        assert [t.seed for t in made] == list(range(6))
        data = [d for t in made for d in sampled(t)]
        for datum, expected in zip(data, engine.logprobs(data), strict=True):
            picked = [p for p, a in zip(datum.logprobs, datum.mask, strict=True) if a]
            assert picked == pytest.approx(expected, abs=1e-4)
        engine.train(data, LossParams("cross_entropy"), 1e-2)


def test_what_breaks_there_is_raised_here(shared: tuple[LocalEngine, SharedRollouts]) -> None:
    _, rollouts = shared
    wrong = replace(jobs(1)[0], options={"prices": "no-such-sheet"})
    with pytest.raises(RuntimeError, match=r"(?s)rollout process 1 broke.*no-such-sheet"):
        rollouts.collect([*jobs(1), wrong])
    assert len(rollouts.collect(jobs(2))) == 2


def test_an_answer_that_nobody_waited_for_is_taken_before_the_next_share(
    shared: tuple[LocalEngine, SharedRollouts],
) -> None:
    """Share and answer are each more than a pipe holds: who is still sending one does not read the other."""
    _, rollouts = shared
    (child,) = [c for c in multiprocessing.active_children() if c.name == "rollouts-1"]
    wrong = replace(jobs(1)[0], options={"prices": "no-such-sheet"})
    large = replace(jobs(1)[0], env_id="x" * 2_000_000)
    waited = threading.Timer(60, child.kill)  # a wait without an end becomes an error
    waited.start()
    try:
        with pytest.raises(ConfigError, match="no-such-sheet"):
            rollouts.collect([wrong, large])
        assert len(rollouts.collect([*jobs(1), large])) == 2
    finally:
        waited.cancel()


def test_a_source_that_only_this_process_holds_is_refused(shared: tuple[LocalEngine, SharedRollouts]) -> None:
    from toolorchestra.envs.factory import factory

    held = Job("Tests/Held-v0", factory(AdderSource()), 0)
    with pytest.raises(TypeError, match=r"named by its path .*model.processes=1$"):
        shared[1].collect([held, held])


def test_a_run_with_two_processes_resumes_exactly(tmp_path: Path) -> None:
    config = replace(SMALL, model=TWO.model)
    whole = run(tmp_path / "whole", config)
    whole.rollouts.close()
    expected = weights(whole)
    shutil.copytree(tmp_path / "whole", tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints" / "step-000002")
    resumed = run(tmp_path / "copy", config, resume=True)
    resumed.rollouts.close()
    assert same(expected, weights(resumed))


@pytest.mark.parametrize("file", ["metrics.jsonl", "sessions.jsonl"])
def test_a_run_that_cannot_open_leaves_no_process(tmp_path: Path, file: str) -> None:
    (tmp_path / file).mkdir()
    before = set(multiprocessing.active_children())
    with pytest.raises(IsADirectoryError):
        run(tmp_path, TWO)
    assert set(multiprocessing.active_children()) <= before


def test_a_report_that_cannot_be_written_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "report").touch()
    before = set(multiprocessing.active_children())
    with pytest.raises(FileExistsError):
        trained(replace(TWO, groups=1, rollouts=2, evaluation_tasks=1), tmp_path, resume=False)
    assert set(multiprocessing.active_children()) <= before


def test_an_optimiser_step_is_shared_and_its_gradient_is_the_same(
    shared: tuple[LocalEngine, SharedRollouts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the batches are another process's: the gradient is that of a step that one process takes, what a KL term
    refers to included, which the other process was not there to see."""
    engine, rollouts = shared
    alone, _ = build(replace(TWO, model=replace(TWO.model, processes=1)))
    workers, data = rollouts._workers, [d for t in rollouts.collect(jobs(9)) for d in sampled(t)]
    alone.adopt(engine.snapshot())
    for one in (engine, alone):
        one.take_reference()
    engine.train(data, LossParams("cross_entropy"), 1e-2)
    alone.adopt(engine.snapshot())
    begun: list[tuple[str, int]] = []
    begin = workers.begin

    def counted(name: str, parts: Any) -> None:
        begun.append((name, len(parts[0][1])))
        begin(name, parts)

    monkeypatch.setattr(workers, "begin", counted)
    engine.take_help(workers)
    few = [one.train(data[:1], TWO.loss, 1e-3) for one in (engine, alone)]
    alone.adopt(engine.snapshot())
    told = [one.train(data, TWO.loss, 1e-3) for one in (engine, alone)]
    engine.take_help(None)
    assert begun == [("gradient", 0), ("gradient", 1)]
    assert few[0] == pytest.approx(few[1], rel=1e-4, abs=1e-6)  # also where there is no batch for the other process
    assert told[0]["kl_reference"] > 1e-3
    for name in ("loss", "kl_reference", "entropy", "tokens", "mismatch", "gradient_norm"):
        assert told[0][name] == pytest.approx(told[1][name], rel=1e-4, abs=1e-6)
    for mine, its in zip(engine.trained, alone.trained, strict=True):
        assert torch.allclose(mine.grad, its.grad, rtol=1e-4, atol=1e-6)


def test_sigterm_to_the_whole_group_ends_no_other_process(shared: tuple[LocalEngine, SharedRollouts]) -> None:
    """As timeout, systemd and SLURM send it: the run ends its step first."""
    _, rollouts = shared
    (child,) = [c for c in multiprocessing.active_children() if c.name == "rollouts-1"]
    for _ in range(2):
        os.kill(child.pid or 0, signal.SIGTERM)
        assert len(rollouts.collect(jobs(2))) == 2
    # What it starts in turn ends by SIGTERM.
    fields = dict(line.split(":\t") for line in Path(f"/proc/{child.pid}/status").read_text().splitlines())
    for mask in ("SigBlk", "SigIgn"):
        assert not int(fields[mask], 16) >> (signal.SIGTERM - 1) & 1


OWNER = """
import sys, time
from dataclasses import replace
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.training.demonstrations import _pool
from toolorchestra.agents.training.workers import Workers, deaf_children
config = replace(preset("tiny"), model=ModelConfig(hidden=8, processes=2))
workers = Workers(config, 1)
if sys.argv[1] == "ends":
    print(workers.processes[0].pid, flush=True)
    sys.exit()
with _pool(config) as pool:
    with deaf_children():
        pool.submit(time.sleep, 60)
    print(workers.processes[0].pid, *pool._processes, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_no_process_outlives_the_one_that_shares_out(how: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, how], stdin=-1, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    others = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(others) == (2 if how == "killed" else 1)
    if how == "killed":
        owner.kill()
    owner.communicate(timeout=60)
    assert all(ended(pid) for pid in others)


def test_a_process_that_is_gone_is_said_and_the_rest_ends(shared: tuple[LocalEngine, SharedRollouts]) -> None:
    """The last test of the module, since the process is gone afterwards."""
    _, rollouts = shared
    (child,) = [c for c in multiprocessing.active_children() if c.name == "rollouts-1"]
    os.kill(child.pid or 0, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"rollout process 1 is gone \(exit code -9"):
        rollouts.collect(jobs(2))
    rollouts.close()
    assert not child.is_alive()
