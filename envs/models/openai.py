"""Models behind OpenAI-compatible servers: deadlines, bounded retries, failover, and what the call really used.

A call tries its endpoints in order. A request that fails for a reason which may pass (429, 5xx, a broken or silent
connection, a reply that is cut off) is made again, after the time the server asks for or a jittered back-off, until the
retries or the patience are used up: then it is an Outage, and the episode is marked failed. What the server refuses for
good is an Outage too, unless it says that the request's text is wrong (400, 422): that is a ToolError, which the agent
reads. An empty reply is a reply: it is billed once and not asked for again.

Each reply is booked on the request's bill when it is read, one that cannot be used too. A request that went out and was
not read to its end (late, cut, reset, too long, cancelled) may be paid all the same: it is booked at the most that it
can have cost, what had come of it as an estimate, the rest as unconfirmed. So is one that was read and that no server
has counted, since a model may think where nobody sees it. Not booked: what a server refuses in so many words, and what
never reached one.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, ToolError
from toolorchestra.envs.base.http_client import Exchange, HttpClient, ReplyTooLong, broken, library, redirected
from toolorchestra.envs.base.secrets import Secrets, key_in
from toolorchestra.envs.models import ChatRequest, Completion, ContextLimits
from toolorchestra.envs.models.endpoints import Endpoint, Endpoints, Served
from toolorchestra.envs.models.rate_limits import EndpointLimits
from toolorchestra.envs.models.streamed_reply import ErrorEvent, StreamedReply, Unreadable, take, usage_in
from toolorchestra.envs.models.usage import COST_HEADER, told_cost, usage_of, used_so_far
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
)
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, Tokens, Usage

TOLD_CHARACTERS = 300
"""Characters of what a server says went wrong."""
CHECK_SECONDS, CHECK_BYTES = 10.0, 16 << 20
FIRST_BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0
NO_KEY = "none"
RAISE_IT = "; if it may be, raise reply_bytes of the model's entry"
LEAST_BYTES, BYTES_A_TOKEN = 16 << 10, 32
"""Bytes of a reply whose tokens are bounded for its price: around it, and for each token."""
_PERHAPS_SERVED = frozenset({504, 524})
"""A gateway that gave up waiting: the model behind it may have answered, and be paid."""


class _OtherLimit(Exception):
    """The server refuses how the reply's length was limited, and says what it takes."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass
class _EndpointCall:
    """What is asked in one call, and what the call has been through."""

    request: ChatRequest
    served: Served
    made: dict[str, Any]
    """The JSON of its request, as it was made at first."""
    guessed: float
    """Tokens of its input, as they are counted before a reply counts them."""
    traffic: EndpointLimits = field(init=False)
    """The endpoint that is asked now, and what was sent there."""
    taken: dict[str, Any] = field(init=False)
    sent: Sent = field(init=False)
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
    cost_header: str | None = None
    """What the latest reply's head says that it cost."""
    settled: bool = False
    """Whether it is known what the latest request has cost: it is booked, or was refused."""

    @property
    def told(self) -> str:
        """What went wrong, for the end of an error's text."""
        return f"; tried {len(self.problems)} times: {'; '.join(self.problems[-3:])}" if self.problems else ""

    @property
    def streams(self) -> bool:
        return self.taken.get("stream") is True


class OpenAiModels:
    """Every model of an endpoint file, as one backend. May be shared by threads and event loops."""

    suspends = True

    def __init__(self, endpoints: Endpoints, seed: int | None = None) -> None:
        self.endpoints = endpoints
        self.traffic = {name: EndpointLimits(endpoint) for name, endpoint in endpoints.endpoints.items()}
        self._keys = {name: _key(endpoint) for name, endpoint in endpoints.endpoints.items()}
        logins = [endpoint.address.login for endpoint in endpoints.endpoints.values()]
        self._secrets = Secrets(*self._keys.values(), *logins)
        self._scrub = self._secrets.scrubbed
        self._clients: weakref.WeakKeyDictionary[Any, HttpClient] = weakref.WeakKeyDictionary()
        """One for each loop, since a connection cannot change loops."""
        self._served: dict[str, Served] = {}
        self._jitter = random.Random(seed)
        self._limits: dict[tuple[str, str], OutputLimit] = {}
        """How a server takes the limit of a reply, by endpoint and model, where it said so."""
        library()

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
        served = self._served.get(request.model)
        if served is None:
            served = self._served[request.model] = self.endpoints.served(request.model)
        made = body(request, served)
        call = _EndpointCall(request, served, made, Sent.of(made, served).characters / CHARACTERS_PER_TOKEN)
        while True:
            call.traffic = await self._free(call)
            try:
                return await self._as_taken(call)
            except (MayPass, Unreadable) as err:
                pause = self._after(err, call)
                if sum(call.failed.values()) > served.retries or call.spent + pause > served.patience_seconds:
                    break
                call.spent += pause
                await asyncio.sleep(pause)
        raise Outage(f"model {request.model!r} did not answer{call.told}")

    def _after(self, err: MayPass | Unreadable, call: _EndpointCall) -> float:
        """Note what went wrong with a request; the seconds to wait before another."""
        name = call.traffic.endpoint.name
        call.problems.append(f"{name}: {self._told(str(err))}")
        took = time.monotonic() - call.sent_at
        call.spent += took
        if isinstance(err, MayPass) and err.after_seconds is not None:
            call.not_before[name] = time.monotonic() + err.after_seconds + self._jitter.uniform(0, 0.1)
        if isinstance(err, MayPass) and err.in_turn:  # the server is well, and says when it is this call's turn
            return 0.0
        call.asked += took
        call.traffic.failed(call.served.name)
        call.failed[name] = call.failed.get(name, 0) + 1
        ready = [name for name in call.served.endpoints if not self._rest(name, call)]
        if not ready or any(name not in call.failed for name in ready):
            return 0.0  # another endpoint may be asked at once
        most = min(MOST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (max(call.failed.values()) - 1))
        return most * self._jitter.uniform(0.5, 1.0)

    async def _as_taken(self, call: _EndpointCall) -> Completion:
        """One request, the length of its reply limited as the server takes it: it says how, where it refuses ours."""
        which, refused = (call.traffic.endpoint.name, call.served.name), None
        for _ in range(MOST_CORRECTIONS + 1):
            call.taken = self._limits[which].applied(call.made) if which in self._limits else call.made
            call.sent = Sent.of(call.taken, call.served)
            try:
                return await self._send(call)
            except _OtherLimit as err:
                refused = err.refusal
        assert refused is not None
        raise refused

    async def _free(self, call: _EndpointCall) -> EndpointLimits:
        """The endpoint to try: one that does not rest, the least failed of this call's, the first in the file."""
        served = call.served
        best = min(served.endpoints, key=lambda name: (self._rest(name, call) > 0, call.failed.get(name, 0)))
        if self._rest(best, call):
            best = min(served.endpoints, key=lambda name: self._rest(name, call))
            rest = self._rest(best, call)
            if call.spent + rest > served.patience_seconds:
                names = ", ".join(served.endpoints)
                raise Outage(f"model {served.name!r}: {names} rest for {rest:.0f} s more{call.told}")
            call.spent += rest
            await asyncio.sleep(rest)
        return self.traffic[best]

    def _rest(self, name: str, call: _EndpointCall) -> float:
        """Seconds until this call may ask an endpoint: it failed again and again, or wants to be left alone so long."""
        return max(self.traffic[name].rests_for(call.served.name), call.not_before.get(name, 0.0) - time.monotonic())

    async def _send(self, call: _EndpointCall) -> Completion:
        """One request, when there is a place for it and money left. What it used is booked before its place and its
        share of the spend cap are free again."""
        served, sent, queued = call.served, call.sent, time.monotonic()
        place = call.traffic.place(served.name, call.guessed, served.queue_seconds - call.queued)
        try:
            await place.__aenter__()
        except TimeoutError:
            waited = call.queued + time.monotonic() - queued
            name = call.traffic.endpoint.name
            raise Outage(f"endpoint {name!r} had no place free for {waited:.0f} s{call.told}") from None
        hold = None
        try:
            left = max(0.0, served.queue_seconds - call.queued - (time.monotonic() - queued))
            hold = await call.request.bill.hold(served.name, sent.most_tokens, sent.output_tokens, left)
            call.sent_at, call.settled = time.monotonic(), False
            call.queued += call.sent_at - queued
            return await self._answered(call)
        except ReplyTooLong as err:
            if not call.request.most_output_tokens:
                raise MayPass(str(err)) from None
            raise Outage(f"model {served.name!r}: {err}; {sent.output_tokens} tokens were asked for") from None
        except SpendCapReached as err:
            raise ToolError(f"{err}; nothing was sent") from None
        except TimeoutError:
            raise MayPass(f"no reply within {served.deadline_seconds:g} s") from None
        finally:
            if hold is not None:
                hold.release()
            await place.__aexit__(None, None, None)

    async def _answered(self, call: _EndpointCall) -> Completion:
        """A request and its reply, booked however it ends."""
        served, streamed = call.served, StreamedReply(self._scrub)
        most = served.most_reply_bytes(call.streams)
        if call.request.most_output_tokens:
            most = min(most, LEAST_BYTES + BYTES_A_TOKEN * call.sent.output_tokens)
        data = json.dumps(call.taken, ensure_ascii=False).encode("utf-8", "replace")
        asked = self._exchange("POST", call.traffic.endpoint, "chat/completions", data, most)
        try:
            async with asyncio.timeout(served.deadline_seconds):
                raw = await self._post(asked, call, streamed)
            return self._read(raw, call)
        except BaseException:
            if asked.sent and not call.settled:
                self._book_unread(streamed, call)
            raise

    async def _post(self, asked: Exchange, call: _EndpointCall, streamed: StreamedReply) -> str:
        """The reply's JSON, without any key from here on: what is cut later must not leave a part of one."""
        until = time.monotonic() + call.served.deadline_seconds
        try:
            async with asked:
                call.traffic.told(call.served.name, asked.headers)
                call.cost_header = asked.headers.get(COST_HEADER)
                if 200 <= asked.status < 300:
                    if not call.streams:
                        return self._secrets.scrubbed_json(await asked.text())
                    await take(asked.pieces(), streamed, until)
                    return self._secrets.scrubbed_json(streamed.raw)
                said = self._refused(asked, await asked.text(), call)
            problem = self._of_the_limit(said, call) or self._meaning(said, call)
        except ErrorEvent as err:
            problem = self._meaning(Refusal(*in_a_stream(err.error), self._told(f"in its stream: {err.error}")), call)
            if not streamed.characters:
                self._book_refusal({"usage": streamed.usage}, "", call)
        except ReplyTooLong as err:
            problem = ReplyTooLong(str(err))
        except broken() as err:
            if isinstance(err, TimeoutError):
                raise
            problem = MayPass(self._told(f"{type(err).__name__}: {err}"))
        raise problem  # out here, so that no request with its headers hangs on the error

    def _meaning(self, said: Refusal, call: _EndpointCall) -> Exception:
        return meaning(said, call.traffic.endpoint, call.served, call.traffic.answered(call.served.name))

    def _refused(self, asked: Exchange, raw: str, call: _EndpointCall) -> Refusal:
        """What a server says that refuses a request, whose usage is booked where it tells one."""
        raw = self._secrets.scrubbed_json(raw)
        try:
            reply = read(raw)
        except Unreadable:
            reply = {}
        error = reply.get("error", reply)
        code = error.get("code") if isinstance(error, Mapping) else None
        if asked.status not in _PERHAPS_SERVED or usage_in(reply):
            self._book_refusal(reply, raw, call)
        text = redirected(asked.status, asked.headers) or raw.strip() or "no reason given"
        return Refusal(asked.status, code, self._told(text), retry_after(asked.headers))

    def _of_the_limit(self, said: Refusal, call: _EndpointCall) -> _OtherLimit | None:
        """Remember how the server limits a reply, where its refusal speaks of that alone; else None."""
        which = (call.traffic.endpoint.name, call.served.name)
        known = self._limits.get(which, OutputLimit())
        limit = corrected(known, call.taken, said.text) if said.of_the_request else None
        if limit is None:
            return None
        self._limits[which] = limit
        return _OtherLimit(self._meaning(said, call))

    def _read(self, raw: str, call: _EndpointCall) -> Completion:
        """What was said. What it used is booked first: also where the reply is of no use."""
        reply = read(raw)
        try:
            said = self._scrub(text_of(reply, call.request, native="tools" in call.made))
        except Unreadable:
            if usage_in(reply) or reply.get("error"):
                self._book_refusal(reply, raw, call)
            raise
        usage = self._book_whole(reply, raw, said, call)
        call.traffic.went_well(call.served.name)
        return Completion(said, usage, cut_short(reply), booked=True)

    def _book_refusal(self, reply: Mapping[str, Any], raw: str, call: _EndpointCall) -> None:
        """Book what a reply without an answer says that it used; nothing where it does not."""
        call.settled = True
        if usage_in(reply):
            self._book_whole(reply, raw, "", call)

    def _book_whole(self, reply: Mapping[str, Any], raw: str, said: str, call: _EndpointCall) -> Usage:
        """Book what a whole reply used; where nobody has counted it, what it may have used beside its estimate too."""
        used, counted = usage_of(reply, call.sent, raw, said)
        usage = self._book(*used, call, reply)
        if not counted and usage.told_nano_usd is None:
            self._book_rest(used.tokens, call)
        return usage

    def _book(
        self, tokens: Tokens, estimated: bool, call: _EndpointCall, reply: Mapping[str, Any] | None = None
    ) -> Usage:
        """Book what a whole reply used, or a part of one, with the time since the last one that was booked."""
        seconds, request = call.asked + time.monotonic() - call.sent_at - call.booked, call.request
        told = None
        if reply is not None and call.traffic.endpoint.tells_cost:
            told = told_cost(reply, call.cost_header)
        usage = Usage(request.model, request.role, tokens, 0, round(seconds, 3), estimated, told_nano_usd=told)
        request.bill.add(usage)
        call.booked += seconds
        call.settled = True
        call.traffic.used(request.model, call.guessed, sum(tokens))
        return usage

    def _book_unread(self, streamed: StreamedReply, call: _EndpointCall) -> None:
        """Book a request that went out and was not read to its end: what had come of a stream as an estimate, and what
        it may have used beside that as unconfirmed."""
        part, counted = Tokens(), False
        if streamed.characters or isinstance(streamed.usage, Mapping):
            part, counted = used_so_far(streamed, call.sent)
            self._book(part, True, call)
        self._book_rest(part, call, input_counted=counted)

    def _book_rest(self, booked: Tokens, call: _EndpointCall, *, input_counted: bool = False) -> None:
        """Book as unconfirmed what a request may have used beside what is booked."""
        into = 0 if input_counted else max(0, call.sent.most_tokens - booked.input)
        out = max(0, call.sent.output_tokens - booked.output - booked.reasoning)
        if into or out:
            call.request.bill.add_unread(call.request.model, call.request.role, into, out)

    def _exchange(self, method: str, endpoint: Endpoint, path: str, data: bytes, most_bytes: int) -> Exchange:
        client = self._clients.setdefault(asyncio.get_running_loop(), HttpClient())
        address = endpoint.address
        login = address.basic or f"Bearer {self._keys[endpoint.name] or NO_KEY}"
        url = f"{address.url.rstrip('/')}/{path}"
        return client.exchange(method, url, {"Authorization": login}, data, most_bytes, RAISE_IT)

    async def check(self) -> None:
        """Ask every endpoint for its list of models, which costs nothing. Raises ConfigError where a model has no one
        that answers, whatever it answers, or where all refuse the key."""
        wanted = {name for served in self.endpoints.models.values() for name in served.endpoints}
        names = [name for name in self.endpoints.endpoints if name in wanted]
        wrong = dict(zip(names, await asyncio.gather(*(self._wrong(name) for name in names)), strict=True))
        for served in self.endpoints.models.values():
            if all(wrong[name] for name in served.endpoints):
                told = "; ".join(f"{name} at {self.endpoints.endpoints[name].address.url}: {wrong[name]}"
                                 for name in served.endpoints)  # fmt: skip
                raise ConfigError(
                    f"no endpoint of model {served.name!r} answers: {told}; start it, or mend its base_url"
                )

    async def _wrong(self, name: str) -> str:
        """What is wrong with an endpoint; "" where it answers."""
        asked = self._exchange("GET", self.endpoints.endpoints[name], "models", b"", CHECK_BYTES)
        problems: tuple[type[Exception], ...] = (*broken(), ReplyTooLong)
        try:
            async with asyncio.timeout(CHECK_SECONDS), asked:
                await asked.text()
        except TimeoutError:
            return f"no answer within {CHECK_SECONDS:g} s"
        except problems as err:
            return self._scrub(f"{type(err).__name__}: {err}")
        told = redirected(asked.status, asked.headers)
        return f"refuses the key ({asked.status})" if asked.status in (401, 403) else told

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _told(self, text: str) -> str:
        """What a server says, for an error's text."""
        return self._scrub(text)[:TOLD_CHARACTERS]


def _key(endpoint: Endpoint) -> str:
    if not endpoint.key_env:
        return ""
    key = key_in(endpoint.key_env)
    if not key:
        wanted = endpoint.key_env
        raise ConfigError(f"endpoint {endpoint.name!r} needs a key: export {wanted}=... (or take key_env out)")
    return key
