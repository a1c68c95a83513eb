"""What all that is asked over HTTP shares: places in flight, connections, replies that are bounded as they are read.

Below is httpcore, as below the openai SDK. Its connections are used one by one: the SDK, its client and their pool take
four milliseconds of CPU a call where 512 are in flight, and this takes a tenth of that.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import json
import os
import threading
import urllib.parse
import urllib.request
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.envs.base.secrets import HTTP_FORM, Address, Secrets

PACKINGS = ("gzip", "deflate")
ACCEPTED = ", ".join(PACKINGS)
_PIECE_BYTES = 1 << 16
MOST_AT_ONCE = 64
MOST_READ_BYTES, TOLD_CHARACTERS = 16 << 20, 4096
KEEP_SECONDS = 5.0
"""How long a connection is kept that nobody uses."""
_HEADERS = {"Accept": "*/*", "Accept-Encoding": ACCEPTED, "User-Agent": "toolorchestra"}


@functools.cache
def library() -> Any:
    """The module httpcore2, or httpcore where an older SDK brought that."""
    for name in ("httpcore2", "httpcore"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigError(f"what is asked over HTTP needs httpcore2: {install('models')}")


def broken() -> tuple[type[Exception], ...]:
    """What a request raises that came to no end: for `except`."""
    core = library()
    return (core.NetworkError, core.ProtocolError, core.TimeoutException, core.ProxyError, OSError, zlib.error)


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
            raise ReplyTooLong(
                f"the reply is packed as {packing!r:.40}, which was not asked for; take {', '.join(PACKINGS)}"
            )
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


def redirected(status: int, headers: Mapping[str, str]) -> str:
    """What to say of a reply that sends the request elsewhere; "" where it does not."""
    if not 300 <= status < 400:
        return ""
    to = Address.of(headers.get("location", "")).url
    return f"redirects to {to!r:.200}, which is not followed; give the address that is meant"


# -- connections -------------------------------------------------------------------------------------------------------


class HttpClient:
    """Connections of one event loop, kept while they are of use. No redirect is followed: a request goes to nobody but
    whom it was meant for."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Any]] = {}
        self._proxies: dict[str, Any] = {}

    def exchange(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes, most_bytes: int, hint: str = ""
    ) -> Exchange:
        """A request to be made, by `async with`. `hint` says what to do about a reply longer than `most_bytes`."""
        said = {"Host": urllib.parse.urlsplit(url).netloc, **_HEADERS, **headers}
        if data:
            said |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        return Exchange(self, library().Request(method, url, headers=said, content=data), most_bytes, hint)

    async def connection(self, url: Any) -> Any:
        """A connection to a server: one that was kept, a new one, or the proxy that the environment names."""
        server = str(url.origin)
        if server not in self._proxies:
            self._proxies[server] = _proxy(url)
        if self._proxies[server] is not None:
            return self._proxies[server]
        kept = self._kept.setdefault(server, [])
        while kept:
            found = kept.pop()
            if not found.has_expired():
                return found
            await found.aclose()
        return library().AsyncHTTPConnection(url.origin, _tls() if url.scheme == b"https" else None, KEEP_SECONDS)

    async def keep(self, url: Any, connection: Any) -> None:
        """Take back a connection whose reply was read to its end, and close those that nobody used for long."""
        kept = self._kept.get(str(url.origin))
        if kept is not None and connection.is_idle():
            kept.append(connection)
            while kept and kept[0].has_expired():  # while one is closed, others may be taken
                await kept.pop(0).aclose()

    async def aclose(self) -> None:
        """Close what is kept."""
        kept = [one for some in (*self._kept.values(), filter(None, self._proxies.values())) for one in some]
        self._kept, self._proxies = {}, {}
        for one in kept:
            await one.aclose()


class Exchange:
    """One request, and its reply while `async with` lasts."""

    def __init__(self, client: HttpClient, request: Any, most_bytes: int, hint: str) -> None:
        self.sent = False
        """Whether the server may have had the request: a connection stood."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        """Headers by their names in lower case."""
        self._client, self._request, self._most, self._hint = client, request, most_bytes, hint

    async def __aenter__(self) -> Self:
        self._connection = await self._client.connection(self._request.url)
        try:
            self._reply = await self._connection.handle_async_request(self._request)
        except BaseException as err:
            self.sent = _stood(self._connection, err)
            raise
        self.sent, self.status = True, self._reply.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._reply.headers}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reply.aclose()  # with its connection, where the reply was not read to its end
        await self._client.keep(self._request.url, self._connection)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, unpacked piece by piece. Raises ReplyTooLong where it has more than was bargained for."""
        said = self.headers.get("content-length", "")
        if said.isascii() and said.isdecimal() and (len(said) > 18 or int(said) > self._most):
            raise ReplyTooLong(f"the reply is longer than {self._most} bytes{self._hint}")
        unpack = _Unpacker(self.headers.get("content-encoding", "").strip().lower(), self._most, self._hint)
        async for data in self._reply.stream:
            for piece in unpack(data):
                yield piece

    async def text(self) -> str:
        """The whole body, as UTF-8, whatever its head says: JSON is."""
        return b"".join([piece async for piece in self.pieces()]).decode("utf-8", "replace")


def _stood(connection: Any, err: BaseException) -> bool:
    """Whether a connection stood when this went wrong."""
    core = library()
    if isinstance(err, core.ConnectError | core.ConnectTimeout | core.ProxyError):
        return False
    return not connection.info().startswith("CONNECT") if hasattr(connection, "info") else True


@functools.cache
def _tls() -> Any:
    return library().default_ssl_context()


def _proxy(url: Any) -> Any:
    """A pool of connections through the proxy that the environment names for a server; None where it names none."""
    scheme, server = url.scheme.decode(), f"{url.host.decode()}:{url.origin.port}"
    named = urllib.request.getproxies_environment()
    proxy = named.get(scheme) or named.get("all")
    if not proxy or urllib.request.proxy_bypass_environment(server, named):  # type: ignore[attr-defined]
        return None
    address = Address.of(proxy if "://" in proxy else f"http://{proxy}")
    user, _, word = address.login.partition(":")
    core, kind = library(), address.url.partition("://")[0]
    socks = kind in ("socks5", "socks5h")
    if not (socks and importlib.util.find_spec("socksio")) and not address.is_http:
        set_ = ", ".join(f"${name}" for name in sorted(os.environ) if name.lower().endswith("_proxy"))
        more = "; for a SOCKS proxy: pip install socksio" if socks else ""
        raise ConfigError(f"{set_}: an http:// proxy is expected, and this one cannot be used{more}")
    make = core.AsyncSOCKSProxy if socks else core.AsyncHTTPProxy
    tls = _tls() if scheme == "https" else None
    login = (user.encode(), word.encode()) if address.login else None
    return make(address.url, login, ssl_context=tls, max_connections=None, keepalive_expiry=KEEP_SECONDS)


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
            raise ConfigError(f"an http(s) address is wanted, as {HTTP_FORM}; got {address.shown!r:.60}")
        self.base_url, self.deadline_seconds = address.url, deadline_seconds
        self._authorization, self._login = f"Bearer {key}" if key else address.basic, address.basic
        self._secrets = Secrets(key, address.login)
        self._places, self._most_bytes = Places(at_once), most_bytes
        library()

    async def post(self, path: str, body: Mapping[str, Any], unread: Callable[[], object] = int) -> Posted:
        """One request. Its deadline begins when its turn has come, and holds for all of it. `unread` is called where it
        went out and no reply was read, whatever ended it: it may have been served, and so be paid."""
        await self._places.take()
        try:
            return await self._asked("POST", path, self._authorization, json.dumps(body).encode(), unread)
        finally:
            self._places.give()

    def get(self, path: str) -> Posted:
        """One request without the key, which the caller's thread waits for."""
        with ThreadPoolExecutor(1) as pool:  # this thread may run a loop already
            return pool.submit(lambda: asyncio.run(self._asked("GET", path, self._login))).result()

    async def _asked(
        self, method: str, path: str, authorization: str, data: bytes = b"", unread: Callable[[], object] = int
    ) -> Posted:
        headers = {"Authorization": authorization} if authorization else {}
        client = HttpClient()  # whose connections end with it: the next post may be another loop's
        asked = client.exchange(method, f"{self.base_url}/{path}", headers, data, self._most_bytes)
        said: str | None = None
        try:
            async with asyncio.timeout(self.deadline_seconds), asked:
                said = await asked.text()
        except TimeoutError:
            return Posted(0, f"no reply within {self.deadline_seconds:g} s")
        except ReplyTooLong as err:
            return Posted(0, str(err))
        except broken() as err:
            return Posted(0, self._secrets.scrubbed(f"{type(err).__name__}: {err}")[:TOLD_CHARACTERS])
        finally:
            if asked.sent and said is None:
                unread()
            await client.aclose()
        text = self._secrets.scrubbed_json(redirected(asked.status, asked.headers) or said)
        after, most = asked.headers.get("retry-after", ""), None if asked.status == 200 else TOLD_CHARACTERS
        return Posted(asked.status, text[:most], float(after) if after.isdecimal() else None)
