"""Rollouts as SkyRL's samples and batch, which need no SkyRL to be made."""

from __future__ import annotations

from dataclasses import replace
from importlib import util

import pytest

from toolorchestra.agents.adapters.skyrl_samples import Played, batch_of, samples_of
from toolorchestra.agents.rollouts.grpo import Measure, TokenSequence, Trajectory
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import ACCURATE

FIRST = TokenSequence(
    [1, 2, 3, 4, 5, 6, 7], [0, 0, -0.3, -0.4, 0, -0.6, 0], [False, False, True, True, False, True, False]
)
SECOND = TokenSequence([8, 9], [0, -0.9], [False, True])
MADE = Trajectory(
    "toy", "t", 1, "sheet", ACCURATE, (), [FIRST], Measure(1.0, 0.5, 2.0, {}), 2, bill={"usd": 0.5, "usd_by_role": {}}
)


def test_one_sample_from_the_first_sampled_token_to_the_last() -> None:
    (one,) = samples_of(MADE, "one", 0)
    assert one == ([1, 2], [3, 4, 5, 6], [1, 1, 0, 1], [-0.3, -0.4, 0, -0.6])


def test_turns_have_all_before_them_for_a_prompt() -> None:
    made = samples_of(replace(MADE, sequences=[FIRST, SECOND]), "turns", 0)
    assert [(s.prompt, s.response) for s in made] == [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), ([8], [9])]
    assert len(samples_of(replace(MADE, sequences=[FIRST, SECOND]), "merged", 0)) == 2


def test_a_past_that_was_rewritten_is_no_single_sample() -> None:
    with pytest.raises(ConfigError, match=r"task t 1 times.*step_wise_trajectories=true"):
        samples_of(replace(MADE, sequences=[FIRST, SECOND]), "one", 0)


@pytest.mark.parametrize("sequences", [[], [TokenSequence([5], [0.0], [False])]])
def test_of_nothing_sampled_a_masked_token_is_left(sequences: list[TokenSequence]) -> None:
    (one,) = samples_of(replace(MADE, sequences=sequences), "merged", 9)
    assert (one.response, one.mask, one.logprobs) == ([9], [0], [0.0])
    assert one.prompt == (sequences[0].tokens if sequences else [9])


def test_a_batch_masks_what_failed_and_rewards_the_last_token() -> None:
    failed = replace(MADE, measure=replace(MADE.measure, failed=True), sequences=[FIRST, SECOND])
    played = [Played(replace(MADE, sequences=[FIRST, SECOND]), "toy", 3.0, 1.0), Played(failed, "toy", 4.0, 1.0)]
    made = batch_of(played, ["a", "b"], "merged", 0, scored=True)
    assert made["rewards"] == [[0.0] * 4, [1.0], [0.0] * 4, [0.0]]
    assert made["loss_masks"] == [[1, 1, 0, 1], [1], [0] * 4, [0]]
    assert made["is_last_step"] == [False, True, False, True]
    assert made["trajectory_ids"] == ["a", "a", "b", "b"]
    assert made["trajectory_time_splits"] == {"llm": [1.0] * 4, "env": [2.0, 2.0, 3.0, 3.0]}
    figures = made["rollout_metrics"]
    assert (figures["environment/toy/accuracy_mean"], figures["environment/toy/failed"]) == (1.0, 1.0)
    assert batch_of(played, ["a", "b"], "merged", 0, scored=False)["rollout_logprobs"] is None


@pytest.mark.skipif(util.find_spec("skyrl") is not None, reason="skyrl is installed here: see tests/integrations")
def test_without_skyrl_it_is_said_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"skyrl is not installed here.*make test-skyrl"):
        __import__("toolorchestra.agents.adapters.skyrl")
