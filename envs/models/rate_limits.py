"""How hard one endpoint is driven: calls in flight, rates, and a breaker that rests an endpoint which keeps failing.

One Traffic serves every thread and event loop of the process, so its limits are the process's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolorchestra.envs.base.http_client import Places
from toolorchestra.envs.models.endpoints import Endpoint


class _Rate:
    """A token bucket that holds one second's worth: `wait` says how long until an amount may be used."""

    def __init__(self, per_minute: float) -> None:
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
            now = time.monotonic()
            self._have = min(self._most, self._have + (now - self._at) * self._per_second)
            self._at = now
            self._have -= amount
            return max(0.0, -self._have / self._per_second)

    def put_back(self, amount: float) -> None:
        """Correct what was guessed too high (or, negative, too low)."""
        with self._lock:
            self._have += amount


class EndpointLimits:
    """The state of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._answered: set[str] = set()
        self.endpoint = endpoint
        self.most_in_flight = 0
        """The most calls that were ever in flight at once."""
        self.sent = 0
        self._in_flight = 0
        self._places = Places(endpoint.in_flight)
        self._requests = _Rate(endpoint.requests_per_minute)
        self._tokens = _Rate(endpoint.tokens_per_minute)
        self._lock = threading.Lock()
        self._failures = 0
        self._rests_until = 0.0

    def rests_for(self) -> float:
        """Seconds until the endpoint may be tried again; 0 when it may now."""
        return max(0.0, self._rests_until - time.monotonic())

    @asynccontextmanager
    async def place(self, tokens: float, queue_seconds: float) -> AsyncIterator[None]:
        """A place in flight, within the rates. Raises TimeoutError when none comes free in time."""
        async with asyncio.timeout(queue_seconds):
            await self._places.take()
            try:
                await asyncio.sleep(max(self._requests.wait(1), self._tokens.wait(tokens)))
            except asyncio.CancelledError:  # also at the end of the patience
                self._requests.put_back(1)
                self._tokens.put_back(tokens)
                self._places.give()
                raise
        with self._lock:
            self.sent += 1
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
            self._places.give()

    def used(self, guessed: float, counted: float) -> None:
        """Set the token rate right by what the reply says."""
        self._tokens.put_back(guessed - counted)

    def answered(self, model: str) -> bool:
        """Whether a reply of this model ever came: its address and key and the model were right then."""
        return model in self._answered

    def went_well(self, model: str) -> None:
        """Note that the model answered, and close the breaker."""
        self._answered.add(model)
        with self._lock:
            self._failures, self._rests_until = 0, 0.0

    def failed(self) -> None:
        """Count a failure; enough in a row rest the endpoint, and after the rest a single one rests it again."""
        with self._lock:
            self._failures += 1
            if self._failures >= self.endpoint.failures_to_open:
                self._rests_until = time.monotonic() + self.endpoint.rest_seconds
