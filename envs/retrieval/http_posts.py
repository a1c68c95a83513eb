"""JSON posted to a server by urllib, each request in a thread of its own that its deadline breaks off.

A socket's timeout bounds one read, and a server that sends a byte now and then is never late by it. So the deadline is
kept outside: at its end the socket is shut, which wakes the thread, and the place is free whatever the thread does. The
threads are daemons: none keeps the process alive.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.places import Places
from toolorchestra.envs.base.secrets import Address, Secrets

MOST_AT_ONCE = 64
MOST_READ_BYTES, MOST_TOLD_BYTES, TOLD_CHARACTERS = 16 << 20, 1 << 16, 4096


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
        self._places, self._most = Places(at_once), most_bytes

    async def post(self, path: str, body: Mapping[str, Any]) -> Posted:
        """One request. Its deadline begins when its turn has come, and holds for all of it."""
        await self._places.take()
        try:
            loop = asyncio.get_running_loop()
            answered: asyncio.Future[Posted] = loop.create_future()

            def tell(posted: Posted) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, answered, posted)

            exchange = self._start(path, json.dumps(body).encode(), self._authorization, tell)
            try:
                async with asyncio.timeout(self.deadline_seconds):
                    return await answered
            except TimeoutError:
                return self._late()
            finally:
                exchange.break_off()
        finally:
            self._places.give()

    def get(self, path: str) -> Posted:
        """One request without the key, which the caller's thread waits for."""
        answers: list[Posted] = []
        ended = threading.Event()

        def tell(posted: Posted) -> None:
            answers.append(posted)
            ended.set()

        exchange = self._start(path, None, self._login, tell)
        if not ended.wait(self.deadline_seconds):
            exchange.break_off()
            return self._late()
        return answers[0]

    def _late(self) -> Posted:
        return Posted(0, f"no reply within {self.deadline_seconds:g} s")

    def _start(self, path: str, data: bytes | None, authorization: str, tell: Callable[[Posted], None]) -> _Exchange:
        request = urllib.request.Request(f"{self.base_url}/{path}", data, {"Content-Type": "application/json"})
        if authorization:
            request.add_unredirected_header("Authorization", authorization)
        exchange = _Exchange()
        work = partial(self._work, exchange, request, tell)
        threading.Thread(target=work, name="search", daemon=True).start()
        return exchange

    def _work(self, exchange: _Exchange, request: urllib.request.Request, tell: Callable[[Posted], None]) -> None:
        try:
            status, text, after_seconds = self._answer(exchange, request)
            posted = Posted(status, self._secrets.scrubbed_json(text), after_seconds)
        except Exception as err:  # noqa: BLE001 - whoever waits has to hear of it
            posted = Posted(0, self._secrets.scrubbed(f"{type(err).__name__}: {err}"))
        tell(posted if posted.status == 200 else posted._replace(text=posted.text[:TOLD_CHARACTERS]))

    def _answer(self, exchange: _Exchange, request: urllib.request.Request) -> Posted:
        try:
            with exchange.opener().open(request, timeout=self.deadline_seconds) as reply:
                said = reply.read(self._most + 1)
                if len(said) > self._most:
                    return Posted(0, f"the reply is longer than {self._most} bytes")
                return Posted(reply.status, said.decode("utf-8", "replace"))
        except urllib.error.HTTPError as err:
            return _refused(err)
        except (OSError, http.client.HTTPException) as err:
            return Posted(0, f"{type(err).__name__}: {err}")


def _settle(answered: asyncio.Future[Posted], posted: Posted) -> None:
    if not answered.done():
        answered.set_result(posted)


def _refused(err: urllib.error.HTTPError) -> Posted:
    after = err.headers.get("Retry-After", "")
    with err:
        try:
            text = err.read(MOST_TOLD_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):  # it broke off
            text = ""
    return Posted(err.code, text, float(after) if after.isdecimal() else None)


class _Exchange:
    """The connections of one request, redirections included, which another thread may shut at any moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._over = False

    def opener(self) -> urllib.request.OpenerDirector:
        """What the request is sent by."""
        return urllib.request.build_opener(_Plain(self), _Encrypted(self))

    def opened(self, connection: http.client.HTTPConnection) -> None:
        """Keep a new connection's socket. Raises TimeoutError when the deadline is over already."""
        with self._lock:
            if not self._over:
                self._open.append(connection.sock)
                return
        connection.close()
        raise TimeoutError("the deadline is over")

    def break_off(self) -> None:
        """Shut all that is open."""
        with self._lock:
            self._over = True
            for one in self._open:
                with suppress(OSError):  # it is closed
                    socket.socket.shutdown(one, socket.SHUT_RDWR)


class _Plain(urllib.request.HTTPHandler):
    """Opens http addresses by connections that the exchange knows."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_PlainConnection, exchange=self._exchange), req)


class _Encrypted(urllib.request.HTTPSHandler):
    """Opens https addresses by connections that the exchange knows."""

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_EncryptedConnection, exchange=self._exchange), req)


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, *, exchange: _Exchange, **settings: Any) -> None:
        super().__init__(host, **settings)
        self._exchange = exchange

    def connect(self) -> None:
        super().connect()
        self._exchange.opened(self)


class _EncryptedConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, *, exchange: _Exchange, **settings: Any) -> None:
        super().__init__(host, **settings)
        self._exchange = exchange

    def connect(self) -> None:
        super().connect()
        self._exchange.opened(self)
