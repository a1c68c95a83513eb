"""How much of a server's reply is read. The SDK reads all there is, and unpacks it first: a stream is bounded here.

A reply is unpacked piece by piece, and the reading ends, with the connection, where it says too much.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

PACKINGS = ("gzip", "deflate")
ACCEPTED = ", ".join(PACKINGS)
_PIECE_BYTES = 1 << 16


LEAST_BYTES, BYTES_A_TOKEN = 16 << 10, 32
"""Of a reply whose tokens are bounded for its price: around it, and for each token."""


def bytes_of(tokens: int) -> int:
    """The most that a reply of so many tokens can have. Rounded up to a power of two, since each has its own client."""
    return int(2 ** (LEAST_BYTES + BYTES_A_TOKEN * tokens - 1).bit_length())


class ReplyTooLong(Exception):
    """The server sends more than was bargained for, or packs it in a way that cannot be bounded."""


class Unpacker:
    """Unpacks a body piece by piece and counts what comes out."""

    def __init__(self, packing: str, most_bytes: int) -> None:
        if packing not in ("", "identity", *PACKINGS):
            raise ReplyTooLong(f"the reply is packed as {packing!r:.40}, which was not asked for; take {ACCEPTED}")
        self._zip = zlib.decompressobj(zlib.MAX_WBITS | 32) if packing in PACKINGS else None
        self._most, self._out = most_bytes, 0

    def __call__(self, data: bytes) -> list[bytes]:
        """What a piece unpacks to. Raises ReplyTooLong, or zlib.error."""
        if self._zip is None:
            return [self._counted(data)]
        pieces = []
        while data:
            pieces.append(self._counted(self._zip.decompress(data, _PIECE_BYTES)))
            data = self._zip.unconsumed_tail
        return pieces

    def _counted(self, piece: bytes) -> bytes:
        self._out += len(piece)
        if self._out > self._most:
            raise too_long(self._most)
        return piece


def too_long(most_bytes: int) -> ReplyTooLong:
    """The error of a reply beyond its bound."""
    return ReplyTooLong(
        f"the reply is longer than {most_bytes} bytes; if it may be, raise reply_bytes of the model's entry"
    )


def bounded(http: Any, most_bytes: int) -> Callable[[Any], Awaitable[None]]:
    """A hook for a client of `http`, the library below the SDK: it bounds each reply before any of it is read."""
    stream: type[Any] = http.AsyncByteStream

    class BoundedStream(stream):  # type: ignore[misc]
        """A reply's body, unpacked piece by piece. Raises ReplyTooLong where it has more than `most_bytes`."""

        def __init__(self, raw: Any, packing: str) -> None:
            self._raw, self._unpack = raw, Unpacker(packing, most_bytes)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._raw:
                for piece in self._unpack(data):
                    yield piece

        async def aclose(self) -> None:
            await self._raw.aclose()

    async def bound(reply: Any) -> None:
        said = reply.headers.get("content-length", "")
        if said.isascii() and said.isdecimal() and (len(said) > 18 or int(said) > most_bytes):
            raise too_long(most_bytes)
        reply.stream = BoundedStream(reply.stream, reply.headers.get("content-encoding", "").strip().lower())
        reply.headers.pop("content-encoding", None)

    return bound
