"""Models behind OpenAI-compatible servers: deadlines, bounded retries, failover, and what the call really used.

A call tries its endpoints in order. A request that fails for a reason which may pass (429, 5xx, a broken or silent
connection, a reply that is cut off) is made again, after the time the server asks for or a jittered back-off, until the
retries or the patience are used up: then it is an Outage, and the episode is marked failed. What the server refuses for
good is an Outage too, unless it says that the request's text is wrong (400, 422): that is a ToolError, which the agent
reads. An empty reply is a reply: it is billed once and not asked for again.

Each reply is booked on the request's bill when it is read, one that cannot be used too. Of a streamed reply that broke
off, what had come is booked, as an estimate. Not booked: any other request that broke off or timed out, for then nobody
says what it used.
"""

from __future__ import annotations

import asyncio
import random
import time
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, ToolError, install
from toolorchestra.envs.base.http_client import ReplyTooLong, bounded, library, opened, redirected
from toolorchestra.envs.base.secrets import Secrets, key_in
from toolorchestra.envs.models import ChatRequest, Completion, ContextLimits
from toolorchestra.envs.models.endpoints import Endpoint, Endpoints, Served
from toolorchestra.envs.models.rate_limits import EndpointLimits
from toolorchestra.envs.models.streamed_reply import ErrorEvent, StreamedReply, Unreadable, take
from toolorchestra.envs.models.wire import (
    MOST_CORRECTIONS,
    MayPass,
    OutputLimit,
    Refusal,
    Sent,
    body,
    corrected,
    cut_short,
    in_a_stream,
    meaning,
    read,
    retry_after,
    text_of,
    usage_of,
    used_so_far,
)
from toolorchestra.envs.money.prices import Tokens, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


TOLD_CHARACTERS = 300
"""Characters of what a server says went wrong."""
CHECK_SECONDS, CHECK_BYTES = 10.0, 16 << 20
FIRST_BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0
NO_KEY = "none"
RAISE_IT = "; if it may be, raise reply_bytes of the model's entry"
LEAST_BYTES, BYTES_A_TOKEN = 16 << 10, 32
"""Bytes of a reply whose tokens are bounded for its price: around it, and for each token."""


class _OtherLimit(Exception):
    """The server refuses how the reply's length was limited, and says what it takes."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass
class _CallHistory:
    """What one call has been through."""

    guessed: float
    """Tokens of its input, as they are counted before the reply counts them."""
    native: bool = False
    """Whether the tools were sent as schemas, and calls come back as such."""
    asked: float = 0.0
    """Seconds of its requests, which its bill tells: what this side waited in between is no latency of a model."""
    spent: float = 0.0
    """Seconds of its requests and of the pauses between them, which use up its patience."""
    queued: float = 0.0
    """Seconds of waiting for a place, and for money under the spend cap."""
    sent_at: float = 0.0
    """Time when the latest request had its place."""
    failed: dict[str, int] = field(default_factory=dict)
    """Failures by endpoint."""
    not_before: dict[str, float] = field(default_factory=dict)
    """Time from which an endpoint wants to be asked again, of those that said so."""
    problems: list[str] = field(default_factory=list)
    booked: float = 0.0
    """The seconds that stand on the bill, of those asked, with replies that could not be used."""

    @property
    def told(self) -> str:
        """What went wrong, for the end of an error's text."""
        return f"; tried {len(self.problems)} times: {'; '.join(self.problems[-3:])}" if self.problems else ""


class OpenAiModels:
    """Every model of an endpoint file, as one backend. May be shared by threads and event loops."""

    suspends = True

    def __init__(self, endpoints: Endpoints, seed: int | None = None) -> None:
        self.endpoints = endpoints
        self.traffic = {name: EndpointLimits(endpoint) for name, endpoint in endpoints.endpoints.items()}
        self._keys = {name: _key(endpoint) for name, endpoint in endpoints.endpoints.items()}
        logins = [endpoint.address.login for endpoint in endpoints.endpoints.values()]
        self._secrets = Secrets.of(list(self._keys.values()), logins)
        self._clients: weakref.WeakKeyDictionary[Any, dict[tuple[str, int], AsyncOpenAI]] = weakref.WeakKeyDictionary()
        self._jitter = random.Random(seed)
        self._limits: dict[tuple[str, str], OutputLimit] = {}
        """How a server takes the limit of a reply, by endpoint and model, where it said so."""
        _sdk()

    @property
    def patience_seconds(self) -> float:
        """The longest that a call can take, its wait for a place included."""
        return max((m.queue_seconds + m.patience_seconds for m in self.endpoints.models.values()), default=0.0)

    def output_tokens_of(self, model: str) -> int:
        """The most that a model's reply may have, by the endpoint file."""
        return self.endpoints.served(model).output_tokens

    def limits_of(self, model: str) -> ContextLimits:
        """How much of the gathered material a model is shown."""
        return self.endpoints.served(model).shown

    async def complete(self, request: ChatRequest) -> Completion:
        """One completion. Raises ToolError (refused), Outage (away) or ConfigError (a wrong key, model or address)."""
        served = self.endpoints.served(request.model)
        made = body(request, served)
        sent = Sent.of(made, served)
        tried = _CallHistory(sent.guessed, "tools" in made)
        while True:
            traffic = await self._free(served, tried)
            try:
                return await self._as_taken(traffic, request, served, made, tried)
            except (MayPass, Unreadable) as err:
                pause = self._after(err, traffic, served, tried)
                if sum(tried.failed.values()) > served.retries or tried.spent + pause > served.patience_seconds:
                    break
                tried.spent += pause
                await asyncio.sleep(pause)
        raise Outage(f"model {request.model!r} did not answer{tried.told}")

    def _after(self, err: MayPass | Unreadable, traffic: EndpointLimits, served: Served, tried: _CallHistory) -> float:
        """Note what went wrong with a request; the seconds to wait before another."""
        name = traffic.endpoint.name
        tried.problems.append(f"{name}: {self._told(str(err))}")
        took = time.monotonic() - tried.sent_at
        tried.spent += took
        if isinstance(err, MayPass) and err.after_seconds is not None:
            tried.not_before[name] = time.monotonic() + err.after_seconds + self._jitter.uniform(0, 0.1)
        if isinstance(err, MayPass) and err.in_turn:  # the server is well, and says when it is this call's turn
            return 0.0
        tried.asked += took
        traffic.failed(served.name)
        tried.failed[name] = tried.failed.get(name, 0) + 1
        return self._pause(served, tried)

    async def _as_taken(
        self, traffic: EndpointLimits, request: ChatRequest, served: Served, made: dict[str, Any], tried: _CallHistory
    ) -> Completion:
        """One request, the length of its reply limited as the server takes it: it says how, where it refuses ours."""
        which, refused = (traffic.endpoint.name, served.name), None
        for _ in range(MOST_CORRECTIONS + 1):
            taken = self._limits.get(which, OutputLimit()).applied(made)
            try:
                return await self._send(traffic, request, served, taken, Sent.of(taken, served), tried)
            except _OtherLimit as err:
                refused = err.refusal
        assert refused is not None
        raise refused

    async def _free(self, served: Served, tried: _CallHistory) -> EndpointLimits:
        """The endpoint to try: one that does not rest, the least failed of this call's, the first in the file."""
        best = min(served.endpoints, key=lambda name: (self._rest(served, name, tried) > 0, tried.failed.get(name, 0)))
        if self._rest(served, best, tried):
            best = min(served.endpoints, key=lambda name: self._rest(served, name, tried))
            rest = self._rest(served, best, tried)
            if tried.spent + rest > served.patience_seconds:
                names = ", ".join(served.endpoints)
                raise Outage(f"model {served.name!r}: {names} rest for {rest:.0f} s more{tried.told}")
            tried.spent += rest
            await asyncio.sleep(rest)
        return self.traffic[best]

    def _rest(self, served: Served, name: str, tried: _CallHistory) -> float:
        """Seconds until this call may ask an endpoint: it failed again and again, or wants to be left alone so long."""
        return max(self.traffic[name].rests_for(served.name), tried.not_before.get(name, 0.0) - time.monotonic())

    def _pause(self, served: Served, tried: _CallHistory) -> float:
        """The back-off, where an endpoint that failed may be asked at once."""
        ready = [name for name in served.endpoints if not self._rest(served, name, tried)]
        if not ready or any(name not in tried.failed for name in ready):
            return 0.0
        most = min(MOST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (max(tried.failed.values()) - 1))
        return most * self._jitter.uniform(0.5, 1.0)

    async def _send(
        self,
        traffic: EndpointLimits,
        request: ChatRequest,
        served: Served,
        made: dict[str, Any],
        sent: Sent,
        tried: _CallHistory,
    ) -> Completion:
        """One request, when there is a place for it and money left. What it used is booked before its place and its
        share of the spend cap are free again."""
        queued = time.monotonic()
        place = traffic.place(served.name, tried.guessed, served.queue_seconds - tried.queued)
        try:
            await place.__aenter__()
        except TimeoutError:
            waited = tried.queued + time.monotonic() - queued
            name = traffic.endpoint.name
            raise Outage(f"endpoint {name!r} had no place free for {waited:.0f} s{tried.told}") from None
        hold = None
        try:
            left = max(0.0, served.queue_seconds - tried.queued - (time.monotonic() - queued))
            hold = await request.bill.hold(request.model, sent.most_tokens, sent.output_tokens, left)
            tried.sent_at = time.monotonic()
            tried.queued += tried.sent_at - queued
            streamed = StreamedReply(self._scrub)
            most_bytes = _most_bytes(request, served, made, sent)
            try:
                async with asyncio.timeout(served.deadline_seconds):
                    raw = await self._post(traffic, served, made, streamed, most_bytes)
            except BaseException:
                self._book_part(streamed, request, sent, tried, traffic)
                raise
            return self._read(raw, request, sent, tried, traffic)
        except ReplyTooLong as err:
            if not request.most_output_tokens:
                raise MayPass(str(err)) from None
            # Somebody pays for what was read and more, so it is booked as far as was agreed, and not asked for again.
            if not streamed.characters:  # else that was booked
                self._book(request, Tokens(int(sent.guessed), 0, sent.output_tokens, 0), True, tried, traffic)
            raise Outage(f"model {request.model!r}: {err}; {sent.output_tokens} tokens were asked for") from None
        except SpendCapReached as err:
            raise ToolError(f"{err}; nothing was sent") from None
        except TimeoutError:
            raise MayPass(f"no reply within {served.deadline_seconds:g} s") from None
        finally:
            if hold is not None:
                hold.release()
            await place.__aexit__(None, None, None)

    async def _post(
        self, traffic: EndpointLimits, served: Served, made: dict[str, Any], streamed: StreamedReply, most_bytes: int
    ) -> str:
        """The reply's JSON, without any key from here on: what is cut later must not leave a part of one."""
        sdk, until = _sdk(), time.monotonic() + served.deadline_seconds
        asks_stream = made.get("stream") is True
        endpoint, answered = traffic.endpoint, traffic.answered(served.name)
        client = self._client(endpoint, most_bytes)
        asked = client.chat.completions if served.api == "chat" else client.completions
        known = {k: made[k] for k in ("model", "messages", "prompt", "tools") if k in made}
        extra = {k: v for k, v in made.items() if k not in known}
        try:
            if not asks_stream:
                whole = await asked.with_raw_response.create(**known, extra_body=extra)
                traffic.told(served.name, whole.headers)
                return self._secrets.scrubbed_json(str(whole.text))
            async with asked.with_streaming_response.create(**known, extra_body=extra) as reply:
                traffic.told(served.name, reply.headers)
                await take(reply.iter_bytes(), streamed, until)
            return self._secrets.scrubbed_json(streamed.raw)
        except sdk.APIStatusError as err:
            traffic.told(served.name, err.response.headers)
            code, waits = getattr(err, "code", None), retry_after(err.response.headers)
            text = redirected(err.status_code, err.response.headers) or str(err)
            said = Refusal(int(err.status_code), code, self._told(text), waits)
            problem = meaning(said, endpoint, served, answered)
            problem = self._of_the_limit(problem, said, endpoint, served, made)
        except ErrorEvent as err:
            said = Refusal(*in_a_stream(err.error), self._told(f"in its stream: {err.error}"))
            problem = meaning(said, endpoint, served, answered)
        except ReplyTooLong as err:
            problem = ReplyTooLong(str(err))
        except (UnicodeDecodeError, zlib.error, sdk.APIError, library().HTTPError) as err:
            problem = MayPass(f"{type(err).__name__}: {err.__cause__ or err}")
        raise problem  # out here, so that no request with its headers hangs on the error

    def _of_the_limit(
        self, problem: Exception, said: Refusal, endpoint: Endpoint, served: Served, made: Mapping[str, Any]
    ) -> Exception:
        """The refusal, or that it speaks of the limit on the reply alone, which is remembered then."""
        which = (endpoint.name, served.name)
        limit = corrected(self._limits.get(which, OutputLimit()), made, said.text) if said.of_the_request else None
        if limit is None:
            return problem
        self._limits[which] = limit
        return _OtherLimit(problem)

    def _read(
        self, raw: str, request: ChatRequest, sent: Sent, tried: _CallHistory, traffic: EndpointLimits
    ) -> Completion:
        """What was said. What it used is booked first: also where the reply is of no use."""
        reply = read(raw)
        try:
            said = self._scrub(text_of(reply, request, native=tried.native))
        except Unreadable:
            if isinstance(reply.get("usage"), Mapping):  # else nothing says that this was paid for
                self._book(request, *usage_of(reply, sent, raw, ""), tried, traffic)
            raise
        tokens, estimated = usage_of(reply, sent, raw, said)
        usage = self._book(request, tokens, estimated, tried, traffic)
        traffic.went_well(request.model)
        return Completion(said, usage, cut_short(reply), booked=True)

    def _book(
        self, request: ChatRequest, tokens: Tokens, estimated: bool, tried: _CallHistory, traffic: EndpointLimits
    ) -> Usage:
        """Book what a reply used, with the time since the last one that was booked."""
        seconds = tried.asked + time.monotonic() - tried.sent_at - tried.booked
        usage = Usage(request.model, request.role, tokens, 0, round(seconds, 3), estimated)
        request.bill.add(usage)
        tried.booked += seconds
        traffic.used(request.model, tried.guessed, sum(tokens))
        return usage

    def _book_part(
        self, streamed: StreamedReply, request: ChatRequest, sent: Sent, tried: _CallHistory, traffic: EndpointLimits
    ) -> None:
        """Book what had come of a stream that broke off. Nothing, where nothing came that the model had made."""
        if streamed.characters or isinstance(streamed.usage, Mapping):
            self._book(request, used_so_far(streamed, sent), True, tried, traffic)

    def _client(self, endpoint: Endpoint, most_bytes: int) -> AsyncOpenAI:
        """The endpoint's client for the running loop: a connection cannot change loops."""
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        which, address = (endpoint.name, most_bytes), endpoint.address
        if which not in clients:
            clients[which] = _sdk().AsyncOpenAI(
                api_key=self._keys[endpoint.name] or NO_KEY, base_url=address.url, max_retries=0, timeout=None,
                default_headers={"Authorization": address.basic} if address.login else None,
                http_client=opened(_sdk().DefaultAsyncHttpxClient, **bounded(most_bytes, RAISE_IT)),
            )  # fmt: skip
        return clients[which]

    async def check(self) -> None:
        """Ask every endpoint for its list of models, which costs nothing. Raises ConfigError where a model has no one
        that answers, whatever it answers, or where all refuse the key."""
        names = [name for name in self.endpoints.endpoints if self._asked_for(name)]
        wrong = dict(zip(names, await asyncio.gather(*(self._wrong(name) for name in names)), strict=True))
        for served in self.endpoints.models.values():
            if all(wrong[name] for name in served.endpoints):
                told = "; ".join(f"{name} at {self.endpoints.endpoints[name].address.url}: {wrong[name]}"
                                 for name in served.endpoints)  # fmt: skip
                raise ConfigError(f"no endpoint of model {served.name!r} answers: {told}")

    def _asked_for(self, endpoint: str) -> bool:
        return any(endpoint in served.endpoints for served in self.endpoints.models.values())

    async def _wrong(self, name: str) -> str:
        """What is wrong with an endpoint; "" where it answers."""
        sdk, endpoint = _sdk(), self.endpoints.endpoints[name]
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._client(endpoint, CHECK_BYTES).models.with_raw_response.list()
        except sdk.APIStatusError as err:
            told = redirected(err.status_code, err.response.headers)
            return f"refuses the key ({err.status_code})" if err.status_code in (401, 403) else told
        except TimeoutError:
            return f"no answer within {CHECK_SECONDS:g} s"
        except (sdk.APIError, ReplyTooLong, UnicodeDecodeError, zlib.error) as err:
            return self._scrub(f"{type(err).__name__}: {err.__cause__ or err}")
        return ""

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    def _told(self, text: str) -> str:
        """What a server says, for an error's text."""
        return self._scrub(text)[:TOLD_CHARACTERS]

    def _scrub(self, text: str) -> str:
        """The text without any key or password, should a server send one back."""
        return self._secrets.scrubbed(text)


def _most_bytes(request: ChatRequest, served: Served, made: Mapping[str, Any], sent: Sent) -> int:
    """The most of a reply that is read."""
    most = served.most_reply_bytes(made.get("stream") is True)
    if not request.most_output_tokens:
        return most
    # Rounded up to a power of two, since each bound has a client of its own.
    return min(most, int(2 ** (LEAST_BYTES + BYTES_A_TOKEN * sent.output_tokens - 1).bit_length()))


def _sdk() -> Any:
    try:
        import openai
    except ImportError:
        raise ConfigError(f"models behind endpoints need the openai SDK: {install('models')}") from None
    return openai


def _key(endpoint: Endpoint) -> str:
    if not endpoint.key_env:
        return ""
    key = key_in(endpoint.key_env)
    if not key:
        wanted = endpoint.key_env
        raise ConfigError(f"endpoint {endpoint.name!r} needs a key: export {wanted}=... (or take key_env out)")
    return key
