"""The arithmetic of a step, against numbers made by hand."""

from __future__ import annotations

import re

import pytest

from toolorchestra.agents.commands import step_seconds as command
from toolorchestra.agents.configuration.presets import MACHINES
from toolorchestra.agents.engines.memory import Shape
from toolorchestra.agents.engines.shapes import SHAPES
from toolorchestra.agents.engines.step_time import StepPlan, step_seconds, training_operations

Capture = pytest.CaptureFixture[str]
SHAPE = Shape.read(SHAPES["qwen3-8b"])
MULTIPLIED = SHAPE.parameters - 151_936 * 4096
"""Weights without the embeddings, which are looked up."""


def test_full_training_takes_six_operations_a_weight_and_an_adapter_four() -> None:
    assert training_operations(SHAPE, 0, lora=False) == 6 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True) == 4 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True, checkpointing=True) == 6 * MULTIPLIED
    assert training_operations(SHAPE, 0, lora=True, checkpointing=True, reference=True) == 8 * MULTIPLIED


def test_attention_grows_with_the_length() -> None:
    short, long = (training_operations(SHAPE, length, lora=True) for length in (10_000, 20_000))
    assert long - short == 3 * 4 * 36 * 4096 * 5_000


def test_a_step_is_its_parts() -> None:
    plan = StepPlan(SHAPE, 128, 1_000, 8_000, 1_000, 2_000.0, 4, 2, 1_000.0, 0.4, lora_rank=64)
    made = step_seconds(plan)
    assert made.rollouts == 128 * 8_000 / 8_000
    assert made.training == pytest.approx(128 * 10_000 * training_operations(SHAPE, 10_000, lora=True) / 0.8e15)
    assert made.together == made.rollouts + made.training + made.handover


@pytest.mark.parametrize(
    ("rank", "drops", "gigabytes"),
    [
        (0, False, 4 * SHAPE.parameters / 1e9),  # all weights, written and read
        (64, False, 8 * SHAPE.adapter_parameters(64) / 1e9),
        (64, True, 8 * SHAPE.adapter_parameters(64) / 1e9 + 2 * SHAPE.parameters / 1e9),
    ],
)
def test_what_is_handed_over_is_what_changed_and_what_was_dropped(rank: int, drops: bool, gigabytes: float) -> None:
    plan = StepPlan(SHAPE, 1, 1, 1, 1, 1.0, 1, 1, 1.0, 1.0, lora_rank=rank, drops_weights=drops)
    assert step_seconds(plan).handover == pytest.approx(gigabytes / 3)


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if machine.gpus])
def test_every_preset_for_a_gpu_has_its_seconds(name: str, capsys: Capture) -> None:
    assert command.main(["--preset", name]) == 0
    said = capsys.readouterr().out
    assert said.startswith(MACHINES[name].about)
    low, high = map(int, re.findall(r"\| together \| (\d+) to (\d+) \|", said)[0])
    assert low < high


def test_rates_of_ones_own_leave_no_range(capsys: Capture) -> None:
    assert command.main(["--sampled-per-second", "2000", "--utilisation", "0.4"]) == 0
    assert re.search(r"\| rollouts \| 512 \|", capsys.readouterr().out)


def test_what_cannot_be_reckoned_is_said(capsys: Capture) -> None:
    for words, says in (
        (["--preset", "tiny"], "the preset 'tiny' is for a CPU, and these are figures of GPUs"),
        (["--utilisation", "1.5"], "--utilisation must be a number from 0 to 1"),
        (["--opening-tokens", "0"], "--opening_tokens must be a"),
    ):
        assert command.main(words) == 2
        assert says in capsys.readouterr().err
