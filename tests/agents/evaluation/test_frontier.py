"""The front and the distances to it, on tables small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.evaluation.made_rows import made_row
from toolorchestra.agents.evaluation.frontier import PolicyFrontier, TaskTrial, frontier, pareto_front
from toolorchestra.agents.evaluation.rows import EvaluationRow

Outcomes = Sequence[tuple[float | None, float]]
"""Right and cents of each task."""


def played(policies: Mapping[str, Outcomes]) -> dict[str, dict[TaskTrial, EvaluationRow]]:
    return {
        policy: {
            (str(n), 0): made_row(str(n), right, cents=cents, policy=policy) for n, (right, cents) in enumerate(some)
        }
        for policy, some in policies.items()
    }


def front_of(policies: Mapping[str, Outcomes], singles: Sequence[str] = ()) -> PolicyFrontier:
    made = frontier(played(policies), singles)
    assert made is not None
    return made


TABLE: dict[str, Outcomes] = {
    "cheap": [(1, 1), (0, 1), (0, 1), (0, 1)],
    "expensive": [(1, 9), (1, 9), (1, 9), (0, 9)],
    "router": [(1, 1), (1, 9), (0, 1), (0, 1)],
    "waste": [(0, 9), (0, 9), (1, 9), (0, 1)],
}


def test_the_table_by_hand() -> None:
    made = front_of(TABLE, ["cheap", "expensive"])
    points = {p.policy: p for p in made.points}
    assert [(p.accuracy, p.cents) for p in made.points] == [(0.25, 1), (0.75, 9), (0.5, 3), (0.25, 7)]
    assert (made.best_single, made.front) == ("expensive", ["cheap", "router", "expensive"])
    assert [p.perf_gain for p in made.points] == [pytest.approx(g) for g in (-2 / 3, 0, -1 / 3, -2 / 3)]
    assert [p.cost_save for p in made.points] == [None, 0, None, None]
    # waste: cost 6/8 and accuracy 0 of the ranges; the router's are 2/8 and 1/2, the cheap one's 0 and 0
    assert points["waste"].pareto_dist == pytest.approx((0.5**2 + 0.5**2) ** 0.5)
    assert points["router"].pareto_dist == 0
    # oracle: 1 ¢ right, 9 right, 9 right (router 1 is wrong), none: 1 ¢
    assert (made.oracle_accuracy, made.oracle_cents) == (0.75, 5)
    assert (made.trials, made.left_out) == (4, 0)


def test_the_area_by_hand() -> None:
    made = front_of(TABLE)
    points = {p.policy: p for p in made.points}
    # budgets from 1 to 9 ¢; at 1 ¢ a task's cheapest is right in a quarter
    assert made.nauc == pytest.approx((0.25 * 2 + 0.5 * 6) / 8)
    assert points["router"].nauc == made.nauc
    assert points["expensive"].nauc == points["cheap"].nauc == pytest.approx(0.25)


def test_the_collapse_by_hand() -> None:
    points = {p.policy: p for p in front_of(TABLE).points}
    # expensive is the most expensive. Task 0: cheap was as good. 1: the router paid 9 too, and was as good. 2: waste
    # was. 3: all were wrong, the others for less
    assert points["expensive"].collapse == 1.0
    assert points["cheap"].collapse == 0.5  # wrong in 1 and 2
    assert points["router"].collapse == 0.5  # 9 ¢ in 1, wrong in 2
    assert points["waste"].collapse == 0.75
    only = front_of({"cheap": [(0, 1), (1, 1)], "expensive": [(1, 9), (1, 9)]})
    assert [p.collapse for p in only.points] == [0.5, 0.5]


def test_a_policy_as_good_as_the_best_for_less() -> None:
    made = front_of({"expensive": [(1, 10), (0, 10)], "mine": [(1, 2), (0, 3)]}, ["expensive"])
    mine = made.points[1]
    assert (mine.perf_gain, mine.cost_save, mine.collapse, made.front) == (0, 0.75, 0, ["mine"])
    nobody = front_of({"a": [(0, 1)], "b": [(0, 0)]})
    assert [p.perf_gain for p in nobody.points] == [None, None]


def test_what_is_not_known_for_one_is_left_out_for_all_and_said() -> None:
    made = front_of({"a": [(1, 1), (None, 1), (0, 1)], "b": [(1, 2), (0, 2), (1, 2)]})
    assert (made.trials, made.left_out) == (2, 1)
    assert [(p.accuracy, p.low, p.high) for p in made.points] == [
        (0.5, pytest.approx(1 / 3), pytest.approx(2 / 3)), (1.0, pytest.approx(2 / 3), pytest.approx(2 / 3)),
    ]  # fmt: skip
    assert frontier(played({"a": [(None, 1)], "b": [(1, 1)]})) is None
    assert frontier({}) is None


def test_trials_of_a_task_count_with_their_mean() -> None:
    rows = {("t", n): made_row("t", float(n == 0), trial=n, cents=2.0) for n in range(4)}
    other = {("t", n): made_row("t", 1.0, trial=n, cents=5.0) for n in range(4)}
    made = frontier({"a": rows, "b": other})
    assert made is not None
    assert (made.points[0].accuracy, made.oracle_accuracy, made.oracle_cents) == (0.25, 1.0, 5.0)


def test_the_front_of_any_points() -> None:
    points = {"a": (1.0, 0.5), "b": (2.0, 0.5), "c": (2.0, 0.9), "d": (0.5, 0.1), "e": (1.0, 0.5)}
    assert pareto_front(points) == ["d", "a", "e", "c"]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 20)), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    )
)
def test_what_holds_for_any_policies(drawn: list[list[tuple[float, int]]]) -> None:
    made = front_of({f"p{n}": some for n, some in enumerate(drawn)})
    assert made.front == pareto_front({p.policy: (p.cents, p.accuracy) for p in made.points})
    for point in made.points:
        assert (point.pareto_dist == 0) >= point.on_front
        assert 0 <= point.collapse <= 1
        assert -1e-9 <= point.nauc <= made.nauc + 1e-9 <= made.oracle_accuracy + 2e-9
        assert point.accuracy <= made.oracle_accuracy + 1e-9
        assert point.cost_save is None or point.accuracy >= max(p.accuracy for p in made.points)
