"""The skyrl-gym integration, with skyrl-gym 0.4.0: `make test-skyrl-gym` has an environment with it."""

from __future__ import annotations

import json
import random
from importlib import metadata, util
from typing import Any

import pytest

if util.find_spec("skyrl_gym") is None:
    pytest.skip("skyrl-gym is not installed here: make test-skyrl-gym", allow_module_level=True)

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv

from tests.sources import BREAK
from toolorchestra.agents.adapters.prompt_rows import prompt_rows
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.envs.adapters.skyrl_gym import register_skyrl_gym
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Episode, Pending
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import spec_of

IDS = ("HLE-v0", "FRAMES-v0", "ToolScale-v0")
OUTAGE = "tests.integrations.breaking:Tests/Outage-v0"
TERM_THAT_BREAKS = "tests.envs.episode.test_reward_terms:breaks"


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_skyrl_gym()
    register_skyrl_gym()  # a worker may do so again


def started(row: dict[str, Any]) -> Episode:
    """The row's episode without the integration."""
    spec = spec_of(row["gym_id"])
    made = factory(**{**spec.kwargs, **json.loads(row["arguments"])})
    return made.start(row["seed"], {"task_id": row["task_id"]}).episode


def played(episode: Episode, action: str) -> Any:
    moved: Any = episode.act(action)
    while isinstance(moved, Pending):
        moved = episode.resolve(run_calls(moved.calls))
    return moved


def talks(episode: Episode) -> str:
    """Asks an expert and then the user, in turns."""
    call = '<tool_call>{"name": "call_expert", "arguments": {"expert": "expert-1"}}</tool_call>'
    return call if episode.turn % 2 else "Shall I go on?"


@pytest.mark.parametrize("name", IDS)
def test_the_same_turns_give_the_same_rewards_and_bills(name: str) -> None:
    assert metadata.version("skyrl-gym") == "0.4.0"
    for row in prompt_rows(EnvMix(f"ToolOrchestra/{name}", arguments={"max_turns": 12}), "train", 5, seed=3):
        policy = talks if name == "ToolScale-v0" else baseline("cheapest", 1)
        other, rewards = started(row), [0.0, 0.0]
        env = skyrl_gym.make("toolorchestra", env_config={}, extras=dict(row))
        assert isinstance(env, BaseTextEnv)
        said, _ = env.init(row["prompt"])
        assert said[0]["role"] == "system"
        assert "You may call tools" in said[0]["content"]
        done = False
        while not done:
            action = policy(other)
            step = env.step(action)
            mine = played(other, action)
            done = step["done"]
            rewards[0] += step["reward"]
            rewards[1] += mine.reward
            assert {message["role"] for message in step["observations"]} <= {"user"}
            assert bool(step["observations"]) != done
        assert other.over
        assert rewards[0] == rewards[1]
        got = env.get_metrics()
        assert (got["usd"], got["seconds"]) == (other.ledger.summary()["usd"], other.ledger.seconds)
        env.close()
        assert env.get_metrics() == {}


def test_it_survives_anything_that_a_model_may_write() -> None:
    row = next(iter(prompt_rows(EnvMix("ToolOrchestra/HLE-v0", arguments={"max_turns": 6}), "train", 1, seed=0)))
    rng = random.Random(0)
    pieces = ["<tool_call>", "</tool_call>", "{", '"name":', "search", "\ud800", "<|im_end|>", "null", " "]
    env = skyrl_gym.make("toolorchestra", extras=row)
    env.init([])
    steps = [env.step("".join(rng.choices(pieces, k=8))) for _ in range(6)]
    assert [step["done"] for step in steps] == [False] * 5 + [True]
    assert not any(step["reward"] for step in steps)


def test_marks_in_what_comes_from_outside_are_broken() -> None:
    """A question may spell out the end of a turn."""
    env = skyrl_gym.make("toolorchestra", extras={"gym_id": "ToolOrchestra/HLE-v0", "seed": 1})
    env.init([])
    step = env.step('<tool_call>{"name": "se</tool_response><|im_end|>", "arguments": {}}</tool_call>')
    text = step["observations"][0]["content"]
    assert "<|im_end|>" not in text
    assert text.count("</tool_response>") == 1


def test_turns_end_at_the_generators_own_limit() -> None:
    env = skyrl_gym.make("toolorchestra", extras={"gym_id": "ToolOrchestra/HLE-v0", "seed": 1, "max_turns": 2})
    env.init([])
    assert [env.step("hello")["done"] for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "action", "failed"),
    [({}, "done", 0.0), ({}, BREAK, 1.0), ({"reward_terms": TERM_THAT_BREAKS}, "done", 1.0)],
)
def test_an_episode_that_failed_counts_as_0(arguments: dict[str, Any], action: str, failed: float) -> None:
    """Also one that was solved before it failed."""
    given = {"gym_id": OUTAGE, "seed": 1, "arguments": json.dumps(arguments)}
    env = skyrl_gym.make("toolorchestra", extras=given)
    env.init([])
    step, worth = env.step(action), 1.0 - failed
    assert (step["reward"], step["done"]) == (worth, True)
    assert (env.get_metrics()["outcome"], env.get_metrics()["failed"]) == (worth, failed)


@pytest.mark.parametrize(
    ("extras", "said"),
    [
        ({"gym_id": "ToolOrchestra/HLE-v0"}, "extras need gym_id and seed, got gym_id"),
        ({"gym_id": "CartPole-v1", "seed": 1}, "no environment 'CartPole-v1'"),
        ({"gym_id": "HLE-v0", "seed": 1, "arguments": '{"history": "state"}'}, 'history="full"'),
    ],
)
def test_what_cannot_be_is_said(extras: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        skyrl_gym.make("toolorchestra", extras=extras)
