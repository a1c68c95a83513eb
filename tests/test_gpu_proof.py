"""`make gpu-proof` in tiny shapes on a CPU, so that it is known to work the day a GPU is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts import gpu_proof
from toolorchestra.agents.reports.gpu_page import gpu_page

WHOLE = ["--device", "cpu", "--tiny"]
MACHINE = {
    "device": "a GPU, 80 GB",
    "python": "3.12",
    "torch": "2.13",
    "transformers": "5",
    "cuda": "13",
    "peak": 100.0,
}
STEP = {
    "length": 8192,
    "measured_bytes": 30e9,
    "predicted_bytes": 33e9,
    "seconds": 4.0,
    "tokens": 16384,
    "tflops": 40.0,
}


def test_every_part_runs_and_is_on_the_page(tmp_path: Path) -> None:
    """All of them in one call; a second call measures nothing."""
    assert gpu_proof.main([*WHOLE, "--out", str(tmp_path)]) == 0
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in gpu_proof.PARTS}
    for name in ("steps-8k", "steps-16k", "steps-32k"):
        assert found[name]["seconds"] > 0
        assert found[name]["tokens"] == 2 * found[name]["length"]
    assert found["steps-32k"]["length"] == 4 * found["steps-8k"]["length"]
    assert all(rate > 0 for rate in found["sampler"]["rates"].values())
    assert found["handover"]["bytes"] > 0
    assert [row["step"] for row in found["learn"]["curve"]] == [0, 1, 2]
    page = (tmp_path / "gpu.md").read_text()
    assert "in tiny shapes: these figures say that the code runs, no more" in page
    assert "Not measured" not in page
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
        "if name == 'sampler': sys.exit('out of memory')\n"
        "if name == 'learn': time.sleep(60)\n"
        "open(f'{out}/{name}.json', 'w').write(json.dumps({'seconds': 1, 'bytes': 2e9, 'in_memory': 1}))\n"
    )
    monkeypatch.setattr(gpu_proof, "__file__", str(script))
    monkeypatch.setattr(gpu_proof, "PART_SECONDS", 3)
    words = [*WHOLE, "--out", str(tmp_path / "out"), "--only", "sampler", "learn", "handover"]
    assert gpu_proof.main(words) == 1
    said = capsys.readouterr().out
    assert "sampler: NOT MEASURED: out of memory" in said
    assert "learn: NOT MEASURED" in said
    assert "handover: measured" in said
    page = (tmp_path / "out" / "gpu.md").read_text()
    assert "2.00 GB written to memory (/dev/shm) in 1.00 s." in page
    assert "**Not measured:** steps-8k, steps-16k, steps-32k, sampler, vllm, learn." in page


def test_the_page_sets_the_measured_peak_beside_the_budget() -> None:
    found: dict[str, Any] = {
        "steps-8k": STEP,
        "vllm": {"left_out": "vLLM is not installed"},
        "learn": {"curve": [{"step": 0, "reward": 0.5}, {"step": 20, "reward": 0.75}], "seconds": 100.0},
    }
    page = gpu_page(MACHINE, found, list(gpu_proof.PARTS))
    assert "| 8,192 | 30.00 | 33.00 | 4.00 | 4,096 | 40 | 40% |" in page
    assert "vLLM is not installed." in page
    assert "| 20 | 0.750 |" in page
    assert "python 3.12, torch 2.13, transformers 5, cuda 13." in page


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "torch sees no GPU here; --device cpu --tiny tries the code without one"),
        (["--device", "cpu"], "the full shapes are for a GPU, and the device is cpu; add --tiny"),
        ([*WHOLE, "--page", "gpu.md"], "--page is for figures of full shapes"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_proof.main(words) == 2
    assert says in capsys.readouterr().err


def test_the_presets_real_shapes_are_what_is_measured(tmp_path: Path) -> None:
    where = gpu_proof.Where("cuda", tiny=False, out=tmp_path)
    assert where.large["num_hidden_layers"] == 36
    config = gpu_proof.learning(where)
    assert (config.model.device, config.environments[0].env_id) == ("cuda", "ToolOrchestra/HLE-v0")
