"""An OpenAI-compatible server on a real loopback socket, which answers by a script and breaks on command.

with Loopback(lambda asked: Reply("42")) as server:
    ...  # server.base_url, server.seen
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["", "reset", "cut", "silence", "not http"]
"""Break off in mid-body; send half of the JSON as if it were all; say nothing; say something that is not HTTP."""


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
    body: Any = None
    """Sent instead of a completion: JSON, or text as it is."""


@dataclass(frozen=True)
class ReceivedRequest:
    """One request, as it came in."""

    path: str
    headers: Mapping[str, str]
    json: Mapping[str, Any]
    number: int
    """Counted from 0."""

    @property
    def text(self) -> str:
        """All that was said, in one string."""
        return "\n".join(str(m.get("content")) for m in self.json.get("messages", ())) or str(
            self.json.get("prompt", "")
        )


class Loopback:
    """The server. One thread with a loop of its own; every connection is kept alive as long as its client likes."""

    def __init__(self, reply: Callable[[ReceivedRequest], ServerReply]) -> None:
        self._reply = reply
        self.seen: list[ReceivedRequest] = []
        self.most_in_flight = 0
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
        self.seen.append(asked)
        return asked

    async def _answer(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        """False when the connection is over."""
        reply = self._reply(asked)
        if reply.seconds:
            await asyncio.sleep(reply.seconds)
        if reply.fault == "silence":
            await asyncio.sleep(3600)
        if reply.fault == "not http":
            writer.write(b"\x00\xff\x00 gibberish\r\n\r\n")
            await writer.drain()
            return False
        body = self._body(asked, reply)
        length = len(body)
        if reply.fault == "cut":
            body = body[: len(body) // 2]
            length = len(body)
        headers = {"content-type": "application/json", "content-length": str(length), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        writer.write(body[: len(body) // 2] if reply.fault == "reset" else body)
        await writer.drain()
        return reply.fault != "reset"

    @staticmethod
    def _body(asked: ReceivedRequest, reply: ServerReply) -> bytes:
        if isinstance(reply.body, str):
            return reply.body.encode("utf-8", "surrogatepass")
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        if reply.status != 200:
            return json.dumps({"error": {"message": reply.content, "type": "scripted"}}).encode()
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            made = [{"id": f"c{i}", "type": "function", "function": dict(c)} for i, c in enumerate(reply.calls)]
            message["tool_calls"] = made
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if asked.path.endswith("/completions") and "prompt" in asked.json:
            choice = {"index": 0, "finish_reason": "stop", "text": reply.content}
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
