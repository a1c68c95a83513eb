"""A training run that is killed and resumed: the same weights, and no group of rollouts lost or learnt from twice."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.agents.training.trained_models import kept, same
from tests.command_line import TOOLORCHESTRA

STEPS, GROUPS = 6, 4
SETTINGS = (
    f"--steps {STEPS} --groups {GROUPS} --rollouts 4 --save-every 1 --evaluate-every 3 --evaluation-tasks 4 "
    "--warm-start.steps 150 --warm-start.batch 16 --warm-start.demonstrations 300 --warm-start.gate 0 "
    "--advantage.unreadable kept --model.hidden 32 --model.processes 1 --model.threads 1"
)


def command(folder: Path, staleness: int) -> list[str]:
    fixed = ["train", "--no-report", "--resume", "--out", str(folder), "--max-staleness", str(staleness)]
    return [*TOOLORCHESTRA, *fixed, *SETTINGS.split()]


def finish(folder: Path, staleness: int) -> None:
    done = subprocess.run(command(folder, staleness), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def finish_after_a_kill(folder: Path, staleness: int) -> None:
    """Kill -9 once two steps are in the log, so in the middle of a later one, then resume to the end."""
    run = subprocess.Popen(command(folder, staleness), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(steps_of(folder)) < 2:
        assert run.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < until, "the run took no step"
        time.sleep(0.02)
    run.kill()
    run.wait()
    finish(folder, staleness)


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the log about steps of reinforcement learning."""
    log = folder / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.is_file() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if row["kind"] == "train"]


def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    finish(tmp_path / "whole", 0)
    assert any(row["used"] for row in steps_of(tmp_path / "whole")), "no optimiser step was taken: it proves nothing"
    finish_after_a_kill(tmp_path / "killed", 0)
    assert same(kept(tmp_path / "whole")["weights"], kept(tmp_path / "killed")["weights"])


def test_a_killed_run_with_rollouts_beside_it_takes_each_group_once(tmp_path: Path) -> None:
    """Which weights sampled what depends on the clock then, so weights are not compared."""
    finish_after_a_kill(tmp_path, 2)
    rows = steps_of(tmp_path)
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert sorted(number for row in rows for number in row["groups_taken"]) == list(range(STEPS * GROUPS))
