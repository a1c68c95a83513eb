"""Owns the checks of the action grammar: what is read, what is refused in which words, and that nothing else comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from toolorchestra.envs.base.actions import (
    CLOSE,
    FORM,
    MAX_CALLS,
    MAX_DEPTH,
    OPEN,
    THINK,
    UNTHINK,
    Action,
    parse,
    render,
    render_call,
)
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import ToolCall

LONGEST_MESSAGE = 400


def call(body: str) -> str:
    return f"{OPEN}{body}{CLOSE}"


def with_argument(value: str) -> str:
    return call(f'{{"name": "search", "arguments": {{"q": {value}}}}}')


def refusal(text: str) -> str:
    with pytest.raises(ActionError) as caught:
        parse(text)
    assert type(caught.value) is ActionError
    message = str(caught.value)
    message.encode()
    assert 0 < len(message) <= LONGEST_MESSAGE
    return message


SEARCH = ToolCall("search", {"q": "x"})
CALL = call('{"name": "search", "arguments": {"q": "x"}}')
READ: dict[str, Action] = {
    "Hello there.": Action("", (), "Hello there."),
    CALL: Action("", (SEARCH,), ""),
    call('\n{"name": "search", "arguments": {"q": "x"}}\n'): Action("", (SEARCH,), ""),
    f"Let me look. {CALL} One moment.": Action("", (SEARCH,), "Let me look.  One moment."),
    f"{CALL}{CALL}": Action("", (SEARCH, SEARCH), ""),
    f"<think>why</think>{CALL}": Action("why", (SEARCH,), ""),
    f" \n<think>\nwhy\n</think>\n\n{CALL}": Action("why", (SEARCH,), ""),
    f"why\n</think>\n{CALL}": Action("why", (SEARCH,), ""),
    f"<think>maybe {CALL}</think>No.": Action(f"maybe {CALL}", (), "No."),
    f"<think>maybe {CALL}</think>{CALL}": Action(f"maybe {CALL}", (SEARCH,), ""),
    f"{CALL} hm</think>{CALL}": Action(f"{CALL} hm", (SEARCH,), ""),
    f"{CALL}</think>Hello.": Action(CALL, (), "Hello."),
    f"<think>why</think>{CALL}</think>": Action("why", (SEARCH,), UNTHINK),
    with_argument('"</tool_call>"'): Action("", (ToolCall("search", {"q": CLOSE}),), ""),
    with_argument(r'"\u00e9\ud83d\ude00"'): Action("", (ToolCall("search", {"q": "é😀"}),), ""),
    with_argument('{"a": {"b": [1, 2.5, true, null]}}'): Action(
        "", (ToolCall("search", {"q": {"a": {"b": [1, 2.5, True, None]}}}),), ""
    ),
    "2 < 3 and <b>bold</b>": Action("", (), "2 < 3 and <b>bold</b>"),
}


@pytest.mark.parametrize("text", READ)
def test_read(text: str) -> None:
    assert parse(text) == READ[text]


def test_several_calls_keep_their_order_up_to_the_limit() -> None:
    calls = tuple(ToolCall(f"tool-{n}", {"n": n}) for n in range(MAX_CALLS))
    assert parse(render(calls)).calls == calls
    assert parse(" ".join(render_call(*one) for one in calls)).calls == calls
    more = render((*calls, ToolCall("last", {})))
    assert refusal(more) == f"more than {MAX_CALLS} tool calls in one turn; make the others in later turns"


LIKE = '; write it like {"name": "TOOL", "arguments": {"KEY": "VALUE"}}'
REFUSED: dict[str, str] = {
    "": "the action is empty; call a tool or write a message",
    f"<think>why {CALL}": f"{THINK} is never closed; end the thought with {UNTHINK} before acting",
    f"{CALL}{CLOSE}": f"{CLOSE} without {OPEN} before it; write {OPEN}{{...}}{CLOSE}",
    call(""): f"tool call 1 is not valid JSON: a JSON object expected, got '{CLOSE}'" + LIKE,
    call('{"name": ""}'): """tool call 1: "name" must be a tool's name, got ''""" + LIKE,
    call('{"tool": "search", "arguments": {}}'): (
        """tool call 1: "name" must be a tool's name, got no name among ['arguments', 'tool']""" + LIKE
    ),
    call('{"name": "search", "arguments": "q"}'): 'tool call 1: "arguments" must be a JSON object, got a text' + LIKE,
    call('{"name": "search", "parameters": {}}'): (
        'tool call 1: only "name" and "arguments" are read, got also [\'parameters\']'
        '; rename "parameters" to "arguments"'
    ),
    call('{"name": "search", "parameters": {}, "id": 1}'): (
        """tool call 1: only "name" and "arguments" are read, got also ['id', 'parameters']"""
        '; rename "parameters" to "arguments" and leave out the other keys'
    ),
    call('{"name": "search", "arguments": {"q": nope}}'): (
        "tool call 1 is not valid JSON: a JSON value expected, got 'nope}}</tool_call>'" + LIKE
    ),
    call('{"name": "search" "arguments": {}}'): (
        "tool call 1 is not valid JSON: Expecting ',' delimiter at '\"arguments\": {}}</to'" + LIKE
    ),
    call('{"name": "search", "arguments": {"q": "\\d"}}'): (
        "tool call 1 is not valid JSON: Invalid \\escape at '\\\\d\"}}</tool_call>'" + LIKE
    ),
    f'{OPEN}{{"name": "search", "arguments": {{}}}}{OPEN}': (
        f"tool call 1: {CLOSE} expected after the JSON, got '{OPEN}'; write {OPEN}{FORM}{CLOSE}"
    ),
    call(CALL): f"tool call 1 is not valid JSON: a JSON object expected, got '{OPEN}{{\"name\": '" + LIKE,
    f"{CALL}{call('{}')}": """tool call 2: "name" must be a tool's name, got no name among []""" + LIKE,
    with_argument("NaN"): "tool call 1: NaN is not JSON; write a finite number, a string or null",
    with_argument("1e999"): "tool call 1: 1e999 is too large for a number; write a smaller one or a string",
    with_argument("-" + "1" * 5000): "tool call 1 is not valid JSON: a number has too many digits" + LIKE,
    call('{"name": "a", "name": "b", "arguments": {}}'): (
        "tool call 1: the key 'name' stands twice in one JSON object; write it once"
    ),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text[:50]))
def test_refused_in_these_words(text: str) -> None:
    assert refusal(text) == REFUSED[text]


@pytest.mark.parametrize("text", [None, b"hello"])
def test_only_text_is_an_action(text: Any) -> None:
    with pytest.raises(ActionError, match=f"a str; got {type(text).__name__}"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "\ud800",
        with_argument(r'"\ud800"'),
        with_argument(r'{"\ud800": 1}'),
        call(r'{"name": "\ud800", "arguments": {}}'),
    ],
    ids=ascii,
)
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    assert "half of a surrogate pair, which is not text; remove it" in refusal(text)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_bounded_exactly(opening: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(levels: int) -> str:  # the call and its arguments are two levels
        return with_argument(opening * (levels - 2) + "1" + closing * (levels - 2))

    assert parse(nested(MAX_DEPTH)).calls[0].name == "search"
    wanted = f"tool call 1: the JSON is nested deeper than {MAX_DEPTH} levels; flatten it"
    for levels in (MAX_DEPTH + 1, 200, *range(900, 1010, 7), 100_000):
        assert refusal(nested(levels)) == wanted
    assert parse(with_argument("[" + "[[]], " * 500 + "1]")).calls


_TAGS = (OPEN, CLOSE, THINK, UNTHINK)
_WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [*_TAGS, CALL, "a:b", '"', "\\", "\\u0041", "\\ud800", "{", "}}", "\x00", "\x1f", "\x7f", "\u2028"]
    ),
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**4000), 10**4000),
    st.floats(allow_nan=False, allow_infinity=False),
    _WORDS,
)
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4), max_leaves=12
)
_ARGUMENTS = st.dictionaries(_WORDS, _JSON, max_size=4)
_CALLS = st.builds(ToolCall, _WORDS.filter(bool), _ARGUMENTS)


def exactly(value: object) -> str:
    """Tells 1 from 1.0 and from True, and 0.0 from -0.0."""
    return repr(value)


@given(st.lists(_CALLS, min_size=1, max_size=4))
@example([ToolCall("a", {"q": 1, "k": [], "": {}})])
@example([ToolCall("a:b", {":": ":"})])
def test_calls_come_back(calls: list[ToolCall]) -> None:
    action = parse(render(calls))
    assert action == Action("", tuple(calls), "")
    assert exactly(action.calls) == exactly(tuple(calls))


_SAID = st.text(max_size=40).filter(lambda text: not any(tag in text for tag in _TAGS))
_THOUGHT = st.one_of(_SAID, st.just(f"maybe {CALL}?"))


@given(st.lists(_CALLS, max_size=3), _SAID, _THOUGHT)
def test_whole_turns_come_back(calls: list[ToolCall], said: str, thought: str) -> None:
    assume(calls or said.strip())
    assert parse(render(calls, said, thought)) == Action(thought.strip(), tuple(calls), said.strip())


@pytest.mark.parametrize("tag", _TAGS)
def test_what_would_read_back_otherwise_is_not_rendered(tag: str) -> None:
    with pytest.raises(ValueError, match=f"said may not hold {tag}"):
        render(said=f"a {tag} b")
    if tag in (THINK, UNTHINK):
        with pytest.raises(ValueError, match=f"thought may not hold {tag}"):
            render(said="a", thought=tag)
