"""What becomes training data: whose tokens count, how much, and on which scale."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolorchestra.agents.rollouts.rewards import AdvantageParams, Measure
from toolorchestra.agents.rollouts.tokens import Sequences
from toolorchestra.agents.rollouts.trajectory import Group, Trajectory
from toolorchestra.agents.training.training_batch import build
from toolorchestra.envs.base.preference import Preference

PLAIN = AdvantageParams(least_spread=0.0, by_deviation=False)
RIGHT, WRONG = Measure(1.0, 0.02, 1.0, {}), Measure(0.0, 0.01, 1.0, {})


def rollout(measure: Measure) -> Trajectory:
    """Two given tokens, then two sampled ones."""
    said = Sequences([7, 8, 9, 2], [0.0, 0.0, -0.5, -0.25], [False, False, True, True])
    wish = Preference(outcome=1.0, usd=1.0)
    return Trajectory("HLE-v0", "t", 0, "paper-2025-11", wish, (), [said], measure, 1)


def group(*measures: Measure, anchors: tuple[Measure, ...] = ()) -> Group:
    return Group([rollout(measure) for measure in measures], anchors)


def test_only_sampled_tokens_have_an_advantage() -> None:
    made = build([group(RIGHT, WRONG)], PLAIN)
    assert [datum.advantages for datum in made.data] == [[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, -0.5, -0.5]]
    assert {(tuple(datum.tokens), tuple(datum.logprobs)) for datum in made.data} == {
        ((7, 8, 9, 2), (0.0, 0.0, -0.5, -0.25))
    }


def test_a_groups_rewards_are_on_the_scale_of_its_anchors() -> None:
    near = (RIGHT, replace(RIGHT, usd=0.03))
    assert [datum.advantages[-1] for datum in build([group(*near)], PLAIN).data] == [0.5, -0.5]
    anchors = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    made = build([group(*near, anchors=anchors)], PLAIN)
    assert [datum.advantages[-1] for datum in made.data] == pytest.approx([0.05, -0.05])
    assert [len(rewards) for rewards in made.rewards] == [2]


def test_what_is_left_out_is_counted() -> None:
    broken = replace(WRONG, failed=True)
    made = build([group(RIGHT, WRONG, broken), group(RIGHT, RIGHT), group(broken, broken)], PLAIN)
    assert (made.used, made.flat_groups, made.failed, len(made.data)) == (2, 2, 3, 2)
    assert [[reward is None for reward in rewards] for rewards in made.rewards] == [
        [False, False, True],
        [False, False],
        [True, True],
    ]
