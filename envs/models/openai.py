"""Models behind OpenAI-compatible servers: deadlines, bounded retries, failover, and what the call really used.

A call tries its endpoints in order. A request that fails for a reason which may pass (429, 5xx, a broken or silent
connection, a reply that is cut off) is made again, after the time the server asks for or a jittered back-off, until the
retries or the patience are used up: then it is an Outage, and the episode is marked failed. What the server refuses for
good is an Outage too, unless it says that the request itself is wrong (400, 422): that is a ToolError, which the agent
reads. An empty reply is a reply: it is billed once and not asked for again. A reply
that cannot be used is billed for what it says it used, with the reply or the error that ends the call.

Not billed: a request that broke off or timed out, for then nobody says what it used.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, ToolError
from toolorchestra.envs.base.keys import key_in
from toolorchestra.envs.models import ChatRequest, Completion, ContextLimits
from toolorchestra.envs.models.endpoints import Endpoint, Endpoints, Served
from toolorchestra.envs.models.rate_limits import EndpointLimits
from toolorchestra.envs.models.wire import CHARACTERS_PER_TOKEN, Unreadable, body, counted_of, read, text_of, usage_of
from toolorchestra.envs.money.prices import NO_TOKENS, Tokens, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FIRST_BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0
NO_KEY = "none"
_PASSING = frozenset({408, 409, 425, 429})
"""Statuses that may pass, beside 5xx: the request is made again."""
_OF_THE_REQUEST = frozenset({400, 422})
"""Statuses that speak of what was sent, and so of what the agent asked for."""


class _Passing(Exception):
    """A failure that may pass, and how long the server asks to wait."""

    def __init__(self, message: str, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


@dataclass
class _Tried:
    """What one call has been through."""

    guessed: float
    """Tokens of its input, as they are counted before the reply counts them."""
    spent: float = 0.0
    """Seconds of its requests and pauses."""
    queued: float = 0.0
    """Seconds of waiting for a place."""
    sent_at: float = 0.0
    """When the latest request had its place."""
    failed: dict[str, int] = field(default_factory=dict)
    """Failures by endpoint."""
    not_before: dict[str, float] = field(default_factory=dict)
    """When an endpoint wants to be asked again, of those that said so."""
    problems: list[str] = field(default_factory=list)
    used: Tokens = NO_TOKENS
    """By replies that could not be used."""

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
        self._clients: weakref.WeakKeyDictionary[Any, dict[str, AsyncOpenAI]] = weakref.WeakKeyDictionary()
        self._jitter = random.Random(seed)
        _sdk()

    @property
    def patience_seconds(self) -> float:
        """The longest that a call can take, its wait for a place included."""
        return max((m.queue_seconds + m.patience_seconds for m in self.endpoints.models.values()), default=0.0)

    def limits_of(self, model: str) -> ContextLimits:
        """How much of the gathered material a model is shown."""
        return self.endpoints.served(model).shown

    async def complete(self, request: ChatRequest) -> Completion:
        """One completion. Raises ToolError (refused), Outage (away) or ConfigError (a wrong key, model or address)."""
        served = self.endpoints.served(request.model)
        made = body(request, served)
        sent = str(made.get("messages") or made.get("prompt"))
        tried = _Tried(len(sent) / CHARACTERS_PER_TOKEN)
        try:
            return await self._tries(request, served, made, sent, tried)
        except (Outage, ToolError) as err:
            if any(tried.used):
                seconds = round(tried.spent, 3)
                err.usages = (Usage(request.model, request.role, tried.used, 0, seconds), *err.usages)
            raise

    async def _tries(
        self, request: ChatRequest, served: Served, made: dict[str, Any], sent: str, tried: _Tried
    ) -> Completion:
        for attempt in range(served.retries + 1):
            traffic = await self._free(served, tried)
            try:
                raw = await self._send(traffic, request, served, made, tried)
                seconds = tried.spent + time.monotonic() - tried.sent_at
                said, tokens, estimated = self._read(raw, request, sent, tried, traffic)
                return Completion(said, Usage(request.model, request.role, tokens, 0, round(seconds, 3), estimated))
            except (_Passing, Unreadable) as err:
                traffic.failed()
                name = traffic.endpoint.name
                tried.failed[name] = tried.failed.get(name, 0) + 1
                tried.problems.append(f"{name}: {self._scrub(str(err))}")
                if isinstance(err, _Passing) and err.after_seconds is not None:
                    tried.not_before[name] = time.monotonic() + err.after_seconds + self._jitter.uniform(0, 0.1)
                pause = self._pause(served, tried)
                tried.spent += time.monotonic() - tried.sent_at
                if attempt == served.retries or tried.spent + pause > served.patience_seconds:
                    break
                tried.spent += pause
                await asyncio.sleep(pause)
        raise Outage(f"model {request.model!r} did not answer{tried.told}")

    async def _free(self, served: Served, tried: _Tried) -> EndpointLimits:
        """The endpoint to try: one that does not rest, the least failed of this call's, the first in the file."""
        best = min(served.endpoints, key=lambda name: (self._rest(name, tried) > 0, tried.failed.get(name, 0)))
        if self._rest(best, tried):
            best = min(served.endpoints, key=lambda name: self._rest(name, tried))
            rest = self._rest(best, tried)
            if tried.spent + rest > served.patience_seconds:
                names = ", ".join(served.endpoints)
                raise Outage(f"model {served.name!r}: {names} rest for {rest:.0f} s more{tried.told}")
            tried.spent += rest
            await asyncio.sleep(rest)
        return self.traffic[best]

    def _rest(self, name: str, tried: _Tried) -> float:
        """Seconds until this call may ask an endpoint: it failed again and again, or wants to be left alone so long."""
        return max(self.traffic[name].rests_for(), tried.not_before.get(name, 0.0) - time.monotonic())

    def _pause(self, served: Served, tried: _Tried) -> float:
        """The back-off, where an endpoint that failed may be asked at once."""
        ready = [name for name in served.endpoints if not self._rest(name, tried)]
        if not ready or any(name not in tried.failed for name in ready):
            return 0.0
        most = min(MOST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (max(tried.failed.values()) - 1))
        return most * self._jitter.uniform(0.5, 1.0)

    async def _send(
        self, traffic: EndpointLimits, request: ChatRequest, served: Served, made: dict[str, Any], tried: _Tried
    ) -> str:
        """One request, when there is a place for it: the raw reply."""
        queued = time.monotonic()
        place = traffic.place(tried.guessed, served.queue_seconds - tried.queued)
        try:
            await place.__aenter__()
        except TimeoutError:
            waited = tried.queued + time.monotonic() - queued
            name = traffic.endpoint.name
            raise Outage(f"endpoint {name!r} had no place free for {waited:.0f} s{tried.told}") from None
        tried.sent_at = time.monotonic()
        tried.queued += tried.sent_at - queued
        try:
            if request.spend_cap is not None:
                request.spend_cap.check()
            async with asyncio.timeout(served.deadline_seconds):
                return await self._post(traffic.endpoint, served, made)
        except SpendCapReached as err:
            raise ToolError(f"{err}; nothing was sent") from None
        except TimeoutError:
            raise _Passing(f"no reply within {served.deadline_seconds:g} s") from None
        finally:
            await place.__aexit__(None, None, None)

    async def _post(self, endpoint: Endpoint, served: Served, made: dict[str, Any]) -> str:
        sdk = _sdk()
        client = self._client(endpoint)
        raw = (client.chat.completions if served.api == "chat" else client.completions).with_raw_response
        known = {k: made[k] for k in ("model", "messages", "prompt", "tools") if k in made}
        extra = {k: v for k, v in made.items() if k not in known}
        try:
            return str((await raw.create(**known, extra_body=extra)).text)
        except sdk.APIStatusError as err:
            problem = self._refusal(endpoint, served, err)
        except (UnicodeDecodeError, sdk.APIError) as err:
            problem = _Passing(f"{type(err).__name__}: {err.__cause__ or err}")
        raise problem  # out here, so that no request with its headers hangs on the error

    def _refusal(self, endpoint: Endpoint, served: Served, err: Any) -> Exception:
        """What a status means; the table stands in docs/real-tools.md. Only what is wrong with the request itself is
        for the agent to read: everything else is no answer of its own, and fails the episode."""
        status = int(err.status_code)
        text = self._scrub(str(err))[:300]
        if status in _OF_THE_REQUEST:
            return ToolError(f"model {served.name!r} refused the request ({status}): {text}")
        if getattr(err, "code", None) == "insufficient_quota":
            return Outage(f"endpoint {endpoint.name!r} says that the account's quota is used up: {text}")
        if status in _PASSING or status >= 500:
            return _Passing(f"{status}: {text}", _retry_after(err.response.headers))
        if status in (401, 403, 404) and not self.traffic[endpoint.name].answered:
            return _wrong_setting(endpoint, served, status, text)
        why = "has no credit left for this account" if status == 402 else f"refused model {served.name!r}"
        return Outage(f"endpoint {endpoint.name!r} {why} ({status}): {text}")

    def _read(
        self, raw: str, request: ChatRequest, sent: str, tried: _Tried, traffic: EndpointLimits
    ) -> tuple[str, Tokens, bool]:
        """What was said, the tokens that it and the unusable replies before it used, whether they are estimated."""
        reply = read(raw)
        try:
            said = self._scrub(text_of(reply, request))
        except Unreadable:
            if (counted := counted_of(reply)) is not None:
                traffic.used(tried.guessed, sum(counted))
                tried.used = _sum(tried.used, counted)
            raise
        tokens, estimated = usage_of(reply, sent, said)
        traffic.went_well()
        traffic.used(tried.guessed, sum(tokens))
        return said, _sum(tried.used, tokens), estimated

    def _client(self, endpoint: Endpoint) -> AsyncOpenAI:
        """The endpoint's client for the running loop: a connection cannot change loops."""
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if endpoint.name not in clients:
            clients[endpoint.name] = _sdk().AsyncOpenAI(
                api_key=self._keys[endpoint.name] or NO_KEY, base_url=endpoint.base_url, max_retries=0, timeout=None
            )
        return clients[endpoint.name]

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    def _scrub(self, text: str) -> str:
        """The text without any key, should a server send one back."""
        for key in self._keys.values():
            if key and key in text:
                text = text.replace(key, "[key]")
        return text


def _wrong_setting(endpoint: Endpoint, served: Served, status: int, text: str) -> ConfigError:
    """Of an endpoint that never answered: its key, address or model is wrong, which would end every episode."""
    if status == 404:
        wanted = f"model {served.model or served.name!r}"
        return ConfigError(f"endpoint {endpoint.name!r} has no {wanted} at {endpoint.base_url} (404): {text}")
    key = f"the key in ${endpoint.key_env}" if endpoint.key_env else "a call without a key; set key_env"
    return ConfigError(f"endpoint {endpoint.name!r} refused {key} ({status}): {text}")


def _sum(one: Tokens, other: Tokens) -> Tokens:
    return Tokens(*map(sum, zip(one, other, strict=True)))


def _sdk() -> Any:
    try:
        import openai
    except ImportError:
        raise ConfigError('models behind endpoints need the openai SDK: pip install ".[models]"') from None
    return openai


def _key(endpoint: Endpoint) -> str:
    if not endpoint.key_env:
        return ""
    key = key_in(endpoint.key_env)
    if not key:
        wanted = endpoint.key_env
        raise ConfigError(f"endpoint {endpoint.name!r} needs a key: export {wanted}=... (or take key_env out)")
    return key


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait that a server asks for: seconds, milliseconds, or a date. Nonsense counts as nothing said."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
