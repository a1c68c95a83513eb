"""A run under torchrun: a process that is killed ends it with a sentence, and it is gone on with by one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.training.test_killed_runs import steps_of
from tests.agents.training.test_trainer import COLD
from tests.paths import REPOSITORY
from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.training.build import check_processes
from toolorchestra.envs.base.errors import ConfigError

SETTINGS = (
    "--env tests.agents.training.even_source:Tests/Even-v0 max_turns=2 preference=accurate validation=test "
    "--groups 4 --rollouts 8 --steps 400 --expected-outcome False --save-every 1 --evaluate-every 400 "
    "--evaluation-tasks 2 --warm-start.steps 0 --model.hidden 32 --model.processes 1 --model.optimizer adamw "
    "--updates 1 --advantage.unreadable kept --baselines --no-report"
)
NARROW = ModelConfig(dtype="bfloat16", lora_rank=2)
TRAIN = ["scripts/train_agent.py", *SETTINGS.split()]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "OMP_NUM_THREADS": "1"}


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rank_of(pid: int) -> str:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((pair[5:].decode() for pair in pairs if pair.startswith(b"RANK=")), "")


def test_a_killed_rank_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with (tmp_path / "said.txt").open("w+") as out:
        run = subprocess.Popen(
            [*torchrun, *TRAIN, "--out", str(folder)],
            cwd=REPOSITORY, env=ENVIRONMENT, stdout=out, stderr=out,
        )  # fmt: skip
        try:
            until = time.monotonic() + 250
            while len(steps_of(folder)) < 2:
                assert run.poll() is None, out.seek(0) or out.read()
                assert time.monotonic() < until, "the run took no step"
                time.sleep(0.1)
            (second,) = [pid for pid in children(run.pid) if rank_of(pid) == "1"]
            os.kill(second, signal.SIGKILL)
            run.wait(60)
        finally:
            run.terminate()
        out.seek(0)
        said = out.read()
    assert run.returncode != 0
    assert "in 2 processes, each with a part of it" in said
    assert "rank 1 of the 2 processes that train is gone" in said
    assert said.count("Traceback") == 1, said  # torchrun's own
    taken = len(steps_of(folder))
    shorter = [word if word != "400" else str(taken + 1) for word in TRAIN]
    alone = [sys.executable, *shorter, "--out", str(folder), "--resume"]
    done = subprocess.run(alone, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming from step-" in done.stdout
    assert [row["step"] for row in steps_of(folder)] == list(range(taken + 1))
    assert any(row["used"] for row in steps_of(folder)[:taken]), "no optimiser step was taken: it proves nothing"


@pytest.mark.parametrize(
    ("config", "nodes", "said"),
    [
        (COLD, 2, "not all of them on one machine; beyond one, SkyRL trains"),
        (preset("small-gpu"), 1, r"model\.sampler=vllm samples within one: start servers"),
        (replace(COLD, model=NARROW), 1, r"model\.sampler=local samples within one: start servers"),
        (preset("tiny"), 1, r"each holds a part of the weights: set model\.processes=1 and model\.optimizer=adamw"),
        (replace(COLD, model=ModelConfig(kernels="compiled")), 1, "blocks whose weights are in parts are not compiled"),
    ],
)  # fmt: skip
def test_what_several_processes_cannot_do_is_refused(
    config: TrainConfig, nodes: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_processes(config)
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": str(4 // nodes)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="torchrun started 4 processes, and " + said):
        check_processes(config)
