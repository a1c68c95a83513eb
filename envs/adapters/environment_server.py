"""Environments behind HTTP, for trainers in other processes, by two protocols: OpenEnv's and NeMo Gym's."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toolorchestra.envs.adapters import json_body
from toolorchestra.envs.adapters.openenv import SCHEMAS, OpenEnvConnection
from toolorchestra.envs.adapters.remote_episodes import RemoteEpisodes, SessionError
from toolorchestra.envs.base.errors import ConfigError, install

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import BaseRoute, Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    from toolorchestra.envs.adapters.nemo_gym import ResourceServer
except ModuleNotFoundError as err:
    raise ConfigError(f"the server needs {err.name}: {install('serve')}") from None

BODY_BYTES = 64 << 20


def environment_app(episodes: RemoteEpisodes, token: str = "") -> Starlette:
    """The ASGI application of both protocols. `token`: what every request must bear, where it is not empty."""
    nemo = ResourceServer(episodes)
    about = {"name": "toolorchestra", "description": f"tool orchestration: {', '.join(episodes.factories)}"}
    gets: dict[str, Mapping[str, Any]] = {"/": {"status": "ok"}, "/health": {"status": "healthy"}, "/metadata": about}

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        reaper = asyncio.create_task(episodes.reap())
        yield
        reaper.cancel()
        await episodes.stop()

    async def socket(connection: WebSocket) -> None:
        await connection.accept()
        client = OpenEnvConnection(episodes)
        try:
            while (reply := await client.reply(await connection.receive_text())) is not None:
                await connection.send_text(json.dumps(reply, allow_nan=False, default=str))
            await connection.close()
        except WebSocketDisconnect:
            pass
        finally:
            client.close()

    routes: list[BaseRoute] = [WebSocketRoute("/ws", socket), Route("/rows", _guarded(nemo.rows))]
    routes += [Route(path, _told(said)) for path, said in {**gets, "/schema": SCHEMAS}.items()]
    routes += [Route(path, _guarded(handler), methods=["POST"]) for path, handler in nemo.posts().items()]
    return Starlette(routes=routes, middleware=[Middleware(Bearers, token)], lifespan=lifespan)


def _told(said: Mapping[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        return JSONResponse(said)

    return handle


def _guarded(handler: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler of a request, and of its body where it is posted; what is wrong comes as JSON."""

    async def handle(request: Request) -> Response:
        too_large = SessionError(413, f"a request has at most {BODY_BYTES >> 20} MiB")
        try:
            if request.method == "POST":
                return await handler(request, await json_body(request, BODY_BYTES, too_large))
            return await handler(request)
        except ConfigError as err:
            return JSONResponse({"error": str(err)}, 400)
        except SessionError as err:
            return JSONResponse({"error": str(err), "bill": err.account}, err.status)

    return handle


class Bearers:
    """Lets in who bears the token. Where there is none, pages in a browser are kept out: they reach a loopback."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        why = self._wrong(Headers(scope=scope)) if scope["type"] in ("http", "websocket") else ""
        if not why:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await JSONResponse({"error": why}, 401 if self._token else 403)(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": why})

    def _wrong(self, headers: Headers) -> str:
        if self._token:
            right = f"Bearer {self._token}".encode()
            return "" if hmac.compare_digest(headers.get("authorization", "").encode(), right) else "wrong token"
        return "a page in a browser may not ask a server without a token" if "origin" in headers else ""
