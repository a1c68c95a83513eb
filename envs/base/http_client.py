"""What all that is asked over HTTP shares: places in flight, replies that are bounded before they are read, JSON posts.

The library is the one below the openai SDK, which has had two names. It reads all that a server sends, and unpacks it
first; here a reply is unpacked piece by piece, and the reading ends, with the connection, where it says too much.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import threading
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.envs.base.secrets import Address, Secrets

PACKINGS = ("gzip", "deflate")
ACCEPTED = ", ".join(PACKINGS)
_PIECE_BYTES = 1 << 16
MOST_AT_ONCE = 64
MOST_READ_BYTES, TOLD_CHARACTERS = 16 << 20, 4096


def library() -> Any:
    """The module httpx2, or httpx where an older SDK brought that."""
    for name in ("httpx2", "httpx"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigError(f"what is asked over HTTP needs httpx2: {install('models')}")


# -- places ------------------------------------------------------------------------------------------------------------


class Places:
    """A semaphore whose waiters may sit on different event loops and threads."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._free = most
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def take(self) -> None:
        """Wait for a place, first come first served."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            waiter = (loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            with self._lock:
                still_waiting = waiter in self._waiting
                if still_waiting:
                    self._waiting.remove(waiter)
            if not still_waiting:
                self.give()  # the place came at the moment of the cancellation
            raise

    def give(self) -> None:
        """Hand a place to the next in line."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                loop, future = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # that loop is closed, and its waiter gone with it
                continue
            return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# -- bounds ------------------------------------------------------------------------------------------------------------


class ReplyTooLong(Exception):
    """The server sends more than was bargained for, or packs it in a way that cannot be bounded."""


class _Unpacker:
    """Unpacks a body piece by piece and counts what comes out."""

    def __init__(self, packing: str, most_bytes: int, hint: str) -> None:
        if packing not in ("", "identity", *PACKINGS):
            raise ReplyTooLong(f"the reply is packed as {packing!r:.40}, which was not asked for; take {ACCEPTED}")
        self._zip = zlib.decompressobj(zlib.MAX_WBITS | 32) if packing in PACKINGS else None
        self._most, self._out, self._hint = most_bytes, 0, hint

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
            raise ReplyTooLong(f"the reply is longer than {self._most} bytes{self._hint}")
        return piece


def bounded(most_bytes: int, hint: str = "") -> dict[str, Any]:
    """Arguments of a client: the packings that are asked for, no redirects, since a request goes to nobody but whom it
    was meant for, and a hook that bounds each reply before any of it is read. `hint` says what to do about a longer
    one."""
    stream: type[Any] = library().AsyncByteStream

    class BoundedStream(stream):  # type: ignore[misc]
        """A reply's body, unpacked piece by piece. Raises ReplyTooLong where it has more than `most_bytes`."""

        def __init__(self, raw: Any, packing: str) -> None:
            self._raw, self._unpack = raw, _Unpacker(packing, most_bytes, hint)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._raw:
                for piece in self._unpack(data):
                    yield piece

        async def aclose(self) -> None:
            await self._raw.aclose()

    async def bound(reply: Any) -> None:
        said = reply.headers.get("content-length", "")
        if said.isascii() and said.isdecimal() and (len(said) > 18 or int(said) > most_bytes):
            raise ReplyTooLong(f"the reply is longer than {most_bytes} bytes{hint}")
        reply.stream = BoundedStream(reply.stream, reply.headers.get("content-encoding", "").strip().lower())
        reply.headers.pop("content-encoding", None)
        reply.encoding = "utf-8"  # as JSON is; the head may name what is no encoding of texts

    hook: Callable[[Any], Awaitable[None]] = bound
    return {
        "headers": {"Accept-Encoding": ACCEPTED},
        "event_hooks": {"response": [hook]},
        "follow_redirects": False,
    }


def redirected(status: int, headers: Mapping[str, str]) -> str:
    """What to say of a reply that sends the request elsewhere; "" where it does not."""
    if not 300 <= status < 400:
        return ""
    to = Address.of(headers.get("location", "")).url
    return f"redirects to {to!r:.200}, which is not followed; give the address that is meant"


def opened(make: Callable[..., Any], **settings: Any) -> Any:
    """A client of the library. Raises ConfigError where the proxy that the environment names cannot be used."""
    try:
        return make(**settings)
    except (ImportError, ValueError) as err:
        set_ = ", ".join(f"${name}" for name in sorted(os.environ) if name.lower().endswith("_proxy")) or "the proxy"
        socks = "; for a SOCKS proxy: pip install 'httpx2[socks]'" if isinstance(err, ImportError) else ""
        raise ConfigError(f"{set_}: an http:// proxy is expected, and this one cannot be used{socks}") from None


# -- posts -------------------------------------------------------------------------------------------------------------


class Posted(NamedTuple):
    """What came of a request."""

    status: int
    """0: nobody answered."""
    text: str
    """What was said, or what went wrong."""
    after_seconds: float | None = None
    """How long the server asks to wait."""


class HttpPoster:
    """Asks one server, with a key or "" for none. The key, and a login in the address, go nowhere else, and are in no
    text that comes back."""

    def __init__(
        self,
        base_url: str,
        key: str,
        deadline_seconds: float,
        at_once: int = MOST_AT_ONCE,
        most_bytes: int = MOST_READ_BYTES,
    ) -> None:
        address = Address.of(base_url)
        if not address.is_http:
            raise ConfigError(f"an http(s) address is wanted, as http://127.0.0.1:8001; got {address.url!r:.60}")
        self.base_url, self.deadline_seconds = address.url, deadline_seconds
        self._authorization, self._login = f"Bearer {key}" if key else address.basic, address.basic
        self._secrets = Secrets.of([key], [address.login])
        self._places, self._library = Places(at_once), library()
        self._settings = {**bounded(most_bytes), "timeout": None}
        if not base_url.startswith("https"):
            self._settings["verify"] = False  # nothing is encrypted, and reading certificates takes long

    async def post(self, path: str, body: Mapping[str, Any]) -> Posted:
        """One request. Its deadline begins when its turn has come, and holds for all of it."""
        await self._places.take()
        try:
            return await self._asked("POST", path, self._authorization, json.dumps(body).encode())
        finally:
            self._places.give()

    def get(self, path: str) -> Posted:
        """One request without the key, which the caller's thread waits for."""
        with ThreadPoolExecutor(1) as pool:  # this thread may run a loop already
            return pool.submit(lambda: asyncio.run(self._asked("GET", path, self._login))).result()

    async def _asked(self, method: str, path: str, authorization: str, data: bytes | None = None) -> Posted:
        headers = {"Content-Type": "application/json"} | ({"Authorization": authorization} if authorization else {})
        try:
            async with (
                asyncio.timeout(self.deadline_seconds),
                opened(self._library.AsyncClient, **self._settings) as http,
                http.stream(method, f"{self.base_url}/{path}", content=data, headers=headers) as reply,
            ):
                said = b"".join([piece async for piece in reply.aiter_bytes()]).decode("utf-8", "replace")
                after = reply.headers.get("retry-after", "")
        except TimeoutError:
            return Posted(0, f"no reply within {self.deadline_seconds:g} s")
        except ReplyTooLong as err:
            return Posted(0, str(err))
        except (self._library.HTTPError, zlib.error, OSError) as err:
            return Posted(0, self._secrets.scrubbed(f"{type(err).__name__}: {err}")[:TOLD_CHARACTERS])
        text = self._secrets.scrubbed_json(redirected(reply.status_code, reply.headers) or said)
        most = None if reply.status_code == 200 else TOLD_CHARACTERS
        return Posted(reply.status_code, text[:most], float(after) if after.isdecimal() else None)
