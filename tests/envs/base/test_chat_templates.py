"""The chat templates that models come with show all of a native transcript: each alias, argument and result.

Templates are read from the trl that is installed; none is copied into this repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.agents.rollouts.test_chat import real_template
from tests.agents.rollouts.test_template_form import bytes_with, says
from tests.envs.base.test_openai_messages import EVERY_ID, transcript
from toolorchestra import hermes_prompt, to_hermes, to_native, to_openai
from toolorchestra.envs.base.actions import render
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import SOURCES

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
FAMILIES = (*SEVERAL_CALLS, *ONE_CALL)
WITHOUT_TOOLS = ("gemma3", "cohere2", "phi3", "llama3", "deepseek_r1_distill")
"""They show no tools or no results, so these are told as text."""
WITHOUT_WORDS_BESIDE_CALLS = ONE_CALL
"""Llama's leave them out; gpt-oss's takes them for a thought, and leaves out old ones."""


def rendered(name: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> str:
    return str(
        bytes_with(real_template(name)).apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=True
        )
    )


def native(name: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return to_native(messages, parallel_calls=name not in ONE_CALL)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_alias_argument_and_result_of_a_turn_is_shown_in_its_place(name: str) -> None:
    """Made-up words, so that each can come from one place alone."""
    calls = [ToolCall(f"tool{i}", {f"key{i}": f"alias-{i}", "more": {f"in{i}": [f"deep {i} é"]}}) for i in range(4)]
    words = [word for i in range(4) for word in (f"tool{i}", f"key{i}", f"alias-{i}", f"in{i}", f"deep {i} é")]
    first = [Message(role="system", content="the rules"), Message(role="user", content="the question")]
    turns = [*first]
    for pair in (calls[:2], calls[2:]):
        turns.append(Message(role="assistant", content=render(pair)))
        turns += [Message(role="tool", name=call.name, content=f"result of {call.name}") for call in pair]
    shown = rendered(name, native(name, turns))
    before = rendered(name, native(name, first))
    for text in ("the rules", "the question", *(f"result of {call.name}" for call in calls)):
        assert text in shown
    for word in words:
        assert word not in before
        assert word in shown.replace("\\u00e9", "é")
    places = [shown.index(f"result of {call.name}") for call in calls]
    assert places == sorted(places)
    assert shown.index("alias-2") > places[1]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("env_id", "settings"), [EVERY_ID[0], EVERY_ID[3]])
def test_nothing_of_an_episode_is_lost(env_id: str, settings: Mapping[str, Any], name: str) -> None:
    made = factory(SOURCES[env_id], max_turns=12, **settings)
    tools = made.start(0).episode.world.toolbox.schemas
    messages = native(name, transcript(env_id, 0, **settings))
    shown = rendered(name, messages, tools)
    for message in messages:
        beside_calls = "tool_calls" in message and name in WITHOUT_WORDS_BESIDE_CALLS
        assert beside_calls or says_thoughts_aside(shown, message["content"])
        for call in message.get("tool_calls", ()):
            for text in values_in(call["function"]["arguments"]):
                assert says(shown, text) or json.dumps(text)[1:-1] in shown
    for text in told_of(tools):
        assert says(shown, text)


def told_of(tools: Sequence[Any]) -> Iterator[str]:
    """Names, descriptions and aliases. gpt-oss's shows no insides of an object, Gemma 4's no defaults."""
    for tool in tools:
        yield from (tool["function"]["name"], tool["function"]["description"])
        for name, part in tool["function"]["parameters"]["properties"].items():
            yield from (name, part["description"], *map(str, part.get("enum", ())))


def says_thoughts_aside(shown: str, content: str) -> bool:
    """Templates write thoughts in a form of their own, and drop old ones."""
    return says(shown, content.rpartition("</think>")[2])


def values_in(arguments: Any) -> list[str]:
    """Names and texts of a call's arguments, at any depth."""
    if isinstance(arguments, dict):
        return [text for key, part in arguments.items() for text in (str(key), *values_in(part))]
    if isinstance(arguments, list):
        return [text for part in arguments for text in values_in(part)]
    return [arguments] if isinstance(arguments, str) else []


def test_where_a_template_joins_texts_openais_form_is_taken() -> None:
    """DeepSeek-V3's joins the arguments to a text, which they are in OpenAI's own form alone."""
    messages = transcript("HLE-v0", 0)
    with pytest.raises(TypeError, match="can only concatenate str"):
        rendered("deepseekv3", to_native(messages))
    shown = rendered("deepseekv3", told := to_openai(messages))
    for message in told:
        assert says_thoughts_aside(shown, message["content"]) or "tool_calls" in message
        assert all(call["function"]["arguments"] in shown for call in message.get("tool_calls", ()))


@pytest.mark.parametrize("name", [*WITHOUT_TOOLS, "gptoss"])
def test_as_text_every_template_shows_all(name: str) -> None:
    messages = transcript("HLE-v0", 1)
    tools = factory(SOURCES["HLE-v0"]).start(1).episode.world.toolbox.schemas
    told = to_hermes(messages, tools)
    shown = rendered(name, told)
    assert says(shown, hermes_prompt(tools))
    assert all(says_thoughts_aside(shown, message["content"]) for message in told)
    assert shown.count("<tool_response>\n") == sum(message["role"] == "tool" for message in messages)
