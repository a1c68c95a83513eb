"""What becomes training data: whose tokens count, how much, and on which scale."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from toolorchestra.agents.rollouts.advantages import AdvantageParams, in_group, kept_advantage, teaches, training_batch
from toolorchestra.agents.rollouts.rewards import Measure, RewardBreakdown
from toolorchestra.agents.rollouts.tokens import TokenSequence
from toolorchestra.agents.rollouts.trajectory import Group, Trajectory
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import Preference

PLAIN = AdvantageParams(least_spread=0.0, by_deviation=False)
RIGHT, WRONG = Measure(1.0, 0.02, 1.0, {}), Measure(0.0, 0.01, 1.0, {})


def rollout(measure: Measure) -> Trajectory:
    """Two given tokens, then two sampled ones."""
    said = TokenSequence([7, 8, 9, 2], [0.0, 0.0, -0.5, -0.25], [False, False, True, True])
    wish = Preference(outcome=1.0, usd=1.0)
    return Trajectory("HLE-v0", "t", 0, "paper-2025-11", wish, (), [said], measure, 1)


def group(*measures: Measure, anchors: tuple[Measure, ...] = ()) -> Group:
    return Group([rollout(measure) for measure in measures], anchors)


def test_only_sampled_tokens_have_an_advantage() -> None:
    made = training_batch([group(RIGHT, WRONG)], PLAIN)
    assert [datum.advantages for datum in made.data] == [[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, -0.5, -0.5]]
    assert {(tuple(datum.tokens), tuple(datum.logprobs)) for datum in made.data} == {
        ((7, 8, 9, 2), (0.0, 0.0, -0.5, -0.25))
    }


def test_a_groups_rewards_are_on_the_scale_of_its_anchors() -> None:
    near = (RIGHT, replace(RIGHT, usd=0.03))
    assert [datum.advantages[-1] for datum in training_batch([group(*near)], PLAIN).data] == [0.5, -0.5]
    anchors = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    made = training_batch([group(*near, anchors=anchors)], PLAIN)
    assert [datum.advantages[-1] for datum in made.data] == pytest.approx([0.05, -0.05])
    assert [len(rewards) for rewards in made.rewards] == [2]


def test_between_anchors_a_dear_sibling_makes_nobodys_bill_small() -> None:
    """Each is measured between the anchors and itself, as held-out evaluation does."""
    params = replace(PLAIN, scale="anchors")
    anchors = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    near, far = replace(RIGHT, usd=0.03), replace(RIGHT, usd=0.5)

    def rewards(*measures: Measure, ends: tuple[Measure, ...] = anchors) -> list[float]:
        (made,) = training_batch([group(*measures, anchors=ends)], params).rewards
        return [reward.total for reward in made if reward]

    assert rewards(RIGHT, near) == pytest.approx([1.8, 1.7])
    assert rewards(RIGHT, near, far) == pytest.approx([1.8, 1.7, 1.0])
    assert rewards(RIGHT, RIGHT, ends=(replace(RIGHT, usd=0.1),))[0] > 1.0  # right counts where everybody is
    in_the_group = training_batch([group(RIGHT, near, far, anchors=anchors)], PLAIN).rewards[0]
    assert [r.total for r in in_the_group if r] == pytest.approx([1.96, 1.94, 1.0])
    assert rewards(RIGHT, near, ends=()) == pytest.approx([1.0, 0.0])  # without anchors the group is the scale
    with pytest.raises(ConfigError, match=r"no advantage\.scale 'anchor'"):
        AdvantageParams(scale="anchor")  # type: ignore[arg-type]


def test_what_is_left_out_is_counted() -> None:
    broken = replace(WRONG, failed=True)
    made = training_batch([group(RIGHT, WRONG, broken), group(RIGHT, RIGHT), group(broken, broken)], PLAIN)
    assert (made.used, made.flat_groups, made.failed, len(made.data)) == (2, 2, 3, 2)
    assert [[reward is None for reward in rewards] for rewards in made.rewards] == [
        [False, False, True],
        [False, False],
        [True, True],
    ]


def advantages(
    rewards: list[RewardBreakdown | None], measures: list[Measure], params: AdvantageParams
) -> list[float | None]:
    """Of one group."""
    made = in_group(rewards, Preference(), params)
    return [kept_advantage(a, measure, params) for a, measure in zip(made, measures, strict=True)]


def made(*values: float) -> tuple[list[RewardBreakdown | None], list[Measure]]:
    return [RewardBreakdown(v, {}, v > 0) for v in values], [Measure(1.0, 0.0, 0.0, {}) for _ in values]


def test_advantages_are_centred_and_scaled_by_the_sample_deviation() -> None:
    got = advantages(*made(0.0, 1.0, 2.0), AdvantageParams())
    assert got == pytest.approx([-1.0, 0.0, 1.0], abs=1e-4)


def test_a_floor_keeps_small_differences_small() -> None:
    """Rewards within a few hundredths are divided by the floor; those spread wider than it are scaled as ever."""
    params = AdvantageParams(least_spread=0.0, floor=0.5)
    assert advantages(*made(1.0, 1.01, 1.02), params) == pytest.approx([-0.02, 0.0, 0.02], abs=1e-4)
    assert advantages(*made(0.0, 1.0, 2.0), params) == advantages(*made(0.0, 1.0, 2.0), AdvantageParams())
    assert advantages(*made(1.0, 1.0), params) == [None, None]


def test_a_group_without_spread_teaches_nothing() -> None:
    assert advantages(*made(1.0, 1.1, 1.05), AdvantageParams()) == [None, None, None]
    assert advantages(*made(1.0), AdvantageParams()) == [None]


def test_clip_and_boost() -> None:
    got = advantages(*made(*[0.0] * 20, 100.0), AdvantageParams(clip=3.0))
    assert got[-1] == 3.0
    boosted = advantages(*made(0.0, 0.0, 3.0), AdvantageParams(boost=0.1))
    assert boosted[2] == pytest.approx(2 / 3**0.5 + 0.1, abs=1e-4)
    assert boosted[1] == pytest.approx(-1 / 3**0.5, abs=1e-4)
    assert advantages(*made(0.0, 2.0), AdvantageParams(boost=0.1, by_deviation=False)) == [-1.0, 1.1]


def test_filters_leave_out_what_they_name() -> None:
    rewards, group = made(0.0, 1.0, 2.0)
    group[1] = replace(group[1], valid_format=False)
    group[2] = replace(group[2], valid_output=False)
    assert advantages(rewards, group, AdvantageParams(drop_invalid_format=True))[1] is None
    assert advantages(rewards, group, AdvantageParams(drop_invalid_output=True))[2] is None
    assert None not in advantages(rewards, group, AdvantageParams())


def test_what_ran_out_of_context_is_no_wrong_answer_unless_that_is_wished() -> None:
    """It is no end of the scale either: of the right ones the dearer is the worst."""
    cut = replace(WRONG, usd=0.5, context_cut=True)
    played = group(RIGHT, replace(RIGHT, usd=0.03), cut)
    out, counted = (training_batch([played], replace(PLAIN, count_context_cuts=wished)) for wished in (False, True))
    assert out.advantages == [[0.5, -0.5, None]]
    assert counted.advantages[0][2] < 0 < counted.advantages[0][1]
    assert (out.failed, counted.failed) == (0, 0)
    assert [teaches(group(RIGHT, cut), replace(PLAIN, count_context_cuts=wished)) for wished in (False, True)] == [
        False, True,
    ]  # fmt: skip


def test_a_group_of_which_filters_leave_nothing_is_flat() -> None:
    played = group(RIGHT, WRONG)
    assert teaches(played, PLAIN)
    assert not teaches(group(RIGHT, RIGHT), PLAIN)
    unread = group(*(replace(m, valid_format=False) for m in (RIGHT, WRONG)))
    filtered = replace(PLAIN, drop_invalid_format=True)
    assert not teaches(unread, filtered)
    assert training_batch([unread, played], filtered).flat_groups == 1


def test_a_reward_that_is_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="a reward is nan"):
        advantages(*made(0.0, float("nan"), 1.0), AdvantageParams())


# -- gdpo, and measures that hardly differ -----------------------------------------------------------------------------


def test_each_part_is_normalised_by_itself_and_then_the_batch() -> None:
    """Two right rollouts and a wrong one in one group, four right ones in the other; by hand."""
    cheap, dear = Measure(1.0, 0.01, 1.0, {}), Measure(1.0, 0.02, 1.0, {})
    groups = [group(cheap, dear, WRONG), group(cheap, cheap, dear, dear)]
    made = training_batch(groups, AdvantageParams(method="gdpo", least_spread=0.0, epsilon=0.0))

    def normal(values: list[float]) -> list[float]:
        mean, spread = statistics.fmean(values), statistics.stdev(values)
        return [(v - mean) / spread if spread else 0.0 for v in values]

    # WRONG is as cheap as the cheap one, but what is not solved earns nothing by being cheap.
    first = [a + b for a, b in zip(normal([1.0, 1.0, 0.0]), normal([1.0, 0.0, 0.0]), strict=True)]
    second = [a + b for a, b in zip(normal([0.0] * 4), normal([1.0, 1.0, 0.0, 0.0]), strict=True)]
    expected = normal([*first, *second])
    assert [a for row in made.advantages for a in row] == pytest.approx(expected)
    assert statistics.fmean(expected) == pytest.approx(0.0)


def test_a_weight_of_the_wish_is_the_weight_of_its_part() -> None:
    rewards: list[RewardBreakdown | None] = [
        RewardBreakdown(1.25, {"outcome": 1.0, "usd": 0.25}, True),
        RewardBreakdown(1.0, {"outcome": 1.0, "usd": 0.0}, True),
        RewardBreakdown(0.0, {}, False),
    ]
    params = AdvantageParams(method="gdpo", least_spread=0.0, epsilon=0.0)
    money, none = (in_group(rewards, Preference(outcome=1.0, usd=usd), params) for usd in (0.25, 0.0))
    share = [(m or 0.0) - (n or 0.0) for m, n in zip(money, none, strict=True)]
    assert share == pytest.approx([0.25 * 2 / 3**0.5, -0.25 / 3**0.5, -0.25 / 3**0.5])


def test_measures_that_hardly_differ_teach_nothing_where_that_is_asked() -> None:
    """Eight right rollouts whose bills differ by a thousandth: as loud as right against wrong, or silent."""
    near = [Measure(1.0, 0.0100 + 0.00001 * (n % 2), 1.0, {}) for n in range(8)]
    loud = training_batch([group(*near)], AdvantageParams())
    assert max(abs(a or 0.0) for a in loud.advantages[0]) > 0.9
    silent = training_batch([group(*near)], AdvantageParams(least_range=0.02))
    assert (silent.advantages, silent.data, silent.flat_groups) == ([[None] * 8], [], 1)
    apart = [*near[:7], Measure(1.0, 0.02, 1.0, {})]
    assert training_batch([group(*apart)], AdvantageParams(least_range=0.02)).used == 8
    assert training_batch([group(*near[:7], WRONG)], AdvantageParams(least_range=0.02)).used == 8


def test_what_is_as_good_as_its_siblings_is_learnt_from_too() -> None:
    """Its advantage is 0; its tokens count in the divergence, in the entropy and in the mean."""
    made = training_batch([group(RIGHT, replace(RIGHT, usd=0.03), replace(RIGHT, usd=0.04))], PLAIN)
    assert made.data[1].advantages == pytest.approx([0.0] * 4)
    assert [list(datum.mask) for datum in made.data] == [[False, False, True, True]] * 3


def test_a_term_of_ones_own_teaches_where_all_else_is_equal() -> None:
    first, second = replace(RIGHT, terms={"late": 0.0}), replace(RIGHT, terms={"late": -0.2})
    made = training_batch([group(first, second), group(RIGHT, RIGHT)], PLAIN)
    assert [datum.advantages[-1] for datum in made.data] == pytest.approx([0.2, -0.2])
    assert made.flat_groups == 1
    gdpo = training_batch([group(first, second, replace(second, usd=0.5))], replace(PLAIN, method="gdpo", clip=9.0))
    values = [datum.advantages[-1] for datum in gdpo.data]
    assert values[0] > values[1] > values[2]
