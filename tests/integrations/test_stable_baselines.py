"""Stable-Baselines3 over the routing environments: `make test-sb3`, in an environment of its own."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.paths import REPOSITORY
from tests.sources import Breaks
from toolorchestra.envs.adapters.learner_env import RoutingEnv
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.wrappers import Routing

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed here: make test-sb3")
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor

from toolorchestra.envs.adapters.stable_baselines import make_vec_env

SCALAR = {"reward": "scalar", "preference": "none"}
HLE = "ToolOrchestra/HLE-v0"


def play_single(env_id: str, seed: int, actions: Any) -> list[tuple[Any, ...]]:
    """What the environment gives without any adapter, one episode after the other."""
    env = Routing(gym.make(env_id, **SCALAR))
    observation, _ = env.reset(seed=seed)
    rows = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(int(action))
        over = terminated or truncated
        last = observation
        if over:
            observation, _ = env.reset()
        rows.append((observation, reward, over, info["ledger"]["usd"], info["cost"]["usd"], info["task_id"], last))
    return rows


@pytest.mark.parametrize("env_id", [HLE, "ToolOrchestra/FRAMES-v0"])
def test_the_same_seeds_and_actions_give_the_same_rewards_and_bills(env_id: str) -> None:
    envs = make_vec_env(env_id, 3, seed=7, **SCALAR)
    drawn = np.random.default_rng(0).integers(0, envs.action_space.n, (60, 3))
    alone = [play_single(env_id, 7 + i, drawn[:, i]) for i in range(3)]
    envs.reset()
    ended = 0
    for turn, actions in enumerate(drawn):
        observations, rewards, dones, infos = envs.step(actions)
        for i in range(3):
            observation, reward, over, usd, cost, task_id, last = alone[i][turn]
            assert np.array_equal(observations[i], observation)
            assert rewards[i] == np.float32(reward)
            assert dones[i] == over
            assert infos[i]["ledger"]["usd"] == usd > 0
            assert infos[i]["cost"]["usd"] == cost
            assert infos[i]["task_id"] == task_id
            if over:
                ended += 1
                assert np.array_equal(infos[i]["terminal_observation"], last)
    assert ended >= 3


def test_an_episode_that_runs_into_a_limit_has_ended() -> None:
    """A learner that put its estimate in the place of what would have come would pay for standing still."""
    envs = make_vec_env(HLE, 2, seed=0, max_turns=2, **SCALAR)
    envs.reset()
    answer = envs.envs.action_meanings.index("answer answer-1")
    for _ in range(2):
        _, _, dones, infos = envs.step(np.array([0, answer]))
    assert dones.tolist() == [True, True]
    assert [info["truncated_by"] for info in infos] == ["turns", ""]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
    assert envs.reset_infos[0]["task_id"] != infos[0]["task_id"]


def test_a_failed_episode_is_cut_off_and_earns_nothing() -> None:
    envs = make_vec_env(HLE, 2, seed=0, **SCALAR)
    envs.reset()
    episode = envs.envs.inner.episodes[0]
    assert episode is not None
    episode.world = Breaks(episode.world)
    _, rewards, dones, infos = envs.step(np.array([0, 0]))
    assert dones.tolist() == [True, False]
    assert rewards[0] == 0
    assert infos[0]["failed"]["error"]
    assert infos[0]["TimeLimit.truncated"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_librarys_own_checker_finds_nothing() -> None:
    check_env(RoutingEnv(["HLE-v0"], raising=False))


def test_options_and_masks_reach_the_environments() -> None:
    envs = make_vec_env(HLE, 2, seed=0, **SCALAR)
    envs.set_options({"tools": ["search-2", "answer"]})
    envs.reset()
    assert [mask.sum() for mask in envs.env_method("action_masks")] == [7, 7]
    envs.set_options([{"tools": ["answer"]}, {}])
    with pytest.raises(ConfigError, match="give set_options"):
        envs.reset()


def test_maskable_ppo_takes_only_what_is_offered() -> None:
    maskable = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed here: make test-sb3")
    settings = {**SCALAR, "diversify": "train"}
    envs = VecMonitor(make_vec_env(HLE, 4, seed=0, **settings))
    model = maskable.MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(128)
    observations = envs.reset()
    for _ in range(10):
        masks = np.stack(envs.env_method("action_masks"))
        assert not masks.all()
        actions, _ = model.predict(observations, action_masks=masks)
        assert masks[np.arange(4), actions].all()
        observations, *_ = envs.step(actions)


def test_the_example_learns() -> None:
    before, after = example("ppo_stable_baselines").main(turns=16_384, episodes=60)
    assert after > before + 0.1


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
