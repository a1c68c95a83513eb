"""The group reward, its properties, and what becomes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.agents.rollouts.advantages import AdvantageParams, in_group
from toolorchestra.agents.rollouts.rewards import (
    GroupReward,
    Measure,
    RewardBreakdown,
    preference_score,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import Preference

KEYS = ("search-1", "answer-1")
BOTH = Preference(outcome=1.0, usd=1.0)

money = st.floats(0, 100, allow_nan=False)
measures = st.builds(
    Measure,
    st.sampled_from([0.0, 1.0]),
    money,
    money,
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9)),
)
groups = st.lists(measures, min_size=2, max_size=9)
weight = st.floats(0, 1)
preferences = st.builds(
    Preference, weight, weight, weight, st.dictionaries(st.sampled_from(KEYS), weight), st.just(""), st.just("custom")
)


def totals(preference: Preference, group: list[Measure]) -> list[float]:
    return [r.total for r in GroupReward(preference, KEYS).score(group) if r is not None]


def test_the_papers_toy_case() -> None:
    """Costs 0.10, 0.20, 0.40 right and 0.05 wrong, under accuracy 1 and cost 1."""
    group = [Measure(1.0, c, 1.0, {}) for c in (0.10, 0.20, 0.40)] + [Measure(0.0, 0.05, 1.0, {})]
    assert totals(BOTH, group) == pytest.approx([1.857, 1.571, 1.000, 0.0], abs=5e-4)


def test_tool_counts_are_scaled_over_the_whole_group() -> None:
    group = [Measure(1.0, 1.0, 1.0, {"search-1": n} if n else {}) for n in (0, 2, 4)]
    assert totals(Preference(outcome=0.0, tools={"search-1": 1.0}), group) == [0.0, 0.5, 1.0]


@given(groups, preferences)
def test_bounded_by_the_weights_and_finite(group: list[Measure], preference: Preference) -> None:
    most = sum(preference.weights().values())
    for total in totals(preference, group):
        assert math.isfinite(total)
        assert -1e-9 <= total <= most + 1e-9


@given(groups, st.integers(0, 8), st.floats(0.01, 50), preferences)
def test_a_dearer_twin_never_scores_higher(
    group: list[Measure], index: int, more: float, preference: Preference
) -> None:
    cheap = replace(group[index % len(group)], outcome=1.0)
    dear = replace(cheap, usd=cheap.usd + more)
    scores = totals(preference, [*group, cheap, dear])
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


def test_parts_add_up_and_name_the_wishes() -> None:
    group = [Measure(1.0, 0.1, 5.0, {"answer-1": 1}), Measure(0.0, 0.3, 9.0, {})]
    wish = Preference(outcome=1.0, usd=0.5, seconds=0.25, tools={"answer-1": 0.5})
    best, worst = GroupReward(wish, KEYS).score(group)
    assert best is not None
    assert best.parts == {"outcome": 1.0, "usd": 0.5, "seconds": 0.25, "answer-1": 0.5}
    assert best.total == sum(best.parts.values())
    assert worst == RewardBreakdown(0.0, {}, False)


def test_a_failed_episode_is_left_out_of_everything() -> None:
    """Not a 0: it moves neither the ranges nor the mean."""
    sound = [Measure(1.0, 0.1, 1.0, {}), Measure(1.0, 0.2, 1.0, {})]
    broken = Measure(0.0, 99.0, 1.0, {}, failed=True)
    scored = GroupReward(BOTH, KEYS).score([*sound, broken])
    assert scored[2] is None
    assert [r.total for r in scored[:2] if r] == totals(BOTH, sound)
    assert in_group(scored, BOTH, AdvantageParams())[2] is None


@given(groups, st.lists(measures, max_size=3), preferences)
def test_anchors_widen_the_scale_and_are_not_scored(
    group: list[Measure], anchors: list[Measure], preference: Preference
) -> None:
    reward = GroupReward(preference, KEYS)
    widened = reward.score(group, anchors)
    together = reward.score([*group, *anchors])
    assert widened == together[: len(group)]


def test_between_anchors_like_rollouts_get_like_rewards() -> None:
    """Alone, a cent between two right rollouts is the whole scale, and a cheap gamble is worth it; between what the
    cheapest and the strongest policy pay it is next to nothing."""
    near = [Measure(1.0, c, 1.0, {}) for c in (0.01, 0.02)]
    anchors = [Measure(0.0, 0.0, 1.0, {}), Measure(1.0, 0.11, 1.0, {}), Measure(1.0, 99.0, 1.0, {}, failed=True)]
    reward = GroupReward(BOTH, KEYS)
    assert [r.parts["usd"] for r in reward.score(near) if r] == [1.0, 0.0]
    assert [r.parts["usd"] for r in reward.score(near, anchors) if r] == pytest.approx([10 / 11, 9 / 11])


def test_an_unknown_key_is_refused_when_the_reward_is_made() -> None:
    with pytest.raises(ConfigError, match=r"no preference key 'search-9'; valid: .*search-1"):
        GroupReward(Preference(tools={"search-9": 1.0}), KEYS)


def test_a_cost_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="usd is not a finite number"):
        GroupReward(BOTH, KEYS).score([Measure(1.0, float("nan"), 1.0, {}), Measure(1.0, 1.0, 1.0, {})])


def test_an_unreadable_turn_counts_against_where_that_is_asked() -> None:
    group = [Measure(1.0, 0.1, 1.0, {}, valid_format=False), Measure(1.0, 0.2, 1.0, {})]
    strict = GroupReward(BOTH, KEYS, strict_format=True).score(group)
    assert [r.total if r else None for r in strict] == [0.0, 1.0]


def test_the_papers_evaluation_score() -> None:
    """Appendix L: counts and outcome over the baseline's, cents and minutes the other way round."""
    baseline = Measure(1.0, 0.30, 600.0, {"search-1": 4})
    mine = Measure(1.0, 0.10, 300.0, {"search-1": 2})
    wish = Preference(outcome=1.0, usd=1.0, seconds=1.0, tools={"search-1": 1.0})
    assert preference_score(mine, baseline, wish) == pytest.approx(1.0 + 30 / 10 + 10 / 5 + 2 / 4)
    assert preference_score(replace(mine, outcome=0.0), baseline, wish) == 0.0


@given(groups, preferences, st.lists(st.floats(-2, 2), min_size=9, max_size=9))
def test_terms_of_ones_own_are_added_in_units_of_the_whole(
    group: list[Measure], preference: Preference, given: list[float]
) -> None:
    """To what solved its task and to what did not, whatever the scale of the others."""
    own = [replace(m, terms={"late": value}) for m, value in zip(group, given, strict=False)]
    whole = sum(preference.weights().values()) or 1.0
    for before, after, value in zip(totals(preference, group), totals(preference, own), given, strict=False):
        assert after == pytest.approx(before + whole * value)


def test_a_term_has_a_name_among_the_parts() -> None:
    group = [Measure(1.0, 0.1, 5.0, {}, terms={"usd": -0.25}), Measure(0.0, 0.3, 9.0, {}, terms={"usd": -0.5})]
    best, worst = GroupReward(BOTH, KEYS).score(group)
    assert best is not None
    assert best.parts == {"outcome": 1.0, "usd": 1.0, "term usd": -0.5}
    assert worst == RewardBreakdown(-1.0, {"term usd": -1.0}, False)
