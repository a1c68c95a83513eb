"""The command `budget`: memory, and words for what cannot be reckoned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toolorchestra.agents.commands import budget
from toolorchestra.agents.configuration.presets import MACHINES
from toolorchestra.agents.engines.gpu_arithmetic import SHAPES

Capture = pytest.CaptureFixture[str]
ON_A_GPU = [name for name, machine in MACHINES.items() if machine.gpus]


@pytest.mark.parametrize("name", ON_A_GPU)
def test_every_preset_for_a_gpu_fits_its_machine(name: str, capsys: Capture) -> None:
    assert budget.main(["--preset", name]) == 0
    said = capsys.readouterr().out
    assert f"| **together, of {MACHINES[name].gigabytes:.1f}** |" in said


def test_the_parts_of_the_default_are_told(capsys: Capture) -> None:
    assert budget.main([]) == 0
    said = capsys.readouterr().out
    assert "| trainer: weights | 16.4 | 16.4 | 16.4 |" in said
    assert "the sampler's cache holds 221,208 tokens, 32,000 are an episode's most\n" in said


def test_the_shape_is_that_of_a_named_model_or_of_a_config_json(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPES["qwen3-0.6b"]))
    tables = []
    for shape in ("qwen3-0.6b", str(path)):
        assert budget.main(["--preset", "small-gpu", "--model.rows", "4", "--gigabytes", "24", "--shape", shape]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert "| trainer: weights | 1.2 |" in tables[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gigabytes", "24"], r"GB more than the device's 24.0 GB; (.|\n)*\| \*\*together, of 24.0\*\* \|"),
        (["--preset", "tiny"], "--shape says which model it is about: a config.json, or one of: qwen3-8b"),
        (["--preset", "tiny", "--shape", "qwen3-8b"], "--gigabytes is above 0 and says how much memory"),
        (["--shape", "none.json"], r"none\.json is no file; name a model's config\.json"),
        (["--shape", "{tmp}/cut.json"], "is not JSON: .*; name a model's config.json, or one of: qwen3-8b, "),
        (["--shape", "{tmp}/list.json"], r"a JSON object expected, got \[1\]"),
    ],
)
def test_what_cannot_be_reckoned_is_said(words: list[str], says: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "cut.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    assert budget.main([word.replace("{tmp}", str(tmp_path)) for word in words]) == 2
    assert re.search(says, capsys.readouterr().err)
