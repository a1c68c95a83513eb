"""The group reward with its properties, and what becomes training data: whose tokens count, and how much."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.agents.rollouts.grpo import (
    MOST_ADVANTAGE,
    AdvantageParams,
    Algorithm,
    Group,
    GroupReward,
    Grpo,
    Measure,
    RewardBreakdown,
    TokenSequence,
    Trajectory,
    teaches,
    training_batch,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import Preference

KEYS = ("search-1", "answer-1")
BOTH = Preference(outcome=1.0, usd=1.0)


class Mean(Grpo):
    """Divides by nothing, so that what is expected can be read."""

    def compared(self, totals: Sequence[float], group: Group) -> list[float]:
        return [total - statistics.fmean(totals) for total in totals]


def plain(**filters: Any) -> Mean:
    return Mean(AdvantageParams(**{"least_spread": 0.0, **filters}))


PLAIN = plain()
RIGHT, WRONG = Measure(1.0, 0.02, 1.0, {}), Measure(0.0, 0.01, 1.0, {})

money = st.floats(0, 100, allow_nan=False)
measures = st.builds(
    Measure, st.sampled_from([0.0, 1.0]), money, money, st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9))
)
groups = st.lists(measures, min_size=2, max_size=9)
weight = st.floats(0, 1)
preferences = st.builds(
    Preference, weight, weight, weight, st.dictionaries(st.sampled_from(KEYS), weight), st.just(""), st.just("custom")
)


def totals(preference: Preference, group: list[Measure]) -> list[float]:
    return [r.total for r in GroupReward(preference, KEYS).score(group) if r is not None]


# -- rewards -----------------------------------------------------------------------------------------------------------


def test_the_papers_toy_case() -> None:
    """Costs 0.10, 0.20, 0.40 right and 0.05 wrong, under accuracy 1 and cost 1."""
    group = [Measure(1.0, c, 1.0, {}) for c in (0.10, 0.20, 0.40)] + [Measure(0.0, 0.05, 1.0, {})]
    assert totals(BOTH, group) == pytest.approx([1.857, 1.571, 1.000, 0.0], abs=5e-4)


@given(groups, preferences)
def test_bounded_by_the_weights_and_finite(group: list[Measure], preference: Preference) -> None:
    most = sum(preference.weights().values())
    for total in totals(preference, group):
        assert math.isfinite(total)
        assert -1e-9 <= total <= most + 1e-9


@given(groups, st.integers(0, 8), st.floats(0.01, 50), preferences)
def test_a_more_expensive_twin_never_scores_higher(
    group: list[Measure], index: int, more: float, preference: Preference
) -> None:
    cheap = replace(group[index % len(group)], outcome=1.0)
    expensive = replace(cheap, usd=cheap.usd + more)
    scores = totals(preference, [*group, cheap, expensive])
    assert scores[-1] <= scores[-2] + 1e-9
    if preference.usd > 0.01:
        assert scores[-1] < scores[-2]


@given(groups, preferences, st.sampled_from([0.01, 100.0, 7.0]))
def test_the_currency_does_not_matter(group: list[Measure], preference: Preference, rate: float) -> None:
    other = [replace(m, usd=m.usd * rate) for m in group]
    assert totals(preference, group) == pytest.approx(totals(preference, other), abs=1e-6)


@given(measures, st.integers(2, 8), preferences)
def test_a_constant_group_is_worth_nothing(measure: Measure, size: int, preference: Preference) -> None:
    assert totals(preference, [measure] * size) == [0.0] * size


def test_parts_add_up_and_name_the_preferences() -> None:
    group = [Measure(1.0, 0.1, 5.0, {"answer-1": 1}), Measure(0.0, 0.3, 9.0, {})]
    preference = Preference(outcome=1.0, usd=0.5, seconds=0.25, tools={"answer-1": 0.5})
    best, worst = GroupReward(preference, KEYS).score(group)
    assert best is not None
    assert best.parts == {"outcome": 1.0, "usd": 0.5, "seconds": 0.25, "answer-1": 0.5}
    assert best.total == sum(best.parts.values())
    assert worst == RewardBreakdown(0.0, {}, False)


def test_a_failed_episode_is_left_out_of_everything() -> None:
    """Not a 0: it moves neither the ranges nor the mean."""
    sound = [Measure(1.0, 0.1, 1.0, {}), Measure(1.0, 0.2, 1.0, {})]
    scored = GroupReward(BOTH, KEYS).score([*sound, Measure(0.0, 99.0, 1.0, {}, failed=True)])
    assert scored[2] is None
    assert [r.total for r in scored[:2] if r] == totals(BOTH, sound)


@given(groups, st.lists(measures, max_size=3), preferences)
def test_baselines_widen_the_scale_and_are_not_scored(
    group: list[Measure], baselines: list[Measure], preference: Preference
) -> None:
    reward = GroupReward(preference, KEYS)
    assert reward.score(group, baselines) == reward.score([*group, *baselines])[: len(group)]


def test_an_unknown_key_is_refused_when_the_reward_is_made() -> None:
    with pytest.raises(ConfigError, match=r"no preference key 'search-9'; valid: .*search-1"):
        GroupReward(Preference(tools={"search-9": 1.0}), KEYS)


def test_a_cost_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="usd is not a finite number"):
        GroupReward(BOTH, KEYS).score([Measure(1.0, float("nan"), 1.0, {}), Measure(1.0, 1.0, 1.0, {})])


@given(groups, preferences, st.lists(st.floats(-2, 2), min_size=9, max_size=9))
def test_terms_of_ones_own_are_added_in_units_of_the_whole(
    group: list[Measure], preference: Preference, given: list[float]
) -> None:
    """To what solved its task and to what did not, whatever the scale of the others."""
    own = [replace(m, terms={"late": value}) for m, value in zip(group, given, strict=False)]
    whole = sum(preference.weights().values()) or 1.0
    for before, after, value in zip(totals(preference, group), totals(preference, own), given, strict=False):
        assert after == pytest.approx(before + whole * value)


# -- advantages --------------------------------------------------------------------------------------------------------


def group_of(*measures: Measure, baselines: tuple[Measure, ...] = ()) -> Group:
    """Rollouts of two given tokens, and then two sampled ones."""

    def rollout(measure: Measure) -> Trajectory:
        said = TokenSequence([7, 8, 9, 2], [0.0, 0.0, -0.5, -0.25], [False, False, True, True])
        return Trajectory("HLE-v0", "t", 0, "paper-2025-11", BOTH, (), [said], measure, 1)

    return Group([rollout(measure) for measure in measures], baselines)


def test_between_baselines_an_expensive_sibling_makes_nobodys_bill_small() -> None:
    """Each is measured between the baselines and itself, as held-out evaluation does. Alone, a cent between two right
    rollouts is the whole scale, and a cheap gamble is worth it."""
    between = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    near, far = replace(RIGHT, usd=0.03), replace(RIGHT, usd=0.5)

    def rewards(*measures: Measure, baselines: tuple[Measure, ...] = between) -> list[float]:
        (made,) = training_batch([group_of(*measures, baselines=baselines)], PLAIN).rewards
        return [reward.total for reward in made if reward]

    assert rewards(RIGHT, near) == pytest.approx([1.8, 1.7])
    assert rewards(RIGHT, near, far) == pytest.approx([1.8, 1.7, 1.0])
    assert rewards(RIGHT, near, baselines=(*between, replace(far, failed=True))) == pytest.approx([1.8, 1.7])
    assert rewards(RIGHT, RIGHT, baselines=(replace(RIGHT, usd=0.1),))[0] > 1.0  # right counts where everybody is
    broken = replace(RIGHT, usd=9.0, failed=True)
    assert rewards(RIGHT, RIGHT, baselines=(broken, replace(RIGHT, usd=0.1))) == pytest.approx([2.0, 2.0])
    assert rewards(RIGHT, near, baselines=()) == pytest.approx([1.0, 0.0])
    assert rewards(RIGHT, near, baselines=(broken,)) == pytest.approx([1.0, 0.0])  # as if none had played


def advantages(totals: Sequence[float], algorithm: Algorithm) -> list[float] | None:
    """Of the one turn of each trajectory of a group with these rewards."""
    rewards = [RewardBreakdown(total, {}, True) for total in totals]
    (row,) = algorithm.advantages([group_of(*(RIGHT for _ in totals))], [rewards])
    return None if None in row else [turns[0] for turns in row if turns is not None]


def test_advantages_are_centred_scaled_by_the_sample_deviation_and_clipped() -> None:
    paper = Grpo(AdvantageParams())
    assert advantages([0.0, 1.0, 2.0], paper) == pytest.approx([-1.0, 0.0, 1.0], abs=1e-4)
    assert advantages([0.0, 0.5], PLAIN) == [-0.25, 0.25]
    for reward, bound in ((100.0, MOST_ADVANTAGE), (-100.0, -MOST_ADVANTAGE)):
        lone = advantages([*[0.0] * 20, reward], paper)
        assert lone is not None
        assert lone[-1] == bound


def test_a_group_without_spread_teaches_nothing() -> None:
    assert advantages([1.0, 1.1, 1.05], Grpo(AdvantageParams())) is None
    assert advantages([1.0], Grpo(AdvantageParams())) is None


def test_filters_leave_out_what_they_name() -> None:
    played = group_of(RIGHT, replace(WRONG, valid_format=False), replace(WRONG, valid_output=False))
    for params, left in ((PLAIN, []), (plain(unreadable="dropped"), [1, 2])):
        (row,) = training_batch([played], params).advantages
        assert [place for place, advantage in enumerate(row) if advantage is None] == left


def test_an_unreadable_turn_counts_against_where_that_is_asked() -> None:
    played = group_of(replace(RIGHT, valid_format=False), RIGHT)
    assert not teaches(played, PLAIN)
    (rewards,) = training_batch([played], plain(unreadable="wrong")).rewards
    assert [r.total if r else None for r in rewards] == [0.0, 1.0]


def test_what_ran_out_of_context_is_no_wrong_answer_unless_that_is_wanted() -> None:
    """It is no end of the scale either: of the right ones the more expensive is the worst."""
    cut = replace(WRONG, usd=0.5, context_cut=True)
    played = group_of(RIGHT, replace(RIGHT, usd=0.03), cut)
    out, counted = (training_batch([played], plain(count_context_cuts=wanted)) for wanted in (False, True))
    assert out.advantages == [[[0.5], [-0.5], None]]
    assert counted.advantages[0][2][0] < 0 < counted.advantages[0][1][0]  # type: ignore[index]
    assert (out.failed, counted.failed) == (0, 0)
    assert [teaches(group_of(RIGHT, cut), plain(count_context_cuts=wanted)) for wanted in (False, True)] == [
        False, True,
    ]  # fmt: skip


def test_a_group_of_which_filters_leave_nothing_is_flat() -> None:
    played = group_of(RIGHT, WRONG)
    assert teaches(played, PLAIN)
    assert not teaches(group_of(RIGHT, RIGHT), PLAIN)
    unread = group_of(*(replace(m, valid_format=False) for m in (RIGHT, WRONG)))
    filtered = plain(unreadable="dropped")
    assert not teaches(unread, filtered)
    assert training_batch([unread, played], filtered).flat_groups == 1


def test_a_reward_that_is_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="a reward is nan"):
        advantages([0.0, float("nan"), 1.0], Grpo(AdvantageParams()))


def test_what_is_as_good_as_its_siblings_is_learnt_from_too() -> None:
    """Its advantage is 0; its tokens count in the divergence, in the entropy and in the mean."""
    made = training_batch([group_of(RIGHT, replace(RIGHT, usd=0.03), replace(RIGHT, usd=0.04))], PLAIN)
    assert made.data[1].advantages == pytest.approx([0.0] * 4)
    assert [list(datum.mask) for datum in made.data] == [[False, False, True, True]] * 3
