"""What a learner is given, without one: spaces, seeds, the bills of plain environments, and failures that are told."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from toolorchestra.envs.adapters.learner_env import NAME, ROUTING, EpisodeFailed, RoutingEnv
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.wrappers import Routing


def test_the_id_imports_its_module_and_nothing_heavy() -> None:
    program = (
        f"import gymnasium as gym, sys; env = gym.make({ROUTING!r}, worlds=['HLE-v0'], max_turns=5); "
        "env.reset(seed=1); print([name for name in ('ray', 'torch') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore")  # the checker advises what rendering wants
def test_gymnasiums_checker_accepts_it() -> None:
    check_env(RoutingEnv())
    check_env(RoutingEnv(masked=True))


def test_every_world_is_drawn_and_an_episode_can_be_played_again_without_it() -> None:
    env = RoutingEnv(["HLE-v0", "FRAMES-v0"], max_turns=6)
    draws = np.random.default_rng(0)
    worlds = []
    for number in range(6):
        observation, info = env.reset(seed=0 if number == 0 else None)
        worlds.append(info["world"])
        plain = gym.make(info["world"], reward="scalar", preference="none", max_turns=6)
        again = Routing(plain)
        same, told = again.reset(seed=info["seed"])
        assert (same == observation).all()
        assert told["task_id"] == info["task_id"]
        over = False
        while not over:
            assert np.array_equal(env.action_masks(), told["action_mask"] == 1)
            action = int(draws.integers(12))
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            same, expected, ended, cut_off, told = again.step(action)
            assert (same == observation).all()
            # A limit ends an episode for a learner: the world has graded it.
            assert (reward, terminated, truncated) == (expected, ended or cut_off, False)
            assert info["cost"] == {name: told["cost"][name] for name in ("usd", "seconds")}
    assert set(worlds) == {"ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"}


def test_gymnasiums_own_limit_is_no_graded_end() -> None:
    for limit, ends in (("max_turns", (True, False)), ("max_episode_steps", (False, True))):
        env = RoutingEnv({"HLE-v0": {limit: 2}})
        env.reset(seed=0)
        assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), ends]


def test_settings_are_for_all_worlds_and_arguments_for_one() -> None:
    env = RoutingEnv({"HLE-v0": {"max_turns": 3}, "ToolOrchestra/FRAMES-v0": {}}, reward={"usd": 2.0})
    turns = [world.unwrapped.factory.settings.max_turns for world in env.worlds.values()]  # type: ignore[attr-defined]
    weights = [world.unwrapped.factory.settings.reward for world in env.worlds.values()]  # type: ignore[attr-defined]
    assert turns == [3, 50]
    assert weights == [{"usd": 2.0}] * 2


def test_what_cannot_be_routed_together_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"worlds is a list of environments, such as \[.HLE-v0.\], got .HLE-v0."):
        RoutingEnv("HLE-v0")
    with pytest.raises(ConfigError, match=r"those of .*FRAMES-v0 differ from those of .*HLE-v0; train one for each"):
        RoutingEnv({"HLE-v0": {"tools": "plain"}, "FRAMES-v0": {}})
    with pytest.raises(ConfigError, match=r"no environment 'HEL-v0'; valid: "):
        RoutingEnv(["HEL-v0"])
    assert NAME in gym.registry


def test_an_episode_that_breaks_down_is_no_reward_but_an_error_that_names_the_task() -> None:
    env = RoutingEnv(["tests.integrations.breaking:Tests/Breaking-v0"])
    _, info = env.reset(seed=3)
    answer = env.action_meanings.index("answer answer-1")
    said = rf"Breaking-v0, task {info['task_id']}: RuntimeError: the grader is away"
    with pytest.raises(EpisodeFailed, match=said):
        env.step(answer)
    assert env.failure.endswith("the grader is away")
    assert env.unwrapped.failure == env.failure


def test_where_it_may_not_raise_the_episode_is_cut_off_and_the_first_failure_kept() -> None:
    env = RoutingEnv(["tests.integrations.breaking:Tests/Breaking-v0"], raising=False)
    first = ""
    for number in range(2):
        observation, info = env.reset(seed=number)
        answer = env.action_meanings.index("answer answer-1")
        last, reward, terminated, truncated, _ = env.step(answer)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert (last == observation).all()
        first = first or f"task {info['task_id']}: RuntimeError: the grader is away"
        assert env.failure.endswith(first)
    with pytest.raises(ResetNeeded):
        env.step(answer)


@pytest.mark.parametrize("raising", [True, False])
def test_the_callers_own_mistakes_are_no_failed_episodes(raising: bool) -> None:
    env = RoutingEnv(["HLE-v0"], raising=raising, max_turns=1)
    with pytest.raises(ResetNeeded, match=r"there is no episode yet; call reset\(\) first"):
        env.step(0)
    env.reset(seed=0)
    for wrong in (999, 1.0, np.array([1, 2]), True, "answer"):
        with pytest.raises(ValueError, match="an action is a whole number from 0 to 11, got"):
            env.step(wrong)
    assert env.step(np.int64(0))[2:4] == (True, False)
    with pytest.raises(ResetNeeded, match="in an episode that is over"):
        env.step(0)
    assert env.failure == ""
