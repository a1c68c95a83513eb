"""JSON posted to a server by urllib, in threads of its own: an event loop's are few, and others wait in them too."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

MOST_AT_ONCE = 64
MOST_READ_BYTES, MOST_TOLD_BYTES = 64 << 20, 4096


class Posted(NamedTuple):
    """What came of a request."""

    status: int
    """0: nobody answered."""
    text: str
    """What was said, or what went wrong."""
    after_seconds: float | None = None
    """How long the server asks to wait."""


class HttpPoster:
    """Posts to one server, with a key or "" for none. The key goes nowhere else, and is in no text that comes back."""

    def __init__(self, base_url: str, key: str, deadline_seconds: float, at_once: int = MOST_AT_ONCE) -> None:
        self.base_url, self.deadline_seconds = base_url, deadline_seconds
        self._key = key
        self._threads = ThreadPoolExecutor(at_once, "search")

    async def post(self, path: str, body: Mapping[str, Any]) -> Posted:
        """One request. Its deadline begins when its turn has come."""
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def request() -> Posted:
            loop.call_soon_threadsafe(begun.set)
            return self._post(path, body)

        posted = loop.run_in_executor(self._threads, request)
        try:
            await begun.wait()
            async with asyncio.timeout(self.deadline_seconds):
                status, text, after_seconds = await posted
        except TimeoutError:
            return Posted(0, f"no reply within {self.deadline_seconds:g} s")
        finally:
            posted.cancel()
        return Posted(status, text.replace(self._key, "[key]") if self._key else text, after_seconds)

    def _post(self, path: str, body: Mapping[str, Any]) -> Posted:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}/{path}", data, {"Content-Type": "application/json"})
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        try:
            with urllib.request.urlopen(request, timeout=self.deadline_seconds) as reply:
                return Posted(reply.status, reply.read(MOST_READ_BYTES).decode("utf-8", "replace"))
        except urllib.error.HTTPError as err:
            return _refused(err)
        except (OSError, http.client.HTTPException) as err:
            return Posted(0, f"{type(err).__name__}: {err}")


def _refused(err: urllib.error.HTTPError) -> Posted:
    after = err.headers.get("Retry-After", "")
    with err:
        try:
            text = err.read(MOST_TOLD_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):  # it broke off
            text = ""
    return Posted(err.code, text, float(after) if after.isdecimal() else None)
