"""Seconds of a step, beside the rates that were measured, and a cache that is too small, just right and large."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from toolorchestra.agents.engines.gpu_arithmetic import SHAPES, Shape
from toolorchestra.agents.engines.step_time import GPUS, Episodes, SimulatedServer, StepPlan, step_seconds

SHAPE = Shape.read(SHAPES["qwen3-8b"])
H200, H100 = GPUS[141.0], GPUS[80.0]
DRAWN = [Episodes().drawn(random.Random(seed)) for seed in range(40)]


@pytest.mark.parametrize(("sequences", "measured"), [(1, 132), (8, 973), (32, 3_142), (128, 5_750)])
def test_rates_are_those_that_were_measured_on_an_h200(sequences: int, measured: int) -> None:
    """docs/eight-billion.md: 512 tokens of prompt, 256 sampled by each."""
    seconds = SimulatedServer(SHAPE, H200, 10**9, 128)._token_seconds(sequences, sequences * 640)
    assert sequences / seconds == pytest.approx(measured, rel=0.1)


def test_training_takes_what_was_measured_on_an_h200() -> None:
    """16,384 tokens with a KL term at 5,977 a second."""
    long = Episodes(opening=16_000, sampled=10**9, most=384, result=0, context=16_385)
    made = step_seconds(StepPlan(SHAPE, H200, 8, 1, 1, 10**9, 8, lora=True, checkpointing=True, reference=True), long)
    assert made.training == pytest.approx(8 * 16_384 / 5_977, rel=0.05)


def test_a_cache_that_holds_all_prefills_each_token_once() -> None:
    made = SimulatedServer(SHAPE, H100, 10**9, 40).play(DRAWN, 0.0)
    assert made.prefilled == sum(given for turns in DRAWN for given, _ in turns)


def test_a_small_cache_costs_prefills_and_a_single_place_is_enough() -> None:
    large, small, least = (SimulatedServer(SHAPE, H100, room, 40).play(DRAWN, 0.0) for room in (10**9, 150_000, 32_000))
    assert large.prefilled < small.prefilled
    assert large.hits > small.hits
    assert large.seconds < small.seconds < least.seconds


def test_beside_the_training_nobody_waits_for_the_last_episode() -> None:
    plan = StepPlan(SHAPE, H100, 96, 6, 2, 356_842, 96, lora=True, checkpointing=True, reference=False)
    in_turns, ahead = step_seconds(plan), step_seconds(replace(plan, ahead=True))
    assert ahead.playing < in_turns.playing
    assert ahead.together < in_turns.together
    assert ahead.training == pytest.approx(in_turns.training, rel=0.1)
