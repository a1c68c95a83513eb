"""A streamed reply put together again, however its bytes were cut and however its server speaks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolorchestra.envs.models.streamed_reply import MOST_CALLS, ErrorEvent, EventReader, StreamedReply, take
from toolorchestra.envs.models.usage import used_so_far
from toolorchestra.envs.models.wire import Sent, Unreadable
from toolorchestra.envs.money.prices import Tokens

STREAM = (
    b'\xef\xbb\xbf: hello\r\n\r\nevent: ping\rdata: {"choices": 7}\r\r'
    b'data: {"choices": [{"delta": {"content": "gr\xc3\xb6"}}]}\n\n'
    b'event: message\r\ndata:{"choices": [\ndata:{"delta": {"content": "\xc3\x9fe"}, "finish_reason": "stop"}]}\r\n\r\n'
    b"id: 4\nretry: 5\nnonsense\n\ndata: [DONE]"
)


def put_together(*pieces: bytes) -> StreamedReply:
    streamed = StreamedReply(lambda text: text)
    for one in pieces:
        streamed.feed(one)
    streamed.end()
    return streamed


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    """The message that some deltas make."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    said = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    whole = json.loads(put_together(f"{said}data: [DONE]\n\n".encode()).raw)
    made: dict[str, Any] = whole["choices"][0]["message"]
    return made


def test_it_does_not_matter_where_the_bytes_are_cut() -> None:
    for size in range(1, len(STREAM) + 1):
        streamed = put_together(*(STREAM[start : start + size] for start in range(0, len(STREAM), size)))
        choice = json.loads(streamed.raw)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("größe", "stop")
        assert (streamed.done, streamed.characters) == (True, 5)


def test_events_of_another_kind_are_skipped_unless_they_are_pieces_of_the_reply() -> None:
    said = '{"choices": [{"delta": {"content": "42"}, "finish_reason": "stop"}]}'
    others = ("not JSON", "[" * 100_000, "[1]", "{}", '{"choices": 7}', '{"error": "mine"}')
    noise = "".join(f"event: status\ndata: {one}\n\n" for one in others)
    streamed = put_together(f"{noise}event: delta\ndata: {said}\n\n".encode())
    assert json.loads(streamed.raw)["choices"][0]["message"]["content"] == "42"


def test_a_long_line_costs_no_more_than_its_bytes() -> None:
    def seconds(count: int) -> float:
        reader, started = EventReader(), time.process_time()
        for _ in range(count):
            assert not list(reader.feed(b"data: x" * 16))
        return time.process_time() - started

    seconds(1000)
    assert seconds(200_000) < 40 * max(seconds(20_000), 0.005)


def call(**said: Any) -> dict[str, Any]:
    function = {key: said.pop(key) for key in ("name", "arguments") if key in said}
    return {"tool_calls": [{**said, "function": function}]}


ADD, SUB = {"id": "a", "name": "add"}, {"id": "b", "name": "sub"}
X, Y = '{"x": 1}', '{"y": 2}'


@pytest.mark.parametrize(
    "deltas",
    [
        [call(index=0, **ADD, arguments=""), call(index=0, arguments='{"x":'), call(index=0, arguments=" 1}"),
         call(index=1, **SUB, arguments='{"y": '), call(index=1, arguments="2}")],
        [call(index=1, **SUB, arguments='{"y": '), call(index=0, **ADD, arguments=X), call(index=1, arguments="2}")],
        [call(index=0, **ADD, arguments=X), call(index=0, **SUB, arguments=Y)],
        [call(name="add", arguments={"x": 1}), call(name="sub", arguments='{"y": '), call(arguments="2}")],
        [call(index=0, **ADD, arguments='{"x"'), call(index=0, **ADD, arguments=": 1}"),
         call(index=1, id="b", name="su", arguments=""), call(index=1, name="b", arguments=Y)],
        [call(index=0, **ADD, arguments='{"x"'), call(index=0, id="other", arguments=": 1}"),
         call(index=1, **SUB, arguments=Y)],
        [{"tool_calls": [{"index": 0, "id": "a", "type": "function"}]}, call(index=0, name="add", arguments=X),
         {"tool_calls": [{"index": 1, "id": "b", "function": None}]}, call(index=1, name="sub", arguments=Y)],
    ],
    ids=["by index", "out of order", "one index for all", "no index", "names again and in pieces", "ids anew",
         "numbers first"],
)  # fmt: skip
def test_calls_come_together_whatever_the_server_says_of_their_places(deltas: list[dict[str, Any]]) -> None:
    made = [one["function"] for one in message(*deltas)["tool_calls"]]
    assert [(one["name"], json.loads(one["arguments"])) for one in made] == [("add", {"x": 1}), ("sub", {"y": 2})]


def test_a_character_that_two_pieces_bring_is_whole_again() -> None:
    made = message({"content": "so \ud83d"}, {"content": "\ude00 and \ud83d"})  # the last one has no other half
    assert made["content"] == "so \U0001f600 and \ud83d"


def test_content_in_parts_is_one_text() -> None:
    assert message({"content": [{"type": "text", "text": "4"}]}, {"content": "2"})["content"] == "42"


def chunk(**delta: Any) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"", "neither a finish_reason nor"),
        (chunk(content="so") + b'data: {"choices": [{"del', "not JSON"),
        (b"data: [1]\n\n", "an event of the stream is a JSON object, got list"),
        (b'data: {"choices": 3}\n\n', "choices are a list, got int"),
        (chunk(content=7), "a message's content is text, got int"),
        (chunk(content=[7]), "or a list of parts, got a list of other things"),
        (chunk(tool_calls={"a": 1}), "tool_calls are a list, got dict"),
        (chunk(tool_calls=[{"function": {"name": "add", "arguments": [1]}}]), "content is text, got list"),
        (chunk(tool_calls=[{"index": n, "function": {"name": "a"}} for n in range(MOST_CALLS + 1)]), "more than 1000"),
    ],
)
def test_what_is_not_as_the_protocol_says_is_named(said: bytes, says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        put_together(said)


@pytest.mark.parametrize(
    "said", [b"event: error\ndata: it broke\n\n", b'event: error\ndata: {"message": "it broke"}\n\n']
)
def test_an_event_of_the_kind_error_is_an_error(said: bytes) -> None:
    with pytest.raises(ErrorEvent) as caught:
        put_together(said)
    assert caught.value.error == {"message": "it broke"}


SENT = Sent(400, 2000, 100)


@pytest.mark.parametrize(
    ("usage", "before", "after", "tokens"),
    [
        (None, "", "x" * 41, Tokens(100, 0, 11, 0)),
        ({"prompt_tokens": 90, "completion_tokens": 7}, "x" * 20, "", Tokens(90, 0, 7, 0)),
        ({"prompt_tokens": 90, "completion_tokens": 7}, "x" * 20, "y" * 20, Tokens(90, 0, 12, 0)),
        ({"prompt_tokens": 90, "completion_tokens": 0}, "", "y" * 20, Tokens(90, 0, 5, 0)),
        ({"prompt_tokens": 90, "completion_tokens": 0}, "x" * 20, "y" * 20, Tokens(100, 0, 10, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 7}, "x" * 20, "", Tokens(100, 0, 5, 0)),
        (None, "", "x" * 4000, Tokens(100, 0, 100, 0)),
    ],
    ids=["none", "all counted", "some after", "input alone", "counts nothing", "absurd", "no more than allowed"],
)
def test_what_a_broken_stream_used(usage: Any, before: str, after: str, tokens: Tokens) -> None:
    streamed = StreamedReply(lambda text: text)
    streamed.feed(chunk(content=before))
    if usage is not None:
        streamed.feed(f"data: {json.dumps({'usage': {'prompt_tokens': 1, 'completion_tokens': 0}})}\n\n".encode())
        streamed.feed(f"data: {json.dumps({'usage': usage})}\n\n".encode())
    streamed.feed(chunk(content=after))
    assert used_so_far(streamed, SENT) == (tokens, tokens.input == 90)


def test_a_whole_reply_waits_for_its_usage_and_its_end_but_not_for_ever() -> None:
    finish = b'data: {"choices": [{"delta": {"content": "42"}, "finish_reason": "stop"}]}\n\n'
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'

    async def body(*pieces: bytes, then: float) -> AsyncIterator[bytes]:
        for one in pieces:
            yield one
            await asyncio.sleep(0.05)
        await asyncio.sleep(then)

    async def taken(*pieces: bytes, then: float, left: float = 60.0) -> tuple[float, Any]:
        streamed, started = StreamedReply(lambda text: text), time.monotonic()
        await take(body(*pieces, then=then), streamed, started + left)
        return time.monotonic() - started, json.loads(streamed.raw)

    async def all_of_them() -> None:
        seconds, whole = await taken(finish, usage, b"data: [DONE]\n\n", then=50)
        assert (whole["usage"], seconds < 1.9) == ({"prompt_tokens": 1}, True)
        seconds, whole = await taken(finish, then=50, left=1.0)  # half of the time that is left
        assert (whole["choices"][0]["message"]["content"], 0.4 < seconds < 0.95) == ("42", True)

    asyncio.run(all_of_them())
