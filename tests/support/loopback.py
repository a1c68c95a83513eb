"""An OpenAI-compatible server on a real loopback socket, which answers by a script and breaks on command.

with Loopback(lambda asked: Reply("42")) as server:
    ...  # server.base_url, server.seen

A reply is streamed where the request says "stream": true. It breaks as it would in one piece: half of it is sent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    kind = {"object": "chat.completion.chunk"}  # OpenAI's SDK leaves out events of any other
    made.append(StreamEvent(event({**kind, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})))
    if usage is not None:
        made.append(StreamEvent(event({**kind, "choices": [], "usage": usage})))
    return made if manner == "no done" else [*made, StreamEvent(event("[DONE]"))]


def _pieces(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """What each event adds, and how many characters that is."""
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


Fault = Literal[
    "", "reset", "cut", "stall", "error", "silence", "not http", "endless", "drip", "slow head", "pieces"
]  # fmt: skip
"""Break off in mid-body; send half of the JSON as if it were all; send half and then nothing; send an error in place of
a reply, or of the second half of a stream; say nothing; say something that is not HTTP; send a body that never ends, at
full speed or a byte at a time; send a head that never ends, a byte at a time; send a good reply in small pieces."""
DRIP_SECONDS = 0.05
PIECE_BYTES = 64


@dataclass(frozen=True)
class ServerReply:
    """What the server does with one request."""

    content: str | None = ""
    status: int = 200
    usage: Any = None
    """None counts words; False leaves usage out; anything else is sent as it is."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """Native tool calls: {"name", "arguments"}, arguments as the text that goes out."""
    reasoning: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault = ""
    seconds: float = 0.0
    """How long the server thinks."""
    pause: float = 0.0
    """How long it waits after each piece, of a reply in pieces or streamed."""
    manner: Manner = ""
    """Of streaming."""
    body: Any = None
    """Sent instead of a completion: JSON, or text or bytes as they are. It is not streamed."""


@dataclass(frozen=True)
class ReceivedRequest:
    """One request, as it came in."""

    path: str
    headers: Mapping[str, str]
    json: Mapping[str, Any]
    number: int
    """Counted from 0."""

    @property
    def lists_models(self) -> bool:
        """Whether it asks which models there are, as a client does that looks whether a server is there. The server
        answers it by itself, and does not count it, unless it was told to leave that to `reply`."""
        return not self.json and self.path.endswith("/models")

    @property
    def text(self) -> str:
        """All that was said, in one string."""
        return "\n".join(str(m.get("content")) for m in self.json.get("messages", ())) or str(
            self.json.get("prompt", "")
        )


class Loopback:
    """The server. One thread with a loop of its own; every connection is kept alive as long as its client likes."""

    def __init__(self, reply: Callable[[ReceivedRequest], ServerReply], lists_models: bool = True) -> None:
        self._reply = reply
        self._lists_models = lists_models
        """Whether the server answers by itself which models there are. If not, `reply` is asked."""
        self.seen: list[ReceivedRequest] = []
        self.most_in_flight = 0
        self.connections = 0
        """That were ever opened."""
        self.sent_bytes = 0
        """Of bodies that never end."""
        self.streamed: list[StreamCount] = []
        """Replies that were streamed, and how much of each."""
        self._in_flight = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loopback", daemon=True)
        self.port = 0

    def __enter__(self) -> Loopback:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while (asked := await self._read(reader)) is not None:
                self._in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
                try:
                    on = await self._answer(asked, writer)
                finally:
                    self._in_flight -= 1
                if not on:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> ReceivedRequest | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = ReceivedRequest(first.split()[1], headers, json.loads(raw) if raw else {}, len(self.seen))
        if not self._answers_alone(asked):
            self.seen.append(asked)
        return asked

    def _answers_alone(self, asked: ReceivedRequest) -> bool:
        return self._lists_models and asked.lists_models

    async def _answer(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        """False when the connection is over."""
        alone = self._answers_alone(asked)
        reply = ServerReply(body={"object": "list", "data": []}) if alone else self._reply(asked)
        if reply.seconds:
            await asyncio.sleep(reply.seconds)
        if reply.fault == "silence":
            await asyncio.sleep(3600)
        if reply.fault == "not http":
            writer.write(b"\x00\xff\x00 gibberish\r\n\r\n")
            await writer.drain()
            return False
        streams = self._streams(asked, reply)
        if reply.fault in ("endless", "drip", "slow head"):
            await self._never_end(reply, writer, streams)
        if streams:
            return await self._stream(asked, reply, writer)
        body = self._body(asked, reply)
        length = len(body)
        if reply.fault == "cut":
            body = body[: len(body) // 2]
            length = len(body)
        headers = {"content-type": "application/json", "content-length": str(length), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        if reply.fault == "pieces":
            for start in range(0, len(whole), PIECE_BYTES):
                writer.write(whole[start : start + PIECE_BYTES])
                await writer.drain()
                await asyncio.sleep(reply.pause)
            return True
        broken = reply.fault in ("reset", "stall")
        writer.write(whole[: len(whole) - len(body) + len(body) // 2] if broken else whole)
        await writer.drain()
        return await self._after(reply.fault, writer)

    @staticmethod
    async def _after(fault: Fault, writer: asyncio.StreamWriter) -> bool:
        """What comes after what was sent. False when the connection is over."""
        if fault == "stall":
            await asyncio.sleep(3600)
        if fault == "reset":
            held: socket.socket = writer.get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
        return fault != "reset"

    @staticmethod
    def _streams(asked: ReceivedRequest, reply: ServerReply) -> bool:
        good = reply.status == 200 and reply.body is None
        return asked.json.get("stream") is True and good and reply.manner != "plain"

    async def _stream(self, asked: ReceivedRequest, reply: ServerReply, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 Scripted\r\n" + STREAM_HEAD)
        usage_asked = bool((asked.json.get("stream_options") or {}).get("include_usage"))
        events = events_of(json.loads(self._body(asked, replace(reply, fault=""))), reply.manner, usage_asked)
        characters = await send_stream(writer, events, reply.fault, reply.pause)
        self.streamed.append(StreamCount(asked.number, characters, reply.fault not in BREAKS))
        return await self._after(reply.fault, writer)

    def _count_bytes(self, number: int) -> None:
        self.sent_bytes += number

    async def _never_end(self, reply: ServerReply, writer: asyncio.StreamWriter, streams: bool) -> None:
        """Until the client is gone, which ends it by a ConnectionError."""
        if streams and reply.fault != "slow head":
            writer.write(b"HTTP/1.1 200 Scripted\r\n" + STREAM_HEAD)
            await send_for_ever(writer, 0.0 if reply.fault == "endless" else DRIP_SECONDS, self._count_bytes)
        head = "" if reply.fault == "slow head" else "content-type: application/json\r\n\r\n"
        writer.write(f"HTTP/1.1 200 Scripted\r\n{head}".encode())
        piece = b"x" * (1 << 16) if reply.fault == "endless" else b"x"
        while True:
            writer.write(piece)
            await writer.drain()
            self._count_bytes(len(piece))
            if reply.fault != "endless":
                await asyncio.sleep(DRIP_SECONDS)

    @staticmethod
    def _body(asked: ReceivedRequest, reply: ServerReply) -> bytes:
        if isinstance(reply.body, bytes):
            return reply.body
        if isinstance(reply.body, str):
            return reply.body.encode("utf-8", "surrogatepass")
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        if reply.fault == "error":
            return json.dumps({"error": {"message": "the model broke down", "code": 500}}).encode()
        if reply.status != 200:
            return json.dumps({"error": {"message": reply.content, "type": "scripted"}}).encode()
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            made = [{"id": f"c{i}", "type": "function", "function": dict(c)} for i, c in enumerate(reply.calls)]
            message["tool_calls"] = made
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        whole: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        if reply.usage is not False:
            words, said = len(asked.text.split()), len((reply.content or "").split())
            counted = {"prompt_tokens": words, "completion_tokens": said, "total_tokens": words + said}
            whole["usage"] = counted if reply.usage is None else reply.usage
        return json.dumps(whole).encode()
