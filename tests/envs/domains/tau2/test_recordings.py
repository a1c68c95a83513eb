"""Recorded runs: what is read of them, what is refused by its line, and where a replay goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.tau2_playing import SOURCE, env_of, needs_package, world_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.world import read_recordings, write_recordings
from toolorchestra.envs.env import OrchestraEnv

pytestmark = needs_package
HISTORY = "update_task_with_message_history"


def test_a_recorded_run_of_a_task_that_begins_in_mid_conversation_goes_on_from_there(tmp_path: Path) -> None:
    live, file = env_of("mock", "scripted", HISTORY), str(tmp_path / "runs.jsonl")
    texts = ["Is there anything else I can do?"] * 2
    last = [live.step(text) for text in texts if not live.episode.over][-1]
    write_recordings(file, [world_of(live).recording("mine", 0.0)])
    again = OrchestraEnv(SOURCE, domain="mock", user="replay", split="recorded", recordings=file, preference="none")
    again.reset(seed=0)
    replayed = [again.step(text) for text in texts if not again.episode.over][-1]
    assert replayed[1:4] == last[1:4]
    assert world_of(again).log == world_of(live).log


def test_what_a_failed_episode_was_worth_is_written_as_strict_json_has_it(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    write_recordings(str(file), [world_of(env_of("airline", "scripted", "0")).recording("mine", math.nan)])
    assert json.loads(file.read_text())["reward"] is None
    assert math.isnan(read_recordings(str(file))["mine"].reward)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (None, "messages are a list"),
        ([{"content": "x"}], "'role'"),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "content is a text"),
        ([{"role": "user", "tool_calls": [{"name": "x"}]}], "'arguments'"),
        ([{"role": "user", "tool_calls": [{"name": "x", "arguments": "[]"}]}], "arguments are an object"),
        ([{"role": "user", "tool_calls": [{"name": "x", "arguments": "{"}]}], "JSONDecodeError"),
    ],
)
def test_messages_that_cannot_be_read_are_named_by_their_line(messages: Any, error: str, tmp_path: Path) -> None:
    file = recorded(tmp_path, messages)
    with pytest.raises(ConfigError, match=f"line 1 is no recorded run: .*{error}"):
        read_recordings(file)


def test_arguments_of_a_recorded_call_may_be_json_text(tmp_path: Path) -> None:
    call = {"name": "toggle_data", "arguments": '{"a": 1}'}
    (run,) = read_recordings(recorded(tmp_path, [{"role": "user", "content": None, "tool_calls": [call]}])).values()
    assert run.user_turns()[0].calls == (ToolCall("toggle_data", {"a": 1}),)


def recorded(folder: Path, messages: Any) -> str:
    """A file of one recorded run with these messages."""
    row = {"domain": "airline", "solo": False, "task_id": "0", "sim_id": "mine", "termination_reason": "user_stop"}
    (folder / "runs.jsonl").write_text(json.dumps({**row, "reward": 0, "messages": messages}), encoding="utf-8")
    return str(folder / "runs.jsonl")
