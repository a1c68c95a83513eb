"""The chat templates that models come with show all of a native transcript: each alias, argument and result.

Templates are read from the trl that is installed; none is copied into this repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.agents.rollouts.test_chat import real_template
from tests.agents.rollouts.test_template_form import bytes_with, says
from tests.envs.base.test_openai_messages import transcript
from toolorchestra import to_native, to_openai
from toolorchestra.envs.base.actions import render
from toolorchestra.envs.base.types import Message, ToolCall

SEVERAL_CALLS = (
    "qwen2_5",
    "qwen3",
    "qwen3_instruct_2507",
    "qwen3_6",
    "glm4moe",
    "gemma4",
    "gemma4_v5",
    "nemotron_3_nano",
)
ONE_CALL = ("llama3_1", "llama3_2", "gptoss")
"""The first two refuse a message of two calls, the last shows one of them."""


def rendered(name: str, messages: Sequence[Mapping[str, Any]]) -> str:
    template = bytes_with(real_template(name)).apply_chat_template
    return str(template(list(messages), tokenize=False, add_generation_prompt=True))


@pytest.mark.parametrize("name", [*SEVERAL_CALLS, *ONE_CALL])
def test_each_alias_argument_and_result_of_a_turn_is_shown_in_its_place(name: str) -> None:
    """Made-up words, so that each can come from one place alone."""
    calls = [ToolCall(f"tool{i}", {f"key{i}": f"alias-{i}", "more": {f"in{i}": [f"deep {i} é"]}}) for i in range(4)]
    words = [word for i in range(4) for word in (f"tool{i}", f"key{i}", f"alias-{i}", f"in{i}", f"deep {i} é")]
    first = [Message(role="system", content="the rules"), Message(role="user", content="the question")]
    turns = [*first]
    for pair in (calls[:2], calls[2:]):
        turns.append(Message(role="assistant", content=render(pair)))
        turns += [Message(role="tool", name=call.name, content=f"result of {call.name}") for call in pair]
    shown, before = (rendered(name, to_native(told, parallel_calls=name not in ONE_CALL)) for told in (turns, first))
    for text in ("the rules", "the question", *(f"result of {call.name}" for call in calls)):
        assert text in shown
    for word in words:
        assert word not in before
        assert word in shown.replace("\\u00e9", "é")
    places = [shown.index(f"result of {call.name}") for call in calls]
    assert places == sorted(places)
    assert shown.index("alias-2") > places[1]


def test_where_a_template_joins_texts_openais_form_is_taken() -> None:
    """DeepSeek-V3's joins the arguments to a text, which they are in OpenAI's own form alone."""
    messages = transcript("HLE-v0", 0)
    with pytest.raises(TypeError, match="can only concatenate str"):
        rendered("deepseekv3", to_native(messages))
    shown = rendered("deepseekv3", told := to_openai(messages))
    for message in told:
        assert says(shown, message["content"].rpartition("</think>")[2]) or "tool_calls" in message
        assert all(call["function"]["arguments"] in shown for call in message.get("tool_calls", ()))
