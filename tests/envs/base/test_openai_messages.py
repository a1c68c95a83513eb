"""Calls as text and as structures: one says what the other says, in OpenAI's own types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolorchestra  # noqa: F401 - registers the ids
from tests.tau2_playing import needs_package
from toolorchestra import action_of, from_openai, render_call, to_native, to_openai
from toolorchestra.envs.base.actions import CLOSE, OPEN, Action, parse, render
from toolorchestra.envs.base.openai_messages import as_text
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.testing import RandomCaller

A, B = ToolCall("look", {"at": "größe", "n": 2}), ToolCall("ask", {"model": 'a "quoted" one'})


def said(*calls: ToolCall, text: str = "", thought: str = "") -> Message:
    return Message(role="assistant", content=render(calls, text, thought))


def result(name: str, content: str) -> Message:
    return Message(role="tool", name=name, content=content)


@cache
def transcript(env_id: str, seed: int, **settings: Any) -> list[Message]:
    """What a random caller sees, with a turn of two calls, one of talk beside a call, and one that is no action."""
    env = gym.make(f"ToolOrchestra/{env_id}", max_turns=12, **settings).unwrapped
    assert isinstance(env, OrchestraEnv)
    env.reset(seed=seed)
    caller = RandomCaller(seed)
    assert env.episode is not None
    tools = list(env.episode.world.toolbox)[:2]
    first = [ToolCall(tool.name, caller.value(tool.parameters)) for tool in tools]
    for action in (render(first, "Both at once.", "hm"), f"{OPEN}broken{CLOSE}"):
        if not env.episode.over:
            env.step(action)
    while not env.episode.over:
        env.step(caller(env.episode))
    return list(env.episode.messages)


EVERY_ID = [
    pytest.param("HLE-v0", {}),
    pytest.param("FRAMES-v0", {"tools": "plain"}),
    pytest.param("ToolScale-v0", {}),
    pytest.param("Tau2-v0", {"domain": "telecom"}, marks=needs_package),
    pytest.param("Tau2-v0", {"domain": "retail", "user": "scripted"}, marks=needs_package),
]


@pytest.mark.parametrize(("env_id", "settings"), EVERY_ID)
def test_every_message_is_one_of_openais_and_has_no_field_of_ours(env_id: str, settings: Mapping[str, Any]) -> None:
    types = pytest.importorskip("openai.types.chat", reason='openai is not installed: pip install -e ".[dev]"')
    pydantic = pytest.importorskip("pydantic")
    known = pydantic.TypeAdapter(types.ChatCompletionMessageParam)
    own = {
        "system": types.ChatCompletionSystemMessageParam,
        "user": types.ChatCompletionUserMessageParam,
        "assistant": types.ChatCompletionAssistantMessageParam,
        "tool": types.ChatCompletionToolMessageParam,
    }
    calls = 0
    for seed in range(2):
        for message in to_openai(transcript(env_id, seed, **settings)):
            known.validate_python(message)
            assert message.keys() <= get_type_hints(own[message["role"]]).keys()
            calls += len(message.get("tool_calls", ()))
    assert calls >= 2


@pytest.mark.parametrize("parallel_calls", [True, False])
@pytest.mark.parametrize(("env_id", "settings"), EVERY_ID)
def test_nothing_that_was_said_called_or_found_is_lost(
    env_id: str, settings: Mapping[str, Any], parallel_calls: bool
) -> None:
    for seed in range(2):
        messages = transcript(env_id, seed, **settings)
        told = to_native(messages, parallel_calls=parallel_calls)
        made = [(c["function"]["name"], c["function"]["arguments"]) for m in told for c in m.get("tool_calls", ())]
        assert made == [call for m in messages if m["role"] == "assistant" for call in calls_of(m["content"])]
        of_tools = [m["content"] for m in messages if m["role"] == "tool" and m["name"] != "parser"]
        assert [m["content"] for m in told if m["role"] == "tool"] == of_tools
        others = [m["content"] for m in messages if m["role"] in ("system", "user") or m.get("name") == "parser"]
        assert [m["content"] for m in told if m["role"] in ("system", "user")] == others
        answered(told, alone=not parallel_calls)
        assert to_native(told, parallel_calls=parallel_calls) == told
        assert to_openai(told, parallel_calls=parallel_calls) == to_openai(messages, parallel_calls=parallel_calls)


def calls_of(text: str) -> Sequence[ToolCall]:
    try:
        return parse(text).calls
    except ValueError:
        return ()


def answered(told: Sequence[Mapping[str, Any]], *, alone: bool) -> None:
    """Each result stands behind its call, and each call but those of the end has one."""
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    for message in told:
        if message["role"] == "tool":
            assert waiting.pop(message["tool_call_id"]) == message["name"]
        else:
            assert not waiting
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen
            assert len(call["id"]) == 9
            seen.add(call["id"])
            waiting[call["id"]] = call["function"]["name"]
        assert not alone or len(message.get("tool_calls", ())) < 2


def test_a_turn_in_full() -> None:
    messages = [said(A, B, text="Both.", thought="Why not?"), result("look", "seen"), result("ask", "heard")]
    arguments = ['{"at": "größe", "n": 2}', '{"model": "a \\"quoted\\" one"}']
    calls = [
        {"id": f"call0000{i}", "type": "function", "function": {"name": call.name, "arguments": arguments[i]}}
        for i, call in enumerate((A, B))
    ]
    content = "<think>\nWhy not?\n</think>\n\nBoth."
    answers = [
        {"role": "tool", "tool_call_id": "call00000", "content": "seen"},
        {"role": "tool", "tool_call_id": "call00001", "content": "heard"},
    ]
    assert to_openai(messages) == [{"role": "assistant", "content": content, "tool_calls": calls}, *answers]
    assert to_openai(messages, parallel_calls=False) == [
        {"role": "assistant", "content": content, "tool_calls": calls[:1]},
        answers[0],
        {"role": "assistant", "content": "", "tool_calls": calls[1:]},
        answers[1],
    ]


def test_what_no_call_asked_for_is_the_users_and_a_call_without_result_gets_an_empty_one() -> None:
    """OpenAI's server refuses a result without a call, and a call without a result."""
    broken = Message(role="assistant", content=OPEN)
    told = to_openai([result("stray", "early"), broken, result("parser", "Error: no"), said(A), said(text="Done.")])
    assert [(m["role"], m["content"]) for m in told] == [
        ("user", "early"), ("assistant", OPEN), ("user", "Error: no"), ("assistant", ""), ("tool", ""),
        ("assistant", "Done."),
    ]  # fmt: skip
    assert to_openai([said(A)])[-1]["role"] == "assistant"  # cut off before it ran: the end
    told = to_openai([said(A, B), Message(role="user", content="shown to you"), result("ask", "heard")])
    assert [(m["role"], m["content"]) for m in told[1:]] == [("tool", ""), ("tool", "heard"), ("user", "shown to you")]


WORDS = st.text("abcäö {}\"'\\\n<>/:.,", max_size=20).map(str.strip)
CALLS = st.lists(
    st.builds(
        ToolCall, st.text("abc_", min_size=1), st.dictionaries(WORDS, st.one_of(WORDS, st.integers(), st.none()))
    ),
    max_size=4,
)


@given(CALLS, WORDS, WORDS)
def test_a_turn_comes_back_as_it_went(calls: list[ToolCall], text: str, thought: str) -> None:
    if not calls and not text:
        return
    (told,) = to_openai([said(*calls, text=text, thought=thought)])
    assert parse(from_openai(told)) == Action(thought, tuple(calls), text)
    (native,) = to_native([said(*calls, text=text, thought=thought)])
    assert from_openai(native) == from_openai(told)


def test_openais_own_object_is_an_action() -> None:
    types = pytest.importorskip("openai.types.chat", reason='openai is not installed: pip install -e ".[dev]"')
    message = types.ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Look first.",
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"at": "größe"}'}}
            ],
        }
    )
    assert parse(from_openai(message)) == Action("Look first.", (ToolCall("look", {"at": "größe"}),), "")
    assert from_openai(types.ChatCompletionMessage(role="assistant", content="Hello.")) == "Hello."
    assert from_openai(types.ChatCompletionMessage(role="assistant", content=None, refusal="No.")) == "No."
    assert parse(action_of(message.tool_calls)).calls == (ToolCall("look", {"at": "größe"}),)


@pytest.mark.parametrize(
    ("fields", "meaning"),
    [
({"content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}, Action("", (), "ab")),
({"content": "x", "function_call": {"name": "look", "arguments": "{}"}}, Action("", (("look", {}),), "x")),
({"content": render_call("look", {})}, Action("", (("look", {}),), "")),
({"content": "<think>own</think>x", "reasoning_content": "r"}, Action("own", (), "x")),
({"content": None, "tool_calls": [{"function": {"name": "look", "arguments": ""}}]},
         Action("", (("look", {}),), "")),
],
)  # fmt: skip
def test_other_ways_to_write_a_message(fields: dict[str, Any], meaning: Action) -> None:
    assert parse(from_openai({"role": "assistant", **fields})) == meaning


def test_a_call_that_is_quoted_beside_calls_is_not_made() -> None:
    quoted = f"One writes {render_call('pay', {'usd': 9})}."
    call = {"function": {"name": "look", "arguments": "{}"}}
    action = parse(from_openai({"role": "assistant", "content": quoted, "tool_calls": [call]}))
    assert action.calls == (("look", {}),)
    assert "pay" in action.said


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("look", '{"at": ', "not valid JSON"),
        ("look", {"at": float("nan")}, "NaN is not JSON"),
        (None, "{}", '"name" must be a tool'),
    ],
)
def test_what_cannot_be_read_is_told_to_the_agent_and_raises_nothing(name: Any, arguments: Any, complaint: str) -> None:
    env = gym.make("ToolOrchestra/HLE-v0")
    env.reset(seed=0)
    call = {"function": {"name": name, "arguments": arguments}}
    _, _, terminated, _, info = env.step(from_openai({"role": "assistant", "content": "", "tool_calls": [call]}))
    assert not terminated
    assert complaint in info["new_messages"][-1]["content"]


def test_what_is_no_assistants_message_is_refused_with_what_to_give() -> None:
    for wrong in ({"role": "user", "content": "x"}, {"choices": []}, {"role": "assistant"}):
        with pytest.raises(TypeError, match=r"takes an assistant's message, such as completion\.choices\[0\]\.message"):
            from_openai(wrong)
    with pytest.raises(TypeError, match="a mapping or a pydantic object was expected, got str: 'hello'"):
        from_openai("hello")
    with pytest.raises(TypeError, match=r"a call is ToolCall\(name, arguments\), a pair of both"):
        action_of([{"tool": "look"}])


def test_calls_of_every_kind_make_one_action() -> None:
    arguments = {"at": 1}
    kinds: list[Any] = [
        ToolCall("look", arguments),
        ("look", arguments),
        {"name": "look", "arguments": arguments},
        {"name": "look", "arguments": json.dumps(arguments)},
        {"id": "x", "type": "function", "function": {"name": "look", "arguments": json.dumps(arguments)}},
    ]
    for kind in kinds:
        assert action_of([kind]) == render_call("look", arguments)
    action = parse(action_of(kinds, "Five.", "Think."))
    assert action == Action("Think.", (ToolCall("look", arguments),) * 5, "Five.")
    assert action_of([], "Only words.") == "Only words."


def test_as_text_a_prompt_ends_the_system_message_and_a_turns_results_are_one() -> None:
    asked = Message(role="user", content="look")
    told = [Message(role="system", content="rules"), asked, said(A, B), result("look", "1"), result("ask", "2")]
    results = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    shown = [{"role": "system", "content": "rules\n\ntools"}, asked, told[2], {"role": "user", "content": results}]
    assert as_text(told, "tools") == as_text(to_native(told), "tools") == shown
    assert as_text([asked], "tools") == [{"role": "system", "content": "tools"}, asked]
    assert as_text(told, "")[0] == told[0]
