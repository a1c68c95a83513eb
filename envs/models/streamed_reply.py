"""A streamed reply, put together again: what comes out is the JSON of the same reply in one piece.

    streamed = StreamedReply(scrub)
    await take(pieces, streamed, until=time.monotonic() + 120)
    streamed.raw            # as if it had not been streamed

A reply is whole when the server says so, by a finish_reason or by [DONE]. A stream that ends before is broken; what
came of it is counted, since it was made and so has to be paid.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from toolorchestra.envs.base.openai_messages import content_text

DONE = "[DONE]"
USAGE_SECONDS = 2.0
"""How long the usage is waited for when the reply is whole."""
END_SECONDS = 0.2
"""How long the end of the body is waited for after [DONE]: then the connection can be used again."""
MOST_CALLS = 1_000
"""Limit of calls of tools in a reply."""
INPUT, OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
"""What servers call them."""
STILL = 3
"""How often a count of all that has been used may not stand still while the text grows."""
SUMMED = "summed_of_pieces"
"""Key of a usage that was put together from what each piece said."""
_THOUGHTS = ("reasoning_content", "reasoning")


class Unreadable(ValueError):
    """The server's reply is not what the protocol says."""


def in_one(content: Any) -> Any:
    """A message's content; the text of one that comes in parts."""
    try:
        return content_text(content) if isinstance(content, list) else content
    except TypeError:
        raise Unreadable("a message's content is text, or a list of parts, got a list of other things") from None


def usage_in(reply: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The usage that a reply or a piece of one tells, wherever it stands."""
    choices, groq = reply.get("choices"), reply.get("x_groq")
    places = [reply, groq, choices[0] if isinstance(choices, list) and choices else None]
    found = [
        place["usage"] for place in places if isinstance(place, Mapping) and isinstance(place.get("usage"), Mapping)
    ]
    return found[0] if found else None


def count_in(usage: Mapping[str, Any], names: tuple[str, ...], otherwise: int | None = None) -> int | None:
    """A count by the first of its names that is there; None where it is none."""
    said = next((usage[name] for name in names if usage.get(name) is not None), otherwise)
    if isinstance(said, str) and said.isascii() and said.isdecimal() and len(said) < 16:
        said = int(said)
    return said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None


class ServerEvent(NamedTuple):
    """One event of a stream."""

    kind: str
    """What the server calls it; "" for most."""
    data: str


class EventReader:
    """Puts lines and events together, wherever the pieces were cut. Comments and fields of no concern are left out.

    The work grows with the bytes, also where a line never ends. How many bytes there may be is bounded elsewhere.
    """

    def __init__(self) -> None:
        text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._lines = io.IncrementalNewlineDecoder(text, translate=True)
        self._line: list[str] = []
        self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that end in this piece."""
        begun, *others = self._lines.decode(piece).split("\n")
        self._line.append(begun)
        for other in others:
            yield from self._read("".join(self._line))
            self._line = [other]

    def end(self) -> Iterator[ServerEvent]:
        """The last event, where the blank line behind it is missing."""
        return self.feed(b"\n\n")

    def _read(self, line: str) -> Iterator[ServerEvent]:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._kind = value.removeprefix(" ")
        elif not line:
            if self._data:
                yield ServerEvent(self._kind, "\n".join(self._data))
            self._kind, self._data = "", []


class ErrorEvent(Exception):
    """The server says within the stream that it cannot go on."""

    def __init__(self, error: Any) -> None:
        super().__init__("an error in the stream")
        self.error = error


class _PiecedCall:
    """A native call, as far as it has come."""

    def __init__(self, place: object, number: str) -> None:
        self.place, self.number, self.name = place, number, ""
        self.arguments: list[str] = []

    def json(self) -> dict[str, Any]:
        """The JSON as in a reply in one piece."""
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.number, "type": "function", "function": function}


class StreamedReply:
    """What has come of a reply so far. `scrub` takes keys out of a text that an error quotes."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        self.done = False
        """Whether the server said that nothing more will come."""
        self.finished = False
        """Whether the reply is whole."""
        self.usage: Any = None
        """What the server said last of its usage; it may count on with every event."""
        self.characters = 0
        """Characters that the model has written: text, thoughts and calls."""
        self.characters_counted = 0
        """Characters that came before the last usage."""
        self._counted = [0, 0]
        """Output tokens of all usages together, and of the last one."""
        self._adds, self._still = False, 0
        self._most_input = 0
        self._scrub = scrub
        self._events = EventReader()
        self._plain: bytearray | None = None
        """The body, of a server that does not stream though it was asked to."""
        self._begun = False
        self._choice: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._calls: list[_PiecedCall] = []
        self._latest: dict[object, _PiecedCall] = {}
        """The latest call of each place; None stands for any."""

    # -- bytes in ------------------------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Take what has come. Raises Unreadable or ErrorEvent while the reply is not whole."""
        if not self._begun:
            start = piece.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start:
                self._begun = True
                self._plain = bytearray() if start[:1] in (b"{", b"[") else None
        if self._plain is not None:
            self._plain += piece
            return
        for event in self._events.feed(piece):
            self._take(event)

    def end(self) -> None:
        """The body has ended. Raises Unreadable where the reply is not whole."""
        if self._plain is None:
            for event in self._events.end():
                self._take(event)
            if not self.finished:
                raise Unreadable("the stream ended before the reply: neither a finish_reason nor [DONE] came")

    def _take(self, event: ServerEvent) -> None:
        if self.done:
            return
        try:
            self._read(event)
        except (Unreadable, ErrorEvent):
            if not self.finished and event.kind in ("", "message", "error"):
                raise

    def _read(self, event: ServerEvent) -> None:
        if event.data.strip() == DONE:
            self.done = self.finished = True
            return
        try:
            chunk = json.loads(event.data)
        except (ValueError, RecursionError) as err:
            if event.kind == "error":
                raise ErrorEvent({"message": event.data}) from None
            told = self._scrub(event.data)[:80]
            raise Unreadable(f"an event of the stream is not JSON ({err}): {told!r}") from None
        if not isinstance(chunk, Mapping):
            raise Unreadable(f"an event of the stream is a JSON object, got {type(chunk).__name__}")
        if event.kind == "error" or chunk.get("error") or chunk.get("object") == "error":
            raise ErrorEvent(chunk.get("error") or chunk)
        self._read_choices(chunk.get("choices"))
        if (usage := usage_in(chunk)) is not None:
            self._count(usage)
            self.characters_counted = self.characters

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Take a usage. Most servers say each time what has been used in all; one that falls, or stands still and still
        while the text grows, says what each piece has used, which adds up."""
        now, last = count_in(usage, OUTPUT, 0) or 0, self._counted[-1]
        grown = self.characters > self.characters_counted
        self._still = self._still + 1 if now == last > 0 and grown else 0
        self._adds |= now < last or self._still == STILL
        self._counted = [self._counted[0] + now, now]
        self._most_input = max(self._most_input, count_in(usage, INPUT, 0) or 0)
        self.usage = usage
        if self._adds:
            self.usage = {INPUT[0]: self._most_input, OUTPUT[0]: self._counted[0], SUMMED: True}

    def _read_choices(self, choices: Any) -> None:
        if not isinstance(choices, list | None):
            raise Unreadable(f"choices are a list, got {type(choices).__name__}")
        for choice in choices or ():
            if not isinstance(choice, Mapping):
                raise Unreadable(f"a choice is a JSON object, got {type(choice).__name__}")
            if choice.get("index") in (None, 0):
                self._choice = self._choice or {"index": 0, "finish_reason": None}
                self._read_piece(choice)
                if choice.get("finish_reason"):
                    self._choice["finish_reason"] = choice["finish_reason"]
                    self.finished = True

    def _read_piece(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, Mapping | None):
            raise Unreadable(f"a delta is a JSON object, got {type(delta).__name__}")
        if not delta:
            return
        self._add(self._texts, in_one(delta.get("content")))
        for name in _THOUGHTS:
            if isinstance(delta.get(name), str):
                self._add(self._thoughts.setdefault(name, []), delta[name])
        calls = delta.get("tool_calls")
        if not isinstance(calls, list | None):
            raise Unreadable(f"tool_calls are a list, got {type(calls).__name__}")
        for call in calls or ():
            self._read_call(call)

    def _read_call(self, piece: Any) -> None:
        # The first piece may bring a call's number alone, or its kind.
        function = piece.get("function") or {} if isinstance(piece, Mapping) else None
        if not isinstance(function, Mapping):
            raise Unreadable(f"a piece of a tool call has a function, got {self._scrub(str(piece))[:80]!r}")
        place, number, name = piece.get("index"), _text(piece.get("id")), _text(function.get("name"))
        call = self._call(place if isinstance(place, int | float | str) else None, number, name)
        if name != call.name:  # some servers say it again with every piece
            call.name += name
            self.characters += len(name)
        arguments = function.get("arguments")
        whole = isinstance(arguments, Mapping)
        self._add(call.arguments, json.dumps(arguments, ensure_ascii=False) if whole else arguments)

    def _call(self, place: object, number: str, name: str) -> _PiecedCall:
        """The call that a piece belongs to: the latest of its place, or a new one. Some servers say no place, or the
        same one for all calls: then another number or another name begins another call."""
        call = self._latest.get(place)
        another = number != call.number if call and number and call.number else not number and place is None
        if call is None or (name and call.name and another):
            if len(self._calls) == MOST_CALLS:
                raise Unreadable(f"the reply has more than {MOST_CALLS} tool calls")
            call = _PiecedCall(place, number)
            self._calls.append(call)
            self._latest |= {place: call, None: call}
        return call

    def _add(self, texts: list[str], text: Any) -> None:
        if not isinstance(text, str | None):
            raise Unreadable(f"a message's content is text, got {type(text).__name__}")
        if text:
            texts.append(text)
            self.characters += len(text)

    # -- the reply out -------------------------------------------------------------------------------------------------

    @property
    def raw(self) -> str:
        """The JSON of what has come, as of a reply in one piece."""
        if self._plain is not None:
            return self._plain.decode("utf-8", "replace")
        whole: dict[str, Any] = {"choices": []}
        if self._choice is not None:
            whole["choices"] = [{**self._choice, **self._said()}]
        if self.usage is not None:
            whole["usage"] = self.usage
        # A character that two pieces brought half of each is whole again, as it is in a reply in one piece.
        text = json.dumps(whole, ensure_ascii=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _said(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts)}
        message |= {name: "".join(texts) for name, texts in self._thoughts.items()}
        if self._calls:
            ordered = sorted(self._calls, key=lambda call: call.place if isinstance(call.place, int) else 0)
            message["tool_calls"] = [call.json() for call in ordered]
        return {"message": message}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


async def take(pieces: AsyncIterator[bytes], streamed: StreamedReply, until: float) -> None:
    """Read a body until the reply is whole, and then a little longer for its usage and its end, but not until the time
    is over. Raises Unreadable, ErrorEvent, and what reading raises, while the reply is not whole."""
    async for piece in pieces:
        streamed.feed(piece)
        if streamed.finished:
            break
    else:
        streamed.end()
        return
    with suppress(Exception):  # the reply is whole: what becomes of the connection does not matter to it
        await _rest(pieces, streamed, (until - time.monotonic()) / 2)


async def _rest(pieces: AsyncIterator[bytes], streamed: StreamedReply, most_seconds: float) -> None:
    clock = asyncio.get_running_loop()
    async with asyncio.timeout(min(most_seconds, END_SECONDS if streamed.done else USAGE_SECONDS)) as limit:
        async for piece in pieces:
            waited_for_usage = not streamed.done
            streamed.feed(piece)
            if streamed.done and waited_for_usage:
                limit.reschedule(min(limit.when() or 0.0, clock.time() + END_SECONDS))
        streamed.end()
