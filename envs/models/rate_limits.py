"""How hard an endpoint is driven: places in flight, rates that are set or that the server tells, and rests."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from toolorchestra.envs.base.http_client import Places
from toolorchestra.envs.models.endpoints import Endpoint

_TOLD = ("requests", "tokens")
"""What servers tell a rate of, each in three headers: x-ratelimit-limit-requests, -remaining- and -reset-."""
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d*)?)s)?(?:(\d+(?:\.\d*)?)ms)?")


class _Rate:
    """A token bucket that holds one second's worth: `wait` says how long until an amount may be used."""

    def __init__(self, per_minute: float = 0.0) -> None:
        self._per_second = per_minute / 60
        self._most = per_minute / 60 if per_minute else 0.0
        self._have = self._most
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, amount: float) -> float:
        """Use an amount, and say how many seconds to wait first."""
        if not self._per_second:
            return 0.0
        with self._lock:
            self._refill()
            self._have -= amount
            return max(0.0, -self._have / self._per_second)

    def put_back(self, amount: float) -> None:
        """Correct what was guessed too high (or, negative, too low)."""
        with self._lock:
            self._have += amount

    def learn(self, most: float, left: float, seconds: float) -> None:
        """Take over a server's own bucket, which is full again in so many seconds: that tells its rate."""
        with self._lock:
            self._refill()
            # What is in flight the server may not have counted yet.
            self._have = min(self._have, left) if self._per_second else left
            self._most, self._per_second = most, (most - left) / seconds

    def _refill(self) -> None:
        now = time.monotonic()
        self._have = min(self._most, self._have + (now - self._at) * self._per_second)
        self._at = now


class _ModelLimits:
    """What an endpoint says and does of one of its models."""

    def __init__(self) -> None:
        self.told = {name: _Rate() for name in _TOLD}
        self.answered = False
        self.failures = 0
        self.rests_until = 0.0


class EndpointLimits:
    """The state of one endpoint. It may fail for one of its models and be well for another."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._places = Places(endpoint.in_flight)
        self._set = {"requests": _Rate(endpoint.requests_per_minute), "tokens": _Rate(endpoint.tokens_per_minute)}
        self._lock = threading.Lock()
        self._models: dict[str, _ModelLimits] = {}

    def _of(self, model: str) -> _ModelLimits:
        return self._models.get(model) or self._models.setdefault(model, _ModelLimits())

    def rests_for(self, model: str) -> float:
        """Seconds until the endpoint may be asked for the model again; 0 when it may now."""
        return max(0.0, self._of(model).rests_until - time.monotonic())

    @asynccontextmanager
    async def place(self, model: str, tokens: float, queue_seconds: float) -> AsyncIterator[None]:
        """A place in flight, within the rates. Raises TimeoutError when none comes free in time."""
        amounts = {"requests": 1.0, "tokens": tokens}
        async with asyncio.timeout(queue_seconds):
            await self._places.take()
            try:
                await asyncio.sleep(max(rate.wait(amounts[name]) for name, rate in self._rates(model)))
            except asyncio.CancelledError:  # also at the end of the patience
                for name, rate in self._rates(model):
                    rate.put_back(amounts[name])
                self._places.give()
                raise
        try:
            yield
        finally:
            self._places.give()

    def _rates(self, model: str) -> list[tuple[str, _Rate]]:
        return [*self._set.items(), *self._of(model).told.items()]

    def used(self, model: str, guessed: float, counted: float) -> None:
        """Set the token rates right by what the reply says."""
        for rate in (self._set["tokens"], self._of(model).told["tokens"]):
            rate.put_back(guessed - counted)

    def told(self, model: str, headers: Mapping[str, str]) -> None:
        """Learn the rates that a reply's headers tell: how much there is, what is left of it, and when all is back."""
        for name in _TOLD:
            most, left = (_number(headers.get(f"x-ratelimit-{kind}-{name}")) for kind in ("limit", "remaining"))
            seconds = duration(headers.get(f"x-ratelimit-reset-{name}"))
            if most and left is not None and seconds and left < most:
                self._of(model).told[name].learn(most, left, seconds)

    def answered(self, model: str) -> bool:
        """Whether a reply of this model ever came: its address and key and the model were right then."""
        return self._of(model).answered

    def went_well(self, model: str) -> None:
        """Note that the model answered, and close its breaker."""
        of = self._of(model)
        with self._lock:
            of.answered, of.failures, of.rests_until = True, 0, 0.0

    def failed(self, model: str) -> None:
        """Count a failure; enough in a row rest the model here, and after the rest a single one rests it again."""
        of = self._of(model)
        with self._lock:
            of.failures += 1
            if of.failures >= self.endpoint.failures_to_open:
                of.rests_until = time.monotonic() + self.endpoint.rest_seconds


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else None


def duration(text: str | None) -> float | None:
    """Seconds as rate limits tell them: "12", "0.5", "6m0s", "120ms". Nonsense counts as nothing said."""
    text = (text or "").strip().lower()[:40]
    if text.replace(".", "", 1).isdecimal():
        text += "s"
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return None
    hours, minutes, seconds, thousandths = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds + thousandths / 1000
