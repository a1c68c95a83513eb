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
from toolorchestra.envs.adapters.learner_env import RoutingEnv
from toolorchestra.envs.wrappers import Routing

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed here: make test-sb3")
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env

WORLDS = ["HLE-v0", "FRAMES-v0"]


def made(count: int, **settings: Any) -> Any:
    return make_vec_env(RoutingEnv, count, seed=7, env_kwargs={"worlds": WORLDS, "raising": False, **settings})


def test_episodes_rewards_and_bills_are_those_of_the_plain_environments() -> None:
    """Each is played again by the world and the seed that its reset told."""
    envs = made(3, max_turns=3)
    alone = [{f"ToolOrchestra/{world}": plain(world) for world in WORLDS} for _ in range(3)]
    drawn = np.random.default_rng(0).integers(0, envs.action_space.n, (60, 3))
    seen, playing, ended = envs.reset(), [""] * 3, []
    for actions in drawn:
        for i, told in enumerate(envs.reset_infos):
            if not playing[i]:
                playing[i] = told["world"]
                assert np.array_equal(seen[i], alone[i][playing[i]].reset(seed=told["seed"])[0])
        seen, rewards, dones, infos = envs.step(actions)
        for i, action in enumerate(actions):
            last, reward, terminated, truncated, info = alone[i][playing[i]].step(int(action))
            assert rewards[i] == np.float32(reward)
            assert dones[i] == (terminated or truncated)
            assert infos[i]["task_id"] == info["task_id"]
            assert infos[i]["cost"] == {name: info["cost"][name] for name in ("usd", "seconds")}
            assert np.array_equal(infos[i]["terminal_observation"] if dones[i] else seen[i], last)
            if dones[i]:
                # A learner that put its estimate in the place of what would have come would pay for standing still.
                assert not infos[i]["TimeLimit.truncated"]
                ended.append((playing[i], truncated))
                playing[i] = ""
    assert {world for world, _ in ended} == set(alone[0])
    assert {cut for _, cut in ended} == {True, False}


def plain(world: str) -> Routing:
    return Routing(gym.make(f"ToolOrchestra/{world}", reward="scalar", preference="none", max_turns=3))


def test_a_failed_episode_is_cut_off_and_earns_nothing() -> None:
    envs = made(1, worlds=["tests.integrations.breaking:Tests/Breaking-v0"])
    envs.reset()
    _, rewards, dones, infos = envs.step([envs.get_attr("action_meanings")[0].index("answer answer-1")])
    assert (rewards[0], dones[0], infos[0]["TimeLimit.truncated"]) == (0, True, True)
    assert envs.get_attr("failure")[0].endswith("the grader is away")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_librarys_own_checker_finds_nothing() -> None:
    check_env(RoutingEnv(["HLE-v0"], raising=False))


def test_maskable_ppo_takes_only_what_is_offered() -> None:
    maskable = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed here: make test-sb3")
    envs = made(4, diversify="train")
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
