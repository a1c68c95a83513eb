"""`make gpu-proof` in tiny shapes on a CPU, so that it is known to work the day a GPU is there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from scripts import gpu_proof
from tests.paths import REPOSITORY

WHOLE = ["--device", "cpu", "--tiny"]


def test_every_part_runs_and_is_in_the_table(tmp_path: Path) -> None:
    """All of them in one call; a second call measures nothing."""
    assert gpu_proof.main([*WHOLE, "--out", str(tmp_path)]) == 0
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in gpu_proof.PARTS}
    for name in ("steps-8k", "steps-16k", "steps-32k", "steps-64k"):
        assert found[name]["seconds"] > 0
        assert found[name]["budget_gb"] > 0
    assert found["steps-32k"]["length"] == 4 * found["steps-8k"]["length"]
    assert {"torch_seconds", "fused_seconds", "prompt_once_seconds", "prompt_each_seconds"} < set(found["kernels"])
    assert {"reward_at_step_0", "reward_at_step_1", "reward_at_step_2"} < set(found["learn"])
    page = (tmp_path / "gpu.md").read_text()
    assert "in tiny shapes: these figures say that the code runs, no more" in page
    assert "not measured" not in page
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert gpu_proof.main([*WHOLE, "--out", str(tmp_path)]) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == before


def test_a_part_that_breaks_is_told_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by its own error, one because it takes too long."""
    script = tmp_path / "part.py"
    script.write_text(
        "import json, sys, time\nname, out = sys.argv[2], sys.argv[6]\n"
        "if name == 'steps-8k': sys.exit('out of memory')\n"
        "if name == 'learn': time.sleep(60)\n"
        "open(f'{out}/{name}.json', 'w').write(json.dumps({'device': 'cpu', 'tiny': True, 'seconds': 1.5}))\n"
    )
    monkeypatch.setattr(gpu_proof, "__file__", str(script))
    monkeypatch.setattr(gpu_proof, "PART_SECONDS", 3)
    words = [*WHOLE, "--out", str(tmp_path / "out"), "--only", "steps-8k", "learn", "vllm"]
    assert gpu_proof.main(words) == 1
    said = capsys.readouterr().out
    assert "steps-8k: NOT MEASURED: out of memory" in said
    assert "learn: NOT MEASURED" in said
    assert "vllm: measured" in said
    page = (tmp_path / "out" / "gpu.md").read_text()
    assert "| vllm | seconds | 1.5 |" in page
    assert "| learn | left_out | not measured |" in page


@pytest.mark.parametrize("elsewhere", [{"device": "NVIDIA H100", "tiny": True}, {"device": "cpu", "tiny": False}, {}])
def test_figures_of_another_place_are_not_told_as_this_one_s(
    elsewhere: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stay, and another folder is asked for."""
    (tmp_path / "vllm.json").write_text(json.dumps({**elsewhere, "seconds": 1.5}))
    assert gpu_proof.main([*WHOLE, "--out", str(tmp_path), "--only", "vllm"]) == 2
    assert "another device or of other shapes (vllm); name another --out" in capsys.readouterr().out
    assert json.loads((tmp_path / "vllm.json").read_text())["seconds"] == 1.5


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
@pytest.mark.parametrize("words", [["--device", "cpu"]])
def test_full_shapes_without_a_gpu_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_proof.main(words) == 2
    assert "the full shapes are for a GPU" in capsys.readouterr().err


def test_make_keeps_the_path_of_a_machine_s_own_packages() -> None:
    """There they may lie in a folder that PYTHONPATH names."""
    environment = {**os.environ, "PYTHONPATH": "/their/packages"}
    words = ["make", "-s", "gpu-proof", "PYTHON=printenv PYTHONPATH; :"]
    made = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout == "src:/their/packages\n"
