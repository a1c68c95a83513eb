"""messages="native": the same episodes, shown with calls as structures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.tau2_playing import needs_package
from toolorchestra import action_of, from_openai, to_native
from toolorchestra.envs.base.spaces import Transcripts
from toolorchestra.envs.base.types import Message, Rows
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.testing import RandomCaller, check_environment
from toolorchestra.envs.wrappers import RecordTrajectories, read_trajectories

BOTH = action_of([("search", {"model": "search-1"}), ("search", {"model": "search-2"})], "Both.")
ANSWER = action_of([("answer", {"model": "answer-1"})])


def made(env_id: str = "HLE-v0", messages: str = "native", **settings: Any) -> OrchestraEnv:
    env = gym.make(f"ToolOrchestra/{env_id}", messages=messages, **settings).unwrapped
    assert isinstance(env, OrchestraEnv)
    return env


EVERY_ID = [
    pytest.param("HLE-v0", {}),
    pytest.param("HLE-v0", {"history": "state"}),
    pytest.param("ToolScale-v0", {}),
    pytest.param("Tau2-v0", {"domain": "telecom"}, marks=needs_package),
]


def test_native_messages_conform() -> None:
    """Also: single and vector are one, seeds repeat, observations only grow and fit their space."""
    check_environment("ToolOrchestra/HLE-v0", messages="native", seeds=(0,), episodes=1, abandoned=30)


@pytest.mark.parametrize(("env_id", "settings"), EVERY_ID)
def test_only_the_messages_differ(env_id: str, settings: Mapping[str, Any]) -> None:
    native, text = made(env_id, **settings), made(env_id, "text", **settings)
    caller = RandomCaller(5)
    for seed in range(2):
        (shown, opening), (read, same) = native.reset(seed=seed), text.reset(seed=seed)
        assert opening == same
        over = False
        while not over:
            assert text.episode is not None
            assert shown["messages"] == to_native(read["messages"])
            assert shown["tools"] is read["tools"] or shown["tools"] == read["tools"]
            assert read == text.episode.observation
            action = caller(text.episode)
            shown, *ours, info = native.step(action)
            read, *theirs, plain = text.step(action)
            over = ours[1] or ours[2]
            assert ours == theirs
            assert without(info) == without(plain)
            assert [m["role"] for m in info["new_messages"]][:1] == ["assistant"]
            if "history" not in settings:
                assert tuple(shown["messages"])[-len(info["new_messages"]) :] == info["new_messages"]


def without(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key != "new_messages"}


def test_a_turn_as_the_agent_sees_it() -> None:
    env = made()
    env.reset(seed=1)
    observation, *_, info = env.step(BOTH)
    said, first, second = info["new_messages"]
    assert (said["content"], [call["id"] for call in said["tool_calls"]]) == ("Both.", ["call00000", "call00001"])
    assert said["tool_calls"][1]["function"] == {"name": "search", "arguments": {"model": "search-2"}}
    assert (first["tool_call_id"], second["tool_call_id"]) == ("call00000", "call00001")
    assert (first["name"], second["name"]) == ("search", "search")
    assert env.observation_space.contains(observation)
    assert json.loads(json.dumps(observation["messages"])) == observation["messages"]
    observation, *_ = env.step(from_openai(said))
    assert [m["tool_call_id"] for m in observation["messages"] if m["role"] == "tool"][2:] == ["call00100", "call00101"]


def test_what_is_seen_cannot_be_changed_and_is_rewritten_once() -> None:
    env = made()
    env.reset(seed=1)
    before, *_ = env.step(BOTH)
    with pytest.raises(TypeError, match="cannot be changed"):
        before["messages"][2]["tool_calls"][0]["function"]["arguments"]["model"] = "other"
    after, *_ = env.step(BOTH)
    assert all(old is new for old, new in zip(before["messages"], after["messages"], strict=False))


def test_a_recording_is_the_same_in_both_forms(tmp_path: Path) -> None:
    rows = []
    for form in ("text", "native"):
        env = RecordTrajectories(made(messages=form), tmp_path / form)
        env.reset(seed=4)
        for action in (BOTH, ANSWER):
            env.step(action)
        env.close()
        rows += read_trajectories(tmp_path / form)
    assert rows[0] == rows[1]


CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": {}}}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "tool", "name": "look", "content": "r"}],
        [{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "b"}],
        [{"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": None}]}],
    ],
)
def test_the_space_takes_no_result_without_its_call(messages: Sequence[dict[str, Any]]) -> None:
    observation = {"messages": Rows(map(Message, messages)), "tools": Rows()}
    assert Transcripts().contains(observation)
    assert not Transcripts("native").contains(observation)
