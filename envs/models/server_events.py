"""Server-sent events: bytes in as they come, whole events out. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")


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
        self._line = bytearray()
        self._after_return = False
        """Whether the last byte was a carriage return: a line feed after it belongs to the same line's end."""
        self._first = True
        self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that end in this piece."""
        if self._after_return and piece[:1] == b"\n":
            piece = piece[1:]
            self._after_return = False
        if not piece:
            return
        self._after_return = piece.endswith(b"\r")
        begun, *others = _LINE_END.split(piece)
        self._line += begun
        for other in others:
            yield from self._read_line()
            self._line += other

    def end(self) -> Iterator[ServerEvent]:
        """The last event, where the blank line behind it is missing."""
        if self._line:
            yield from self._read_line()
        yield from self._whole()

    def _read_line(self) -> Iterator[ServerEvent]:
        line = self._line.decode("utf-8", "replace")
        self._line.clear()
        if self._first:
            line, self._first = line.removeprefix("\ufeff"), False
        if not line:
            yield from self._whole()
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value

    def _whole(self) -> Iterator[ServerEvent]:
        if self._data:
            yield ServerEvent(self._kind, "\n".join(self._data))
        self._kind = ""
        self._data.clear()
