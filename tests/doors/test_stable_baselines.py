"""The door to Stable-Baselines3, against the real library: `make test-sb3`."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.paths import REPOSITORY
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.vector import OrchestraVectorEnv
from toolorchestra.envs.wrappers import DiscreteRouting, Routing, RoutingVectorEnv
from toolorchestra.envs.wrappers.routing_vector import make_routing_vec

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed here: make test-sb3")
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from toolorchestra.envs.adapters.stable_baselines import RoutingVecEnv, make_env, make_vec_env

SCALAR = {"reward": "scalar", "preference": "none"}
SERVICE = {"domain": "finance", **SCALAR}
CASES = [("HLE-v0", SCALAR), ("FRAMES-v0", SCALAR), ("ToolScale-v0", SERVICE)]


def single(env_id: str, settings: dict[str, Any]) -> Routing:
    return Routing(gym.make(f"ToolOrchestra/{env_id}", **settings))


def play_single(env_id: str, settings: dict[str, Any], seed: int, actions: Any) -> list[tuple[Any, ...]]:
    """What the environment gives without any adapter, one episode after the other."""
    env = single(env_id, settings)
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


@pytest.mark.parametrize(("env_id", "settings"), CASES)
def test_the_same_seeds_and_actions_give_the_same_rewards_and_bills(env_id: str, settings: dict[str, Any]) -> None:
    envs = make_vec_env(f"ToolOrchestra/{env_id}", 3, seed=7, **settings)
    dummy = DummyVecEnv([lambda: make_env(f"ToolOrchestra/{env_id}", **settings) for _ in range(3)])
    dummy.seed(7)
    drawn = np.random.default_rng(0).integers(0, envs.action_space.n, (60, 3))
    alone = [play_single(env_id, settings, 7 + i, drawn[:, i]) for i in range(3)]
    assert np.array_equal(envs.reset(), dummy.reset())
    ended = 0
    for turn, actions in enumerate(drawn):
        for batch in (envs, dummy):
            observations, rewards, dones, infos = batch.step(actions)
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
    assert ended >= 6


def test_an_episode_that_runs_into_a_limit_has_ended() -> None:
    """A learner that put its estimate in the place of what would have come would pay for standing still."""
    envs = make_vec_env("ToolOrchestra/HLE-v0", 2, seed=0, max_turns=2, **SCALAR)
    envs.reset()
    answer = envs.envs.action_meanings.index("answer answer-1")
    for _ in range(2):
        _, _, dones, infos = envs.step(np.array([0, answer]))
    assert dones.tolist() == [True, True]
    assert [info["truncated_by"] for info in infos] == ["turns", ""]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
    assert envs.reset_infos[0]["task_id"] != infos[0]["task_id"]
    one = make_env("ToolOrchestra/HLE-v0", max_turns=1, **SCALAR)
    one.reset(seed=0)
    assert one.step(0)[2:4] == (True, False)


class Breaks:
    """A world that cannot take a result."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def absorb(self, call: Any, result: Any) -> None:
        raise RuntimeError(f"no room for {call.name}")


def test_a_failed_episode_is_cut_off_and_earns_nothing() -> None:
    envs = make_vec_env("ToolOrchestra/HLE-v0", 2, seed=0, **SCALAR)
    envs.reset()
    episode = envs.envs.inner.episodes[0]
    assert episode is not None
    episode.world = Breaks(episode.world)
    _, rewards, dones, infos = envs.step(np.array([0, 0]))
    assert dones.tolist() == [True, False]
    assert rewards[0] == 0
    assert infos[0]["failed"]["error"]
    assert infos[0]["TimeLimit.truncated"]
    one = make_env("ToolOrchestra/HLE-v0", **SCALAR)
    one.reset(seed=0)
    base: Any = one.unwrapped
    base.episode.world = Breaks(base.episode.world)
    _, reward, _, truncated, info = one.step(0)
    assert (reward, truncated, bool(info["failed"])) == (0.0, True, True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_librarys_own_checker_finds_nothing() -> None:
    for env_id, settings in CASES:
        check_env(make_env(f"ToolOrchestra/{env_id}", **settings))


def test_options_and_masks_reach_the_environments() -> None:
    envs = make_vec_env("ToolOrchestra/HLE-v0", 2, seed=0, **SCALAR)
    envs.set_options({"tools": ["search-2", "answer"]})
    envs.reset()
    assert [mask.sum() for mask in envs.env_method("action_masks")] == [7, 7]
    envs.set_options([{"tools": ["answer"]}, {}])
    with pytest.raises(ConfigError, match="give set_options"):
        envs.reset()


def test_what_the_library_may_ask_is_answered_or_refused() -> None:
    envs = make_vec_env("ToolOrchestra/HLE-v0", 2, **SCALAR)
    envs.seed(3)
    envs.reset()
    assert envs.has_attr("action_masks")
    assert not envs.has_attr("nonsense")
    assert envs.get_attr("action_meanings", 1) == [envs.envs.action_meanings]
    assert envs.env_is_wrapped(gym.Wrapper) == [False, False]
    with pytest.raises(AttributeError, match="only action_masks"):
        envs.env_method("render")
    with pytest.raises(AttributeError, match="make another one"):
        envs.set_attr("buckets", 3)
    envs.close()
    with pytest.raises(ConfigError, match="SAME_STEP"):
        RoutingVecEnv(make_routing_vec("ToolOrchestra/HLE-v0", 2))


def test_maskable_ppo_takes_only_what_is_offered() -> None:
    maskable = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed here: make test-sb3")
    settings = {**SCALAR, "diversify": "train"}
    envs = VecMonitor(make_vec_env("ToolOrchestra/HLE-v0", 4, seed=0, **settings))
    model = maskable.MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(128)
    observations = envs.reset()
    for _ in range(10):
        masks = np.stack(envs.env_method("action_masks"))
        assert not masks.all()
        actions, _ = model.predict(observations, action_masks=masks)
        assert masks[np.arange(4), actions].all()
        observations, *_ = envs.step(actions)


def test_ppo_learns() -> None:
    """8,000 turns are enough to leave random play behind by far."""
    envs = VecMonitor(make_vec_env("ToolOrchestra/HLE-v0", 16, seed=0, max_turns=12, **SCALAR))
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=64,
        batch_size=256,
        gamma=1.0,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    model.learn(2048)
    first = np.mean([episode["r"] for episode in model.ep_info_buffer or ()])
    model.learn(10_000, reset_num_timesteps=False)
    last = np.mean([episode["r"] for episode in model.ep_info_buffer or ()])
    assert last > first + 0.15, (first, last)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_examples_learn() -> None:
    before, after = example("ppo_stable_baselines").main(turns=16_384, episodes=60)
    assert after > before + 0.1
    one_file = example("ppo_routing")
    curve = one_file.main(one_file.Arguments(turns=16_384, batch=1024, minibatch=256))
    assert curve[-1] > curve[0] + 0.15
    assert not math.isnan(curve[-1])


def test_the_one_file_loop_leaves_failed_episodes_out() -> None:
    one_file = example("ppo_routing")
    collector = one_file.Collector(one_file.Arguments(envs=2, batch=8))
    inner: OrchestraVectorEnv = collector.envs.inner
    broken = inner.episodes[0]
    assert broken is not None
    broken.world = Breaks(broken.world)
    made = collector.collect()
    assert collector.failed <= 1
    assert all(math.isfinite(advantage) and math.isfinite(returned) for _, advantage, returned in made)


def test_gymnasiums_own_wrappers_go_on_it() -> None:
    """What a loop in CleanRL's manner puts around its environments."""
    envs = gym.wrappers.vector.RecordEpisodeStatistics(make_routing_vec("ToolOrchestra/HLE-v0", 4, **SCALAR))
    envs.reset(seed=0)
    seen = 0
    for _ in range(60):
        *_, infos = envs.step(np.full(4, 6))
        seen += int(infos["_episode"].sum()) if "episode" in infos else 0
    assert seen > 20
    assert isinstance(envs.env, RoutingVectorEnv)
    assert single("HLE-v0", SCALAR).action_meanings == DiscreteRouting(gym.make("ToolOrchestra/HLE-v0")).action_meanings
