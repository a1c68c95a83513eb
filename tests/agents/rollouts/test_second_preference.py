"""A group's plays as another user would count them: what is shown, how often each counts, and what is left out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.agents.rollouts.test_grpo import RIGHT, WRONG, group_of
from toolorchestra.agents.algorithms.leave_one_out import SCALE, LeaveOneOut
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Sample, SamplingParams
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group, Grpo, TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat, Job, RolloutParams, Rollouts, siblings
from toolorchestra.agents.rollouts.second_preference import LEAST, MOST, for_others, second_batch, weighed
from toolorchestra.envs.base.preference import Preference

CHAT = Chat(load_tokenizer())
MIX = EnvMix("ToolOrchestra/HLE-v0", arguments={"style": "brief", "shown_characters": 0, "vary": ["tools", "prices"]})
PARAMS = AdvantageParams(least_spread=0.0)
WORDINGS = {"HLE-v0": training(MIX).settings.wording}


class SaysOneWord:
    """Says what nobody can read, until its turns are over."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        del prompt, params, session
        ids = [*CHAT.encode("hm"), CHAT.stop]
        return Sample(ids, [-0.5] * len(ids), True)

    def release(self, session: str) -> None:
        del session


def played(seed: int) -> Group:
    job = Job(MIX.env_id, training(MIX), seed)
    made = Rollouts(SaysOneWord(), CHAT, RolloutParams(max_context=400)).collect(siblings(job, 2))
    return Group(made, label="HLE-v0")


def test_another_user_is_shown_what_they_would_be_shown_had_they_asked() -> None:
    """Token by token, as an episode of the same task begins under that preference."""
    groups = [played(seed) for seed in range(12)]
    others = for_others(groups, CHAT, WORDINGS, 1_000, random.Random(3))
    assert len(others) == len(groups)
    for group, other in zip(groups, others, strict=True):
        now, before = other.trajectories[0], group.trajectories[0]
        assert now.preference.weights() != before.preference.weights()
        opening = training(MIX).start(now.seed, {"preference": now.preference}).episode.observation
        (sequence,), (played_one,) = now.sequences, before.sequences
        begins = sequence.sampled.index(True)
        assert sequence.tokens[:begins] == CHAT.encode(CHAT.render(opening))
        assert sequence.tokens[begins:] == played_one.tokens[played_one.sampled.index(True) :]
        assert [one.measure for one in other.trajectories] == [one.measure for one in group.trajectories]


def test_no_other_user_where_preferences_are_not_sampled_or_not_said_or_where_it_would_be_too_long() -> None:
    group = played(0)
    rng = random.Random(0)
    assert for_others([group], CHAT, {}, 1_000, rng) == []
    assert for_others([group], CHAT, WORDINGS, len(group.trajectories[0].sequences[0].tokens) // 2, rng) == []
    silent = [replace(t, preference=Preference(kind="none")) for t in group.trajectories]
    assert for_others([replace(group, trajectories=silent)], CHAT, WORDINGS, 1_000, rng) == []
    elsewhere = [replace(t, preference=replace(t.preference, sentence="nobody said so")) for t in group.trajectories]
    assert for_others([replace(group, trajectories=elsewhere)], CHAT, WORDINGS, 1_000, rng) == []


# -- how often a play counts -------------------------------------------------------------------------------------------

COSTS = (0.0, 0.0, 0.05, 0.1)
"""Of four right plays; the first is played half of the time, the other two a quarter each."""
SAMPLED, NOW = (0.5, 0.5, 0.25, 0.25), (0.25, 0.25, 0.3, 0.45)
"""Chances of the three choices when they were sampled, and for the other user, who has the first half as often."""


def plays() -> Group:
    made = group_of(
        *(replace(RIGHT, usd=usd) for usd in COSTS), baselines=(replace(WRONG, usd=0.0), replace(WRONG, usd=0.1))
    )
    sequences = [TokenSequence([1, 2], [0.0, math.log(chance)], [False, True]) for chance in SAMPLED]
    cheap = Preference(usd=1.0)
    kept = [replace(t, sequences=[s], preference=cheap) for t, s in zip(made.trajectories, sequences, strict=True)]
    return replace(made, trajectories=kept)


def rescore(data: Sequence[Datum]) -> list[list[float]]:
    assert [list(d.mask) for d in data] == [[False, True]] * len(COSTS)
    return [[math.log(chance)] for chance in NOW]


def test_plays_count_as_often_as_the_other_user_has_them_played() -> None:
    """Against the mean over that user's own choices, by arithmetic."""
    rewards = [1 + (0.1 - usd) / 0.1 for usd in COSTS]
    theirs = 0.25 * 2.0 + 0.3 * rewards[2] + 0.45 * rewards[3]
    made = second_batch([plays()], LeaveOneOut(PARAMS), rescore)
    weights = [now / then for now, then in zip(NOW, SAMPLED, strict=True)]
    expected = [
        weight * SCALE * (4 / 3) * (reward - theirs) / 2.0 for weight, reward in zip(weights, rewards, strict=True)
    ]
    assert [d.advantages[1] for d in made.data] == pytest.approx(expected)
    assert sum(d.advantages[1] for d in made.data) == pytest.approx(0.0)
    assert [d.logprobs[1] for d in made.data] == pytest.approx([math.log(chance) for chance in NOW])
    assert made.samples == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights))


def test_a_play_counts_so_many_times_at_most() -> None:
    (group,) = [plays()]
    made = second_batch([group], Grpo(PARAMS), lambda data: [[0.0] for _ in data])
    assert made.samples == pytest.approx(4.0)  # 2, 2, 4 and 4 times, were there no bound
    assert math.exp(0.0 - math.log(SAMPLED[0])) == MOST


def test_what_teaches_nothing_keeps_teaching_nothing() -> None:
    assert weighed([None, [1.0, 2.0], [0.5]], [1.0, 0.5, 2.0]) == [
        None,
        pytest.approx([0.5 * (1.0 - 0.7), 0.5 * (2.0 - 0.7)]),
        pytest.approx([2.0 * (0.5 - 0.7)]),
    ]
    assert weighed([None, None], [1.0, 1.0]) == [None, None]
    assert weighed([[1.0], [2.0], [3.0]], [1.0, 1.0, LEAST / 2])[2] is None
    assert second_batch([], Grpo(PARAMS), lambda _: []).data == []
