"""`toolorchestra budget`: what the page about eight billion parameters says is what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ended
from tests.paths import REPOSITORY
from toolorchestra.agents.commands.budget import machines, main
from toolorchestra.agents.configuration.presets import MACHINES
from toolorchestra.agents.engines.gpu_arithmetic import SHAPES

Capture = pytest.CaptureFixture[str]
PAGE = (REPOSITORY / "docs" / "eight-billion.md").read_text(encoding="utf-8")


def test_the_table_of_machines_is_the_page_s() -> None:
    assert machines() in PAGE


@pytest.mark.parametrize("name", MACHINES)
def test_every_preset_for_a_gpu_fits_its_machine(name: str, capsys: Capture) -> None:
    assert main(["--preset", name]) == 0
    assert f"| **together, of {MACHINES[name].gigabytes:.1f}** |" in capsys.readouterr().out


def test_it_tells_memory_seconds_and_hours(capsys: Capture) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "| trainer: weights | 16.4 | 16.4 | 16.4 |" in said
    assert "the sampler's cache holds 221,208 tokens, 32,000 are an episode's most\n" in said
    assert main("--preset 8b-node --groups 2 --rollouts 6".split()) == 0
    said = capsys.readouterr().out
    assert "| trainer: weights | 8.2 | 8.2 | 8.2 |" in said  # half of it
    assert "a step of 12 episodes: " in said
    assert "$ an hour for each GPU" in said


def test_fewer_episodes_at_a_time_find_more_in_the_cache_and_take_longer(capsys: Capture) -> None:
    """Which is why the number of rows is not made to follow from the cache's size."""
    assert main("--preset 8b-h100 --model.rows 24".split()) == 0
    assert ", 4,972 s of playing (the cache has 58% of the prompts' tokens)" in capsys.readouterr().out
    assert "it finds 58 %, and a step's playing takes 4,972 s in place of 4,535" in PAGE


def test_half_as_wide_a_cache_holds_twice_as_much_and_plays_faster(capsys: Capture) -> None:
    """What the page says of it, beside the trainer and on servers."""
    assert main("--preset 8b-h100 --model.cache fp8".split()) == 0
    said = capsys.readouterr().out
    assert "the sampler's cache holds 442,417 tokens" in said
    assert ", 2,827 s of playing (" in said
    assert main("--preset 8b-node --model.cache fp8".split()) == 0
    assert ", 452 s of playing (" in capsys.readouterr().out
    assert "452 s in place of 577" in PAGE
    assert "2,827 s in place of 4,535" in PAGE


def test_a_machine_that_was_never_measured_is_told_memory_alone(capsys: Capture) -> None:
    assert main("--preset 8b-h100 --gigabytes 96".split()) == 0
    assert "a step of" not in capsys.readouterr().out


def test_the_shape_is_that_of_a_named_model_or_of_a_config_json(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPES["qwen3-0.6b"]))
    tables = []
    for shape in ("qwen3-0.6b", str(path)):
        assert main(["--preset", "small-gpu", "--model.rows", "4", "--gigabytes", "24", "--shape", shape]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert "| trainer: weights | 1.2 |" in tables[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--gigabytes 24", "GB more than the device's 24.0 GB; "),
        ("--gigabytes nan", "--gigabytes, the memory of the GPU, is a number above 0, got nan"),
        ("--gigabytes 1e400", "--gigabytes, the memory of the GPU, is a number above 0, got inf"),
        ("--model.dtype fp8", "no model.dtype 'fp8'; valid: bfloat16, float16, float32"),
        ("--preset tiny", "the preset's model has none that is known; name a model's config.json, or one of: qwen3-8b"),
        ("--shape none.json", "No such file or directory: 'none.json'; name a model's config.json"),
        ("--shape setup.cfg", "; name a model's config.json, or one of: qwen3-8b, "),
    ],
)
def test_what_cannot_be_reckoned_is_said(
    words: str, says: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert ended(main, words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"text_config": SHAPES["qwen3-8b"]}, "num_attention_heads, a whole number above 0, got None; give one of a"),
        ({**SHAPES["qwen3-8b"], "num_attention_heads": 0}, "num_attention_heads, a whole number above 0, got 0"),
        ({**SHAPES["qwen3-8b"], "hidden_size": -4}, "hidden_size, a whole number above 0, got -4"),
        ({**SHAPES["qwen3-8b"], "vocab_size": "many"}, "vocab_size, a whole number above 0, got 'many'"),
    ],
)
def test_a_config_json_that_is_no_language_models_is_refused(
    shape: dict[str, Any], says: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(shape))
    assert main(["--shape", str(tmp_path / "config.json")]) == 2
    assert f"a model's config.json has {says}" in capsys.readouterr().err
