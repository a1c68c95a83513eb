"""Numbered actions and number features: constant in size, true to the episode, and enough to learn from."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import defaultdict
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.wrappers import DiscreteRouting, RoutingFeatures

PAPER = (
    *("search search-1", "search search-2", "search search-3"),
    *("enhance_reasoning reasoner-1", "enhance_reasoning reasoner-2", "enhance_reasoning reasoner-3"),
    *("answer answer-1", "answer answer-2", "answer answer-3", "answer answer-4"),
    *("answer answer-math-1", "answer answer-math-2"),
)


def discrete(env_id: str = "HLE-v0", **settings: Any) -> DiscreteRouting:
    return DiscreteRouting(gym.make(f"ToolOrchestra/{env_id}", **settings))


def routed(env_id: str = "HLE-v0", **settings: Any) -> RoutingFeatures:
    return RoutingFeatures(discrete(env_id, **settings))


def named(env: RoutingFeatures, observation: np.ndarray) -> dict[str, float]:
    return dict(zip(env.feature_names, observation.tolist(), strict=True))


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
@pytest.mark.parametrize("settings", [{}, {"tools": "plain"}, {"diversify": "train"}, {"history": "state"}])
def test_gymnasiums_checker_finds_nothing(env_id: str, settings: dict[str, Any]) -> None:
    env = routed(env_id, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(env)


def test_made_again_from_its_spec() -> None:
    env = RoutingFeatures(discrete(), buckets=16)
    assert env.spec is not None
    again = gym.make(env.spec)
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space


def test_actions_are_the_configurations_keys() -> None:
    assert discrete().action_meanings == PAPER
    plain = discrete(tools="plain").action_meanings
    assert plain[:4] == ("web_search", "local_search", "python", "ask gpt-5")
    assert plain[-1] == "submit"


def test_mask_and_spaces_stay_when_tools_are_left_out() -> None:
    env = routed()
    size = env.observation_space.shape
    observation, info = env.reset(seed=1, options={"tools": ["search-2", "answer"]})
    assert observation.shape == size
    offered = {name for name, on in zip(PAPER, info["action_mask"], strict=True) if on}
    assert offered == {"search search-2", *PAPER[6:]}
    assert info["action_mask"].dtype == np.int8
    assert env.action_space.sample(info["action_mask"]) in (1, *range(6, 12))
    features = named(env, observation)
    assert features["offered:search-2"] == 1
    assert [v for name, v in features.items() if name.endswith(":search-1") and "weight" not in name] == [0] * 5


def test_what_is_not_offered_gets_the_episodes_error() -> None:
    env = discrete()
    env.reset(seed=1, options={"tools": ["search-2", "answer"]})
    for action, complaint in ((0, "search-1"), (3, "no tool 'enhance_reasoning'")):
        _, _, terminated, _, info = env.step(action)
        assert not terminated
        assert info["new_messages"][-1]["content"].startswith("Error:")
        assert complaint in info["new_messages"][-1]["content"]
        assert info["action_mask"].sum() == 7


def test_mask_follows_sampled_subsets() -> None:
    env = discrete(diversify="train")
    sums = set()
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        body = str(observation["tools"])
        assert [f"'{m.split()[1]}'" in body for m in env.action_meanings] == info["action_mask"].tolist()
        sums.add(int(info["action_mask"].sum()))
    assert len(sums) > 1


def test_arguments_follow_templates() -> None:
    env = discrete("FRAMES-v0", tools="plain", preference="none")
    observation, _ = env.reset(seed=4)
    number = env.action_meanings.index
    question = observation["messages"][1]["content"]
    body = question.split("\n", 1)[1]

    def arguments(meaning: str) -> dict[str, Any]:
        return parse(env.action(number(meaning))).calls[0].arguments

    assert arguments("submit") == {"answer": "unknown"}
    for search in ("local_search", "web_search"):
        assert arguments(search) == {"query": body[:390]}
    assert arguments("ask gpt-5") == {"model": "gpt-5"}
    env.step(number("local_search"))
    found = env.unwrapped.episode.messages[-1]["content"]  # type: ignore[attr-defined]
    assert arguments("submit") == {"answer": found[:2000]}
    *_, info = env.step(number("python"))
    printed = info["new_messages"][-1]["content"]
    assert printed.startswith("Output: ")
    assert printed.removeprefix("Output: ") in found
    *_, terminated, _, info = env.step(number("submit"))
    assert terminated
    assert info["outcome"]["evidence"]["answer"] == printed


@pytest.mark.parametrize(
    ("text", "code"),
    [("none", "print(0)"), ("007", "print(7)"), ("on 2024-05-07", "print(7)"), ("x -3.50", "print(-3.50)")],
)
def test_last_number_is_a_python_literal(text: str, code: str) -> None:
    env = discrete(tools="plain")
    env.reset(seed=0)
    episode = env.unwrapped.episode  # type: ignore[attr-defined]
    message = type(episode.messages[1])(role="user", content=f"Subject: x. Level 9 of 9.\n{text}")
    episode.messages = (episode.messages[0], message)
    assert parse(env.action(2)).calls[0].arguments == {"code": code}


@pytest.mark.parametrize("action", [-1, 12, "search", 1.5])
def test_other_actions_are_refused(action: Any) -> None:
    env = discrete()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="from 0 to 11"):
        env.step(action)


def test_misuse_is_named() -> None:
    with pytest.raises(ConfigError, match="CartPoleEnv"):
        DiscreteRouting(gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="buckets"):
        RoutingFeatures(discrete(), buckets=0)
    with pytest.raises(ResetNeeded, match=r"reset\(\)"):
        discrete().action_mask()
    with pytest.raises(ResetNeeded, match=r"reset\(\)"):
        discrete().step(0)


def test_features_tell_the_episode() -> None:
    env = routed(preference={"outcome": 1, "usd": 0.5, "search-1": 0.25})
    task = "hle-sim/train/671588"  # its facts need searching
    observation, _ = env.reset(seed=0, options={"task_id": task})
    start = named(env, observation)
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


def test_features_stay_in_bounds_to_the_end() -> None:
    env = routed("FRAMES-v0", diversify="heldout", max_turns=120)
    env.action_space.seed(0)
    for seed in range(10):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            assert observation in env.observation_space
            searches = info["action_mask"] * (np.arange(12) < 6).astype(np.int8)
            observation, _, terminated, truncated, info = env.step(env.action_space.sample(searches))
            over = terminated or truncated
        assert observation in env.observation_space
        assert named(env, observation)["turn"] == 1


def test_headers_are_hashed_stably_and_told_apart() -> None:
    env = routed()
    headers: dict[str, set[tuple[float, ...]]] = {}
    for seed in range(300):
        observation, _ = env.reset(seed=seed)
        text = env.unwrapped.episode.world.question.text.partition("\n")[0]  # type: ignore[attr-defined]
        hashed = tuple(v for name, v in named(env, observation).items() if name.startswith("header_"))
        headers.setdefault(text, set()).add(hashed)
    assert len(headers) == 50
    assert all(len(seen) == 1 for seen in headers.values())
    assert len({next(iter(seen)) for seen in headers.values()}) == 50
    program = (
        "import gymnasium as gym, toolorchestra\n"
        "from toolorchestra.envs.wrappers import *\n"
        "env = RoutingFeatures(DiscreteRouting(gym.make('ToolOrchestra/HLE-v0')))\n"
        "print(env.reset(seed=5)[0].tobytes().hex())"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == env.reset(seed=5)[0].tobytes().hex()


def test_runs_in_gymnasiums_vector_environment() -> None:
    envs = gym.make_vec(
        "ToolOrchestra/HLE-v0",
        num_envs=3,
        vectorization_mode="sync",
        wrappers=[DiscreteRouting, RoutingFeatures],
    )
    observations, infos = envs.reset(seed=1)
    assert observations.shape == (3, *(envs.single_observation_space.shape or ()))
    assert infos["action_mask"].shape == (3, 12)
    for _ in range(20):
        observations, *_ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space
    envs.close()


EPISODES, WINDOW = 2500, 400


def learn(env: RoutingFeatures, seed: int, *, greedy: bool = True) -> list[float]:
    """Monte Carlo control over a table: the state is the header's hash and which kinds of material lie on the desk."""
    rng = np.random.default_rng(seed)
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    value: dict[bytes, np.ndarray] = defaultdict(lambda: np.full(actions, 0.5))
    count: dict[bytes, np.ndarray] = defaultdict(lambda: np.zeros(actions))
    header = [n for n, name in enumerate(env.feature_names) if name.startswith("header_")]
    desk = [env.feature_names.index(name) for name in ("documents", "results", "last_found_nothing")]
    returns = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=seed * EPISODES + episode)
        path, over = [], False
        explore = max(0.02, 1 - 2 * episode / EPISODES) if greedy else 1.0
        while not over:
            state = (observation[header + desk] > 0).tobytes()
            action = int(rng.integers(actions) if rng.random() < explore else value[state].argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            path.append((state, action, float(reward)))
            over = terminated or truncated
        total = 0.0
        for state, action, reward in reversed(path):
            total += reward
            count[state][action] += 1
            value[state][action] += (total - value[state][action]) / count[state][action]
        returns.append(total)
    return returns


def test_a_tabular_learner_improves() -> None:
    for seed in range(3):
        # In this world one play tells much of what an action is worth, so that a table learns in few episodes.
        env = routed(world="2025-11", reward="scalar", preference="none", max_turns=12)
        learnt, random = learn(env, seed), learn(env, seed, greedy=False)
        first, last = np.mean(learnt[:WINDOW]), np.mean(learnt[-WINDOW:])
        assert last > first + 0.3, (seed, first, last)
        assert last > np.mean(random) + 0.3, (seed, last, np.mean(random))
