"""How the stand-in server streams: a reply taken apart into events, and where they break off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

PIECE_CHARACTERS = 4
"""Of what the model writes, in an event: a token, as it were."""
STREAM_HEAD = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SLICE_BYTES = 32
"""Of a stream in small pieces."""
BREAKS = ("reset", "cut", "stall", "error")
Manner = Literal["", "plain", "no done", "running usage", "noisy"]
"""Honest servers differ: one does not stream at all; one ends without [DONE]; one says with every event what has been
used so far; one sends comments, events of its own and other line ends in between."""
NOISE = ": keep-alive\r\n\r\nevent: ping\rdata: not for you\r\rid: 7\nretry: 1\n\n"


class StreamEvent(NamedTuple):
    """One event as it goes out."""

    data: bytes
    characters: int = 0
    """That the model has written, in it."""


@dataclass(frozen=True)
class StreamCount:
    """What a stream had sent when it ended, by the server's own count."""

    number: int
    """Of the request."""
    characters: int
    whole: bool


def event(said: Mapping[str, Any] | str) -> bytes:
    """The bytes of one server-sent event."""
    return f"data: {said if isinstance(said, str) else json.dumps(said)}\n\n".encode()


def events_of(whole: Mapping[str, Any], manner: Manner, usage_asked: bool) -> list[StreamEvent]:
    """The events of a reply that is given in one piece."""
    choice = whole["choices"][0]
    said = list(_pieces(choice))
    usage = whole.get("usage") if usage_asked else None
    made, so_far = [], 0
    for piece, characters in said:
        so_far += characters
        chunk: dict[str, Any] = {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, **piece, "finish_reason": None}],
        }
        if manner == "running usage" and isinstance(usage, Mapping):
            chunk["usage"] = {**usage, "completion_tokens": -(-so_far // PIECE_CHARACTERS)}
        made.append(StreamEvent((NOISE.encode() if manner == "noisy" else b"") + event(chunk), characters))
    last: dict[str, Any] = {"text": ""} if "text" in choice else {"delta": {}}
    made.append(StreamEvent(event({"choices": [{"index": 0, **last, "finish_reason": "stop"}]})))
    if usage is not None:
        made.append(StreamEvent(event({"choices": [], "usage": usage})))
    return made if manner == "no done" else [*made, StreamEvent(event("[DONE]"))]


def _pieces(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """What each event adds, and how many characters that is."""
    if "text" in choice:
        yield from (({"text": part}, len(part)) for part in _cut(choice["text"] or ""))
        return
    message = choice["message"]
    yield {"delta": {"role": "assistant", "content": ""}}, 0
    for name in ("reasoning_content", "content"):
        yield from (({"delta": {name: part}}, len(part)) for part in _cut(message.get(name) or ""))
    for place, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        opened = {**call, "index": place, "function": {"name": function["name"], "arguments": ""}}
        yield {"delta": {"tool_calls": [opened]}}, len(function["name"])
        for part in _cut(function["arguments"]):
            yield {"delta": {"tool_calls": [{"index": place, "function": {"arguments": part}}]}}, len(part)


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield text[start : start + PIECE_CHARACTERS]


async def send_stream(writer: asyncio.StreamWriter, events: list[StreamEvent], fault: str, pause: float) -> int:
    """Send the events, or half of them where the stream breaks off; how many characters of the model's went out whole.
    What comes after the break is for the caller to do, but for the end of the body."""
    broken = fault in BREAKS
    sent = events[: len(events) // 2] if broken else events
    for one in sent:
        await _send(writer, one.data, pause, in_pieces=fault == "pieces")
    if fault == "error":
        await _send(writer, event({"error": {"message": "the model broke down", "code": 500}}), pause)
    elif broken:
        half = events[len(sent)].data
        await _send(writer, half[: len(half) // 2], pause)
    if fault not in ("reset", "stall"):
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return sum(one.characters for one in sent)


async def send_for_ever(writer: asyncio.StreamWriter, seconds: float, sent: Callable[[int], None]) -> NoReturn:
    """One character after the other, each in an event, or with no pause between them: a line without an end. Until the
    client is gone, which ends it by a ConnectionError."""
    piece = event({"choices": [{"index": 0, "delta": {"content": "x"}}]}) if seconds else b"data:" + b"x" * (1 << 16)
    while True:
        await _send(writer, piece, seconds)
        sent(len(piece))


async def _send(writer: asyncio.StreamWriter, data: bytes, pause: float, in_pieces: bool = False) -> None:
    size = SLICE_BYTES if in_pieces else len(data)
    for start in range(0, len(data), size):
        part = data[start : start + size]
        writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        await writer.drain()
        await asyncio.sleep(pause)
