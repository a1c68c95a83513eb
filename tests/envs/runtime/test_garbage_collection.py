"""The collector's threshold: wider while vector environments are at work, and the user's own again afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from gymnasium.error import ClosedEnvironmentError

from tests.playing import vector_of
from toolorchestra.envs.runtime.garbage_collection import OBJECTS_PER_ENV, Collector
from toolorchestra.envs.vector import OrchestraVectorEnv


@pytest.fixture(autouse=True)
def _the_users_own() -> Iterator[None]:
    gc.collect()  # what other tests dropped closes itself now
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_wider_while_environments_are_at_work() -> None:
    env = OrchestraVectorEnv(64, "tests.sources:AdderSource")
    assert gc.get_threshold() == (700, 10, 10)  # made is not at work
    env.reset(seed=0)
    env.reset(seed=1)
    assert gc.get_threshold() == (64 * OBJECTS_PER_ENV, 10, 10)
    other = vector_of("Adder", num_envs=36)
    assert gc.get_threshold()[0] == 100 * OBJECTS_PER_ENV
    env.close()
    env.close()
    assert gc.get_threshold()[0] == 36 * OBJECTS_PER_ENV
    del other
    assert gc.get_threshold() == (700, 10, 10)


def test_a_closed_environment_does_not_go_to_work_again() -> None:
    env = vector_of("Adder", num_envs=64)
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="make another one"):
        env.reset()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("users", [0, 1_000_000])
def test_a_higher_one_and_none_at_all_are_left_alone(users: int) -> None:
    gc.set_threshold(users, 5, 5)
    env = vector_of("Adder", num_envs=64)
    assert gc.get_threshold() == (users, 5, 5)
    env.close()
    assert gc.get_threshold() == (users, 5, 5)


def test_few_environments_change_nothing() -> None:
    env = vector_of("Adder", num_envs=2)
    assert gc.get_threshold() == (700, 10, 10)
    env.close()


@pytest.mark.parametrize("users", [800, 0, 90_000])
def test_what_the_user_sets_meanwhile_is_what_comes_back(users: int) -> None:
    env, other = vector_of("Adder", num_envs=64), vector_of("Adder", num_envs=64)
    gc.set_threshold(users, 7, 7)
    other.close()
    assert gc.get_threshold() == (max(users, 64 * OBJECTS_PER_ENV) if users else 0, 7, 7)
    env.close()
    assert gc.get_threshold() == (users, 7, 7)


def test_garbage_is_still_collected() -> None:
    class Knot:
        alive = 0

        def __init__(self) -> None:
            self.knot = self
            Knot.alive += 1

        def __del__(self) -> None:
            Knot.alive -= 1

    collector = Collector()
    collector.open(64)
    for _ in range(10 * 64 * OBJECTS_PER_ENV):
        Knot()
    assert Knot.alive <= 64 * OBJECTS_PER_ENV
    collector.close(64)
