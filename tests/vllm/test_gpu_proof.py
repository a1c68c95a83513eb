"""The parts of `make gpu-proof` that need vLLM, in tiny shapes on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.paths import REPOSITORY


def test_its_vllm_parts_run_beside_the_trainer(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "scripts" / "gpu_proof.py"), "--device", "cpu", "--tiny"]
    done = subprocess.run(
        [*command, "--only", "vllm", "run", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "vllm: measured" in done.stdout, done.stdout + done.stderr
    assert "run: measured" in done.stdout, done.stdout + done.stderr
    told = json.loads((tmp_path / "vllm.json").read_text())
    assert min(told[f"tokens_per_second_of_{count}"] for count in (1, 2)) > 0
    assert 0 < told["drift"] < 0.2, "bfloat16 and logits of 30: nothing is exact, and nothing is far"
    assert told["moved_after_four"] > 10 * told["drift"], "four steps have changed what the model says"
    assert abs(told["lost_after_four"]) < 0.1, "the adapter has reached vLLM"
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["reward_at_step_2"] == 0, "two supervised steps teach random weights nothing"
    assert (tmp_path / "run" / "checkpoints").is_dir()
