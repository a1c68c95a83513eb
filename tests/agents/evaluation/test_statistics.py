"""Intervals and rates, against values worked out by hand or printed in the papers that define them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolorchestra.agents.evaluation.statistics import (
    Interval,
    TaskTally,
    effective_trials,
    holm,
    mean_interval,
    paired_share_interval,
    pass_at,
    pass_hat,
    pass_rates,
    ratio_interval,
    reach_of_seeds,
    share_of,
    sign_test,
    student,
    wilson,
)


def tally(solved: int, trials: int, unknown: int = 0) -> TaskTally:
    return TaskTally(float(solved), solved, trials - unknown, trials)


def singles(right: int, wrong: int, unknown: int = 0) -> list[TaskTally]:
    return [tally(1, 1)] * right + [tally(0, 1)] * wrong + [tally(0, 1, 1)] * unknown


TALLIES = st.lists(
    st.integers(1, 6).flatmap(
        lambda trials: st.integers(0, trials).flatmap(
            lambda known: st.integers(0, known).map(lambda solved: tally(solved, trials, trials - known))
        )
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize(
    ("right", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_that_of_newcombe_s_table(right: int, trials: int, low: float, high: float) -> None:
    found = wilson(right / trials, trials)  # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_nothing_known_is_from_nothing_to_all() -> None:
    assert wilson(0.5, 0) == Interval(0.0, 1.0)
    assert share_of([]).interval == Interval(0.0, 1.0)
    assert share_of([]).value is None


def test_trials_of_a_task_that_are_all_alike_count_as_one() -> None:
    alike = [tally(4, 4)] * 5 + [tally(0, 4)] * 5
    assert effective_trials(alike) == pytest.approx(10)
    assert share_of(alike).interval == wilson(0.5, effective_trials(alike))
    assert effective_trials([tally(4, 4)] * 10) == pytest.approx(10)  # nothing differs: nothing is known of how


def test_trials_of_a_task_that_differ_as_much_as_tasks_count_in_full() -> None:
    assert effective_trials([tally(2, 4)] * 10) == pytest.approx(40)
    # by hand: p = .5, n = 8, e = (1, -1, 0, 0); robust = 4/3 * 2 / 64, binomial = .25 / 8, design effect 4/3
    mixed = [tally(2, 2), tally(0, 2), tally(1, 2), tally(1, 2)]
    assert effective_trials(mixed) == pytest.approx(6.0)
    assert effective_trials(singles(3, 4)) == 7


def test_the_clustered_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    plain = clustered = 0
    for _ in range(400):
        made = [tally(int(n), 4) for n in generator.binomial(4, generator.beta(0.6, 0.4, 50))]
        truth, share = 0.6, share_of(made)
        clustered += share.interval.low <= truth <= share.interval.high
        naive = wilson(share.low, 200)
        plain += naive.low <= truth <= naive.high
    assert clustered / 400 >= 0.925
    assert plain / 400 < 0.85  # as if 200 tasks had been played


@settings(deadline=None)
@given(TALLIES)
def test_an_interval_holds_its_bounds_and_grows_with_what_is_not_known(tallies: list[TaskTally]) -> None:
    share = share_of(tallies)
    assert 0 <= share.interval.low <= share.low <= share.high <= share.interval.high <= 1
    for settled in ([t.low() for t in tallies], [t.high() for t in tallies]):
        inner = share_of(settled).interval
        assert share.interval.low <= inner.low
        assert inner.high <= share.interval.high


def test_pass_rates_by_hand() -> None:
    assert TaskTally.of([1.0, 0.5, None], missing=1) == TaskTally(1.5, 1, 2, 4)  # solved is an outcome of 1
    tallies = [tally(2, 4), tally(3, 4, 1)]
    hats = pass_rates(tallies, pass_hat)
    assert hats[1] == Interval((0.5 + 0.75) / 2, (0.5 + 1) / 2)
    assert hats[2] == Interval((1 / 6 + 3 / 6) / 2, (1 / 6 + 1) / 2)
    assert list(hats) == [1, 2, 3, 4]
    assert pass_rates(tallies, pass_at)[2] == Interval((5 / 6 + 1) / 2, (5 / 6 + 1) / 2)
    assert list(pass_rates([*tallies, tally(1, 2)], pass_hat)) == [1, 2]
    with pytest.raises(ValueError, match="from 1 to the 4 trials"):
        pass_hat(4, 2, 5)


def test_the_cost_of_a_solved_task_may_have_no_upper_bound() -> None:
    assert ratio_interval([2.0] * 30, [1.0] * 30) == Interval(2.0, 2.0)
    assert ratio_interval([2.0] * 30, [0.0] * 30).low == math.inf
    few = ratio_interval([1.0] * 5, [1.0, 0.0, 0.0, 0.0, 0.0])  # the mean of the solved is one error from none
    assert few.high == math.inf
    assert 1.0 < few.low < 5.0  # but it costs more than all if every one were solved


def test_a_bootstrap_comes_out_the_same_again_and_near_the_normal_one() -> None:
    values = list(np.random.default_rng(1).normal(3.0, 2.0, 400))
    found = mean_interval(values)
    assert found is not None
    assert found == mean_interval(values)
    half = 1.96 * float(np.std(values)) / 20
    assert found.low == pytest.approx(np.mean(values) - half, abs=0.03)
    assert found.high == pytest.approx(np.mean(values) + half, abs=0.03)
    assert mean_interval([]) is None
    assert mean_interval([1.0]) is None  # one task says nothing of others


def test_a_long_tail_reaches_further_to_its_own_side() -> None:
    bills = [float(n) for n in np.random.default_rng(2).lognormal(0, 1, 20)]
    found, mean = mean_interval(bills), float(np.mean(bills))
    assert found is not None
    assert found.high - mean > 1.3 * (mean - found.low)
    together = mean_interval(bills, of=5)
    assert together is not None
    assert together.low < found.low < found.high < together.high


def test_a_ratio_s_interval_is_fieller_s() -> None:
    """Its ends are where the mean of top - R * bottom is the drawn number of errors from 0, on either side of it."""
    generator = np.random.default_rng(4)
    bottoms = generator.lognormal(0, 0.5, 60)
    tops = 0.5 * bottoms * generator.lognormal(0, 0.3, 60)
    found = ratio_interval(list(tops), list(bottoms))
    errors = [
        (tops - end * bottoms).mean() / (tops - end * bottoms).std(ddof=1) * 60**0.5 for end in (found.low, found.high)
    ]
    assert errors[0] == pytest.approx(2, abs=0.5)
    assert errors[1] == pytest.approx(-2, abs=0.5)
    assert found.low < tops.sum() / bottoms.sum() < found.high
    turned = ratio_interval(list(-tops), list(bottoms))
    assert (turned.low, turned.high) == (pytest.approx(-found.high, rel=0.05), pytest.approx(-found.low, rel=0.05))


def test_students_quantiles() -> None:
    assert student(1) == pytest.approx(12.706, abs=0.001)
    table = {2: 4.303, 4: 2.776, 10: 2.228, 30: 2.042}  # any table of Student's distribution
    assert all(student(freedom) == pytest.approx(value, rel=0.01) for freedom, value in table.items())


def test_a_mean_of_few_tasks_is_known_no_better_than_by_student() -> None:
    """A bootstrap of two tasks has three means, and held the truth in half of the cases."""
    for values in ([1.0, 2.0], [1.0, 2.0, 4.0]):
        centre, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
        found, reach = mean_interval(values), student(len(values) - 1) * error - 1e-9
        assert found is not None
        assert found.low <= centre - reach < centre + reach <= found.high
    together = mean_interval([1.0, 2.0], of=5, outcomes=True)
    assert together is not None
    assert together.high == pytest.approx(1.5 + 63.657 * 0.5, rel=0.001)
    assert ratio_interval([1.0, 2.0], [1.0, 1.0]) == Interval(0.0, pytest.approx(1.5 + 12.706 * 0.5, rel=0.001))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_another_training_may_come_to() -> None:
    """Three trainings that differ by their own luck alone: Student's interval of three means."""
    tasks = np.linspace(0, 1, 50)
    apart = np.array([tasks + luck for luck in (0.0, 0.1, 0.2)])
    assert reach_of_seeds(apart) == pytest.approx(4.303 * 0.1 / 3**0.5, rel=0.01)
    assert reach_of_seeds(np.array([tasks, tasks])) == 0.0
    # Means 0.1 and 1.0, variance 0.405; chance makes 0.06 / (1 x 3) / 4 = 0.005 of it.
    by_hand = student(1) * ((0.405 - 0.005) / 2) ** 0.5
    assert reach_of_seeds(np.array([[0.0, 0.0, 0.0, 0.4], [1.0] * 4])) == pytest.approx(by_hand)
    assert Interval(1.0, 3.0).wider(2.0, 1.0) == Interval(pytest.approx(2 - 2**0.5), pytest.approx(2 + 2**0.5))


def test_a_paired_difference_by_hand() -> None:
    # twice 4 both right, 2 left only, 1 right only, 3 neither
    left = singles(6, 4) * 2
    right = [*singles(4, 2), *singles(1, 3)] * 2
    phi = (4 * 3 - 2 * 1) / math.sqrt(6 * 4 * 5 * 5)
    one, other = wilson(0.6, 20), wilson(0.5, 20)
    low = math.sqrt((0.5 - other.low) ** 2 - 2 * phi * (0.5 - other.low) * (one.high - 0.6) + (one.high - 0.6) ** 2)
    high = math.sqrt((other.high - 0.5) ** 2 - 2 * phi * (other.high - 0.5) * (0.6 - one.low) + (0.6 - one.low) ** 2)
    found = paired_share_interval(left, right)
    assert (found.low, found.high) == (pytest.approx(-0.1 - low), pytest.approx(-0.1 + high))


def test_two_tasks_do_not_say_that_they_are_as_hard_for_both() -> None:
    """Their correlation is 1 or -1 whatever was played; the interval had no width."""
    left, right = [tally(1, 4), tally(2, 4)], [tally(2, 4), tally(3, 4)]
    found = paired_share_interval(left, right)
    assert found.low < -0.1
    assert found.high > 0.5
    assert paired_share_interval(left[:1] * 10, right[:1] * 10).high < found.high


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_a_paired_difference_is_turned_round_with_its_sides(pairs: list[tuple[bool, bool]]) -> None:
    left, right = ([tally(int(pair[side]), 1) for pair in pairs] for side in (0, 1))
    found, turned = paired_share_interval(left, right), paired_share_interval(right, left)
    assert (found.low, found.high) == (pytest.approx(-turned.high), pytest.approx(-turned.low))
    apart = (sum(b for _, b in pairs) - sum(a for a, _ in pairs)) / len(pairs)
    assert found.low - 1e-9 <= apart <= found.high + 1e-9


@pytest.mark.parametrize(
    ("better", "worse", "p"), [(0, 0, 1.0), (5, 0, 2 / 32), (1, 5, 14 / 64), (3, 3, 1.0), (10, 2, 2 * 79 / 4096)]
)
def test_the_exact_sign_test(better: int, worse: int, p: float) -> None:
    assert sign_test(better, worse) == pytest.approx(p)
    assert sign_test(worse, better) == pytest.approx(p)
