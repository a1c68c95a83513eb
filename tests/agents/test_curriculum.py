"""Which tasks are played again: those whose group stayed behind the best that was seen."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from toolorchestra.agents.curriculum import Curriculum, Pick, gap
from toolorchestra.agents.rewards import Measure
from toolorchestra.agents.tokens import Sequences
from toolorchestra.agents.trajectory import Group, Trajectory
from toolorchestra.envs.preference import Preference

WISH = Preference(outcome=1.0, usd=1.0, sentence="Right, and cheap.")


def rollout(outcome: float, usd: float, failed: bool = False) -> Trajectory:
    measure = Measure(outcome, usd, 1.0, {}, failed)
    return Trajectory("Toy-v0", "t", 0, "s", WISH, (), [Sequences()], measure, 1)


def group(*rollouts: tuple[float, float], anchor: tuple[float, float] | None = None) -> Group:
    anchors = [Measure(*anchor, 1.0, {})] if anchor else []
    return Group([rollout(*r) for r in rollouts], anchors)


def test_the_gap_is_to_the_best_sibling_or_fixed_policy() -> None:
    """Weights 1 and 1: a right answer at the least cost is worth 2, at the most 1, a wrong one 0."""
    assert gap(group((1, 0.0), (1, 1.0))) == pytest.approx((2.0 - 1.5) / 2)
    assert gap(group((0, 0.0), (0, 0.0))) == 0.0
    assert gap(group((0, 0.0), (0, 0.0), anchor=(1, 1.0))) == pytest.approx(1.0 / 2)
    assert gap(group((1, 0.0), (1, 0.0), anchor=(1, 1.0))) == 0.0


def test_failed_episodes_are_no_evidence() -> None:
    sound = group((1, 0.0), (1, 1.0))
    sound.trajectories.append(rollout(0.0, 5.0, failed=True))
    assert gap(sound) == pytest.approx((2.0 - 1.5) / 2)
    assert gap(Group([rollout(0.0, 0.0, failed=True)])) == 0.0


def test_without_replay_every_task_is_fresh() -> None:
    made = Curriculum([1.0], 0.0, 10)
    made.note([Pick(0, 7)], [group((0, 0.0), (1, 0.0))])
    assert Pick(0, 7) not in made.draw(random.Random(0), 200)


def test_tasks_far_from_done_well_come_again_the_more_often() -> None:
    made = Curriculum([1.0, 3.0], 0.5, 10)
    done, close, far = Pick(0, 1), Pick(0, 2), Pick(1, 3)
    near = group((1, 0.0), (1, 0.2), anchor=(1, 1.0))
    made.note([done, close, far], [group((1, 0.0), (1, 0.0)), near, group((0, 0.0), (0, 0.0), anchor=(1, 1.0))])
    rng = random.Random(0)
    seen = Counter(pick for _ in range(400) for pick in made.draw(rng, 2))
    assert seen[done] == 0
    assert 0 < 2 * seen[close] < seen[far]
    assert sum(seen.values()) == 800
    fresh = Counter(pick.mix for pick in seen.elements() if pick not in (close, far))
    assert fresh[1] / fresh[0] == pytest.approx(3.0, rel=0.4)


def test_no_task_comes_twice_in_one_step() -> None:
    made = Curriculum([1.0], 1.0, 10)
    made.note([Pick(0, k) for k in range(3)], [group((0, 0.0), (1, 0.0))] * 3)
    picks = made.draw(random.Random(0), 8)
    assert len(set(picks)) == len(picks) == 8
    assert {Pick(0, k) for k in range(3)} <= set(picks)


def test_the_oldest_are_forgotten_and_a_replayed_one_is_new_again() -> None:
    made = Curriculum([1.0], 1.0, 2)
    behind = group((0, 0.0), (1, 0.0))
    made.note([Pick(0, 1), Pick(0, 2)], [behind, behind])
    made.note([Pick(0, 1), Pick(0, 3)], [behind, behind])
    assert [row[1] for row in made.state()] == [1, 3]


def test_a_restored_one_draws_the_same() -> None:
    made, again = Curriculum([1.0, 1.0], 0.7, 50), Curriculum([1.0, 1.0], 0.7, 50)
    made.note([Pick(k % 2, k) for k in range(9)], [group((0, 0.0), (1, k / 9)) for k in range(9)])
    again.restore(json.loads(json.dumps(made.state())))
    assert made.draw(random.Random(3), 20) == again.draw(random.Random(3), 20)
