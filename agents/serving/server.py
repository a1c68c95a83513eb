"""The HTTP server of `toolorchestra serve`: OpenAI's chat API over a PolicyService, with health, metrics and a page."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from typing import Any, TypeVar
from urllib.parse import urlsplit

from toolorchestra.agents.serving import openai_api as api
from toolorchestra.agents.serving import responses_api
from toolorchestra.agents.serving.accounts import NOBODY, Refused
from toolorchestra.agents.serving.client_tools import ClientSession
from toolorchestra.agents.serving.mcp_service import mcp_app
from toolorchestra.agents.serving.service import Ended, PolicyService, question_of
from toolorchestra.envs.adapters import json_body
from toolorchestra.envs.base.errors import ConfigError, Outage, install
from toolorchestra.envs.money.prices import EXPERT, NANO, REWARDED_ROLES, ROLES
from toolorchestra.envs.retrieval.remote import LOOPBACK
from toolorchestra.envs.wrappers.record import trajectory_line

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as err:
    raise ConfigError(f"the server needs {err.name}: {install('serve')}") from None

_LOG = logging.getLogger("uvicorn.error")
BODY_BYTES = 4 << 20
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_PRIVATE = {"cache-control": "no-store"}
_ONCE = {"x-should-retry": "false"}
"""Header of what OpenAI's client would send again, and pay again, up to twice."""
Handler = Callable[[Request, str], Awaitable[Response]]
T = TypeVar("T")


class Metrics:
    """What Prometheus is told."""

    def __init__(self, service: PolicyService) -> None:
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        name = "toolorchestra"
        self._requests = Counter(f"{name}_requests", "Requests that ended.", ("policy", "ended"), **made)
        self._refused = Counter(f"{name}_refused", "Requests that were not taken.", ("code",), **made)
        self._usd = Counter(f"{name}_usd", "Dollars that were billed.", ("key", "role"), **made)
        self._calls = Counter(f"{name}_calls", "Calls of tools and models.", ("tool", "model"), **made)
        self._seconds = Histogram(f"{name}_seconds", "Time of a request.", ("policy",), buckets=_SECONDS, **made)
        Gauge(f"{name}_active", "Requests that run.", **made).set_function(lambda: service.active)
        Gauge(f"{name}_waiting", "Requests that wait for a place.", **made).set_function(lambda: service.waiting)
        self._spent = Gauge(f"{name}_spent_usd", "Dollars that a key has spent.", ("key",), **made)
        self._held = Gauge(f"{name}_held_usd", "Dollars set aside: in flight, or lost by a kill.", ("key",), **made)
        self._service, self.started = service, time.time()
        service.on_end.append(self._ended)

    def refused(self, code: str) -> None:
        """Count a request that was not taken."""
        self._refused.labels(code).inc()

    def _ended(self, ended: Ended) -> None:
        self._requests.labels(ended.policy, ended.ended).inc()
        self._seconds.labels(ended.policy).observe(ended.seconds)
        for role, usd in ended.usd_by_role.items():
            self._usd.labels(ended.account, role).inc(usd)
        models = {charge["tool"]: charge["item"] for charge in ended.trajectory["charges"] if charge["role"] == EXPERT}
        for tool, calls in ended.calls.items():
            # A client may name its own tools as it likes: each name would be kept for ever.
            name = "client's own" if tool in ended.own_tools else tool
            self._calls.labels(name, models.get(tool, "")).inc(calls)

    def totals(self) -> dict[str, list[dict[str, Any]]]:
        """All that was counted since the start: for each counter a count with its labels."""
        counters = {"requests": self._requests, "refused": self._refused, "usd": self._usd, "calls": self._calls}
        return {
            name: [
                {**sample.labels, "count": sample.value}
                for family in counter.collect()
                for sample in family.samples
                if sample.name.endswith("_total")
            ]
            for name, counter in counters.items()
        }

    def text(self) -> bytes:
        """Render everything in Prometheus' form."""
        for name, spent, held in self._service.accounts.accounts():
            self._spent.labels(name).set(spent / NANO)
            self._held.labels(name).set(held / NANO)
        return generate_latest(self.registry)


class Server:
    """The routes over one service."""

    def __init__(self, service: PolicyService, page: tuple[str, str]) -> None:
        """`page`: the HTML to watch the server, and its Content-Security-Policy."""
        self.service, self._html = service, page
        self.metrics = Metrics(service)
        self._mcp = mcp_app(service)

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            Route("/v1/responses", self._guarded(self._responses), methods=["POST"]),
            Route("/v1/decision", self._guarded(self._decision), methods=["POST"]),
            Route("/v1/feedback", self._guarded(self._feedback), methods=["POST"]),
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/activity", self._guarded(self._activity, admin=True)),
            Route("/v1/trajectories/{request_id}", self._guarded(self._trajectory, admin=True)),
            Route("/metrics", self._guarded(self._metrics, admin=True)),
            Route("/health", self._health),
            Route("/", self._page),
        ]
        if self._mcp is not None:
            routes += self._mcp.routes
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.service.close)
            if self._mcp is not None:
                await stack.enter_async_context(self._mcp.router.lifespan_context(self._mcp))
            yield

    def _guarded(self, handler: Handler, *, admin: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """A handler for who has a key, whose errors come in OpenAI's shape."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request, self._account(request, admin=admin))
            except Refused as err:
                return self._refuse(err)
            except ConfigError as err:
                return self._refuse(Refused(400, "invalid_request", str(err)))
            except Outage as err:
                return self._refuse(Refused(503, "unavailable", str(err)))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception:  # noqa: BLE001 - the log has it, and the client a reply
                _LOG.exception("a request failed by a fault of the server")
                return JSONResponse(api.problem("the server failed; its log says how", "server_error", "internal"), 500)

        return handle

    def _account(self, request: Request, *, admin: bool) -> str:
        from_page = request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        try:  # a page's own name may lead to this address
            named = urlsplit(f"//{request.headers.get('host', '')}").hostname
        except ValueError:
            named = ""
        if not self.service.accounts.keys and (from_page or named not in (None, *LOOPBACK)):
            raise Refused(403, "other_site", "a page of another site may not ask a server without keys")
        name = self.service.accounts.who(request.headers.get("authorization", ""))
        if admin and name != NOBODY and not self.service.accounts.keys[name].admin:
            raise Refused(403, "not_an_admin", "this is for keys with admin = true alone")
        return name

    def _refuse(self, err: Refused) -> Response:
        self.metrics.refused(err.code)
        kind = "invalid_request_error" if err.status < 500 else "server_error"
        told = {"retry-after": str(math.ceil(err.after_seconds))} if err.after_seconds else {}
        if err.status == 409:  # a conversation that is gone stays so
            told |= _ONCE
        return JSONResponse(api.problem(str(err), kind, err.code), err.status, headers=told)

    # -- asking ------------------------------------------------------------------------------------------------------

    async def _chat(self, request: Request, account: str) -> Response:
        return await self._answered(request, await _body(request), account, api)

    async def _responses(self, request: Request, account: str) -> Response:
        return await self._answered(request, responses_api.chat_body(await _body(request)), account, responses_api)

    async def _answered(self, request: Request, data: Mapping[str, Any], account: str, form: Any) -> Response:
        """An answer in one of the two forms."""
        session = await self.service.begin(data, account)
        if data.get("stream"):
            events = self._events(session, form, data)
            return _Stream(self.service, session, events)
        reply = await _unless_gone(request, self.service.reply(session))
        if reply.ended == "failed":
            return JSONResponse(api.failed(reply), 502, headers=api.headers(reply) | _ONCE)
        return JSONResponse(form.whole(reply), headers=api.headers(reply))

    async def _events(self, session: ClientSession, form: Any, data: Mapping[str, Any]) -> AsyncIterator[bytes]:
        told: asyncio.Queue[str] = asyncio.Queue()
        session.watch = told.put_nowait if data.get("steps") else None
        usage_apart = bool((data.get("stream_options") or {}).get("include_usage"))
        playing = asyncio.create_task(self.service.reply(session))
        who = (session.request_id, session.model)
        try:
            yield form.opening(*who)
            while not playing.done():
                waits = asyncio.create_task(told.get())
                try:
                    await asyncio.wait({playing, waits}, return_when=asyncio.FIRST_COMPLETED)
                    if not waits.done():
                        break
                    step = waits.result()
                finally:
                    waits.cancel()  # changes nothing where it is done
                yield form.step(*who, step)
            while not told.empty():
                yield form.step(*who, told.get_nowait())
            for piece in form.ending(await playing, usage_apart):
                yield piece
        finally:
            if not playing.done():  # the client has gone: what was paid is booked
                playing.cancel()
                await asyncio.wait({playing})

    async def _decision(self, request: Request, account: str) -> Response:
        told = await _unless_gone(request, self.service.decision(await _body(request), account))
        failed = told.get("ended") == "failed"
        return JSONResponse(told, 502 if failed else 200, headers=_ONCE if failed else {})

    async def _feedback(self, request: Request, account: str) -> Response:
        data = await _body(request)
        if {*data} != {"id", "right"} or not isinstance(data["right"], bool):
            form = '{"id": ID of an answer, "right": true or false}'
            raise ConfigError(f"the request: {form} expected, got {dict(data)!r:.80}")
        self.service.rate(str(data["id"]), data["right"], account)
        return JSONResponse({"object": "feedback", "id": data["id"]})

    async def _models(self, _request: Request, _account: str) -> Response:
        about = {"object": "model", "created": 0, "owned_by": "toolorchestra"}
        listed = [{"id": name, **about} for name in self.service.models()]
        return JSONResponse({"object": "list", "data": listed})

    # -- watching ----------------------------------------------------------------------------------------------------

    async def _health(self, _request: Request) -> Response:
        service = self.service
        told = {"status": "ok", "active": service.active, "waiting": service.waiting, "models": list(service.solvers)}
        return JSONResponse(told)

    async def _metrics(self, _request: Request, _account: str) -> Response:
        text = await self.service.books.aside(self.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _activity(self, _request: Request, _account: str) -> Response:
        service = self.service
        accounts = service.accounts
        keys = [
            dict(name=one.name, usd=one.spent / NANO, held_usd=one.held / NANO, limit_usd=accounts.limit_of(one.name))
            for one in await service.books.aside(accounts.accounts)
        ]
        told = {
            "active": service.active,
            "waiting": service.waiting,
            "started": self.metrics.started,
            "roles": ROLES,
            "agent_roles": REWARDED_ROLES,
            "keys": keys,
            "canary": service.canary.told() if service.canary is not None else None,
            "totals": self.metrics.totals(),
            "in_flight": service.in_flight(),
            "latest": [_row(ended) for ended in reversed(service.latest)],
        }
        return JSONResponse(told, headers=_PRIVATE)

    async def _trajectory(self, request: Request, _account: str) -> Response:
        wanted = request.path_params["request_id"]
        found = self.service.trajectory(wanted)
        if found is None:
            kept = len(self.service.latest)
            raise Refused(404, "not_found", f"no request {wanted!r:.60} is in flight or among the last {kept}")
        return Response(trajectory_line(found), media_type="application/json", headers=_PRIVATE)

    async def _page(self, _request: Request) -> Response:
        html, policy = self._html
        shield = {"content-security-policy": policy, "x-content-type-options": "nosniff", "cache-control": "no-cache"}
        return HTMLResponse(html, headers=shield)


def _row(ended: Ended) -> dict[str, Any]:
    row = {field.name: getattr(ended, field.name) for field in fields(Ended)}
    kept = row.pop("trajectory")
    del row["own_tools"]
    began, asked = ended.at - ended.seconds, question_of(kept.get("messages", ()))
    return {**row, "began": began, "turns": kept["totals"]["turns"], "question": asked}


async def _body(request: Request) -> Mapping[str, Any]:
    """The request's JSON object, bounded. Raises ConfigError."""
    too_large = Refused(413, "too_large", f"a request has at most {BODY_BYTES >> 20} MiB")
    return await json_body(request, BODY_BYTES, too_large)


class _Stream(StreamingResponse):
    """A request's events, which ends it where its client went away before the first."""

    def __init__(self, service: PolicyService, session: ClientSession, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._service, self._session = service, session

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._service.left(self._session)


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Wait for the work; where the client goes away first, cancel it, so that nothing more is paid."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.ensure_future(work), asyncio.create_task(disconnected())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        task.cancel()  # changes nothing where it is done
        await asyncio.wait({task})
