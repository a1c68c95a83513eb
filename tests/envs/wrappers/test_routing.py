"""Episodes in numbers: constant in size, true to the episode, and many at once equal to one at a time."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.wrappers import Routing, RoutingVectorEnv, make_routing_vec

SCALAR = {"reward": "scalar", "preference": "none"}
HLE = "ToolOrchestra/HLE-v0"
PAPER = (
    *("search search-1", "search search-2", "search search-3"),
    *("enhance_reasoning reasoner-1", "enhance_reasoning reasoner-2", "enhance_reasoning reasoner-3"),
    *("answer answer-1", "answer answer-2", "answer answer-3", "answer answer-4"),
    *("answer answer-math-1", "answer answer-math-2"),
)


def routing(env_id: str = "HLE-v0", **settings: Any) -> Routing:
    return Routing(gym.make(f"ToolOrchestra/{env_id}", **settings))


def episode_of(env: Routing) -> Episode:
    base = env.unwrapped
    assert isinstance(base, OrchestraEnv)
    assert base.episode is not None
    return base.episode


def named(env: Routing, observation: np.ndarray) -> dict[str, float]:
    return dict(zip(env.feature_names, observation.tolist(), strict=True))


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [("HLE-v0", {"diversify": "train"}), ("HLE-v0", {"history": "state"}), ("FRAMES-v0", {"tools": "plain"})],
)
def test_gymnasiums_checker_finds_nothing(env_id: str, settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(routing(env_id, **settings))


def test_actions_are_the_configurations_keys() -> None:
    assert routing().action_meanings == PAPER
    plain = routing(tools="plain").action_meanings
    assert plain[:4] == ("web_search", "local_search", "python", "ask gpt-5")
    assert plain[-1] == "submit"


def test_tools_that_no_number_stands_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "docs" / "examples" / "seams")
    env = Routing(gym.make("tool:Example/Pages-v0", preference="none"))
    with pytest.warns(UserWarning, match="no action stands for open_page"):
        env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset(seed=1)


def test_mask_and_spaces_stay_when_tools_are_left_out() -> None:
    env = routing()
    size = env.observation_space.shape
    observation, info = env.reset(seed=1, options={"tools": ["search-2", "answer"]})
    assert observation.shape == size
    offered = {name for name, on in zip(PAPER, info["action_mask"], strict=True) if on}
    assert offered == {"search search-2", *PAPER[6:]}
    assert np.array_equal(env.action_masks(), info["action_mask"] == 1)
    assert env.action_space.sample(info["action_mask"]) in (1, *range(6, 12))
    features = named(env, observation)
    assert features["offered:search-2"] == 1
    assert [v for name, v in features.items() if name.endswith(":search-1") and "weight" not in name] == [0] * 5
    for action, complaint in ((0, "search-1"), (3, "no tool 'enhance_reasoning'")):  # what is not offered
        _, _, terminated, _, info = env.step(action)
        assert not terminated
        assert info["new_messages"][-1]["content"].startswith("Error:")
        assert complaint in info["new_messages"][-1]["content"]


def test_arguments_follow_templates() -> None:
    env = routing("FRAMES-v0", tools="plain", preference="none")
    env.reset(seed=4)
    number = env.action_meanings.index
    body = str(episode_of(env).messages[1]["content"]).split("\n", 1)[1]

    def arguments(meaning: str) -> dict[str, Any]:
        return parse(env.view.text(number(meaning), episode_of(env))).calls[0].arguments

    assert arguments("submit") == {"answer": "unknown"}
    for search in ("local_search", "web_search"):
        assert arguments(search) == {"query": body[:390]}
    assert arguments("ask gpt-5") == {"model": "gpt-5"}
    env.step(number("local_search"))
    found = str(episode_of(env).messages[-1]["content"])
    assert arguments("submit") == {"answer": found[:2000]}
    episode = episode_of(env)
    before = episode.messages
    for text, code in (("007", "print(7)"), ("x -3.50", "print(-3.50)")):
        episode.messages = (*before, Message(role="tool", content=text))
        assert arguments("python") == {"code": code}
    episode.messages = before
    *_, info = env.step(number("python"))
    printed = info["new_messages"][-1]["content"]
    assert printed.startswith("Output: ")
    assert printed.removeprefix("Output: ") in found
    *_, terminated, _, info = env.step(number("submit"))
    assert terminated
    assert info["outcome"]["evidence"]["answer"] == printed


def test_misuse_is_named() -> None:
    with pytest.raises(ConfigError, match="Routing goes around a ToolOrchestra environment, got CartPoleEnv"):
        Routing(gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="has no tool configuration to number; act on it with text"):
        routing("ToolScale-v0")
    with pytest.raises(ConfigError, match="buckets must be 1 or more, got 0"):
        Routing(gym.make(HLE), buckets=0)
    env = routing()
    for ask in (env.action_masks, env.observe, lambda: env.step(0)):
        with pytest.raises(ResetNeeded, match=r"reset\(\)"):
            ask()
    env.reset(seed=0)
    for action in (-1, 12, "search", 1.5, np.array([1])):
        with pytest.raises(ValueError, match="from 0 to 11"):
            env.step(action)


def test_features_tell_the_episode() -> None:
    env = routing(preference={"outcome": 1, "usd": 0.5, "search-1": 0.25})
    task = "hle-sim/train/671588"  # its facts need searching
    observation, _ = env.reset(seed=0, options={"task_id": task})
    start = named(env, observation)
    header = [name for name, value in start.items() if name.startswith("header_") and value]
    assert header == ["header_14", "header_27", "header_34", "header_63"]  # in every process
    assert start["weight:outcome"] == 1
    assert start["weight:usd"] == 0.5
    assert start["weight:search-1"] == 0.25
    assert start["usd_per_mtok_out:answer-1"] > start["usd_per_mtok_out:answer-2"] > start["usd_per_mtok_out:answer-4"]
    assert start["seconds:answer-1"] > start["seconds:answer-4"] > 0
    assert start["usd_per_use:reasoner-1"] > 0 == start["usd_per_use:answer-1"]
    assert not any(start[name] for name in ("turn", "documents", "results", "failed_searches", "usd", "seconds"))
    now = start
    for _ in range(6):
        observation, *_ = env.step(0)
        now = named(env, observation)
        assert observation in env.observation_space
    assert now["turn"] == pytest.approx(6 / 50)
    assert now["documents"] > 0
    assert now["last_found_nothing"] == 1
    assert now["failed_searches"] > 0
    observation, *_ = env.step(3)
    later = named(env, observation)
    assert later["last_found_nothing"] == 0
    assert later["results"] > 0
    assert later["usd"] > now["usd"] > 0
    assert later["seconds"] > now["seconds"] > 0


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_many_play_as_gymnasiums_own_vector_environment_does(mode: AutoresetMode) -> None:
    settings = {**SCALAR, "diversify": "train"}
    ours = make_routing_vec(HLE, 3, autoreset_mode=mode, **settings)
    theirs = gym.vector.SyncVectorEnv([lambda: routing(**settings)] * 3, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    (observations, infos), (expected, wanted) = ours.reset(seed=4), theirs.reset(seed=4)
    drawn, ended = np.random.default_rng(1), 0
    for _ in range(30):
        assert observations in ours.observation_space
        assert np.array_equal(observations, expected)
        assert np.array_equal(infos["action_mask"], wanted["action_mask"])
        assert infos["_action_mask"].all()
        actions = drawn.integers(0, ours.single_action_space.n, 3)  # type: ignore[attr-defined]
        observations, rewards, terminations, truncations, infos = ours.step(actions)
        expected, awaited, ends, cuts, wanted = theirs.step(actions)
        assert rewards.tolist() == awaited.tolist()
        assert (terminations.tolist(), truncations.tolist()) == (ends.tolist(), cuts.tolist())
        ended += int((terminations | truncations).sum())
        if "final_obs" in wanted:
            for last, other, on in zip(infos["final_obs"], wanted["final_obs"], wanted["_final_obs"], strict=True):
                assert np.array_equal(last, other) if on else last is None
            assert infos["final_info"].keys() == wanted["final_info"].keys()
            for name in ("action_mask", "_action_mask"):
                assert np.array_equal(infos["final_info"][name], wanted["final_info"][name])
    assert ended > 3
    ours.close()


def test_wrappers_beneath_see_what_is_played() -> None:
    beneath = HalvedRewards(gym.make_vec(HLE, 2, vectorization_mode="vector_entry_point", **SCALAR))
    envs, plain = RoutingVectorEnv(beneath), make_routing_vec(HLE, 2, **SCALAR)
    _, infos = envs.reset(seed=4)
    plain.reset(seed=4)
    assert infos["begun"]
    assert (envs.step(np.array([0, 6]))[1] == plain.step(np.array([0, 6]))[1] / 2).all()


class HalvedRewards(gym.vector.VectorWrapper):
    """Any wrapper of a vector's."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(**arguments)
        return observations, {**infos, "begun": True}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, *others = self.env.step(actions)
        return (observations, rewards / 2, *others)  # type: ignore[return-value]


def test_some_are_reset_alone_where_nothing_resets_them() -> None:
    envs = make_routing_vec(HLE, 2, autoreset_mode=AutoresetMode.DISABLED, **SCALAR)
    envs.reset(seed=0)
    answer = envs.action_meanings.index("answer answer-1")
    *_, terminations, _, _ = envs.step(np.array([answer, 0]))
    assert terminations.tolist() == [True, False]
    before = envs.inner.episodes
    with pytest.raises(ResetNeeded, match="environment 0 is over"):
        envs.step(np.array([0, 0]))
    envs.reset(options={"reset_mask": np.array([True, False])})
    after = envs.inner.episodes
    assert after[0] is not before[0]
    assert after[1] is before[1]
    envs.step(np.array([0, 0]))


def test_misuse_of_many_is_named() -> None:
    with pytest.raises(ConfigError, match="expected OrchestraVectorEnv, got SyncVectorEnv"):
        RoutingVectorEnv(gym.make_vec(HLE, 2, vectorization_mode="sync"))
    envs = make_routing_vec(HLE, 2)
    with pytest.raises(ResetNeeded, match=r"reset\(\) first"):
        envs.step(np.array([0, 0]))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="one action for each of 2 environments is needed, got 1"):
        envs.step(np.array([0]))
    with pytest.raises(ValueError, match="from 0 to 11"):
        envs.step(np.array([0, 12]))
    with pytest.raises(ValueError, match="from 0 to 11"):
        envs.step([0.5, 1])
