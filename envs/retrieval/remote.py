"""An index served over HTTP, for several rollout processes that should hold it once; and the retriever that asks it.

    toolorchestra index serve indexes/mine --port 8765         then  index = "http://127.0.0.1:8765"

Bound to the loopback unless a token is set. Queries that come together reach a dense index as one batch.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, WrongSetting, one_line
from toolorchestra.envs.base.http_client import HttpPoster
from toolorchestra.envs.base.secrets import key_in
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import Hit, Retriever

TOKEN_ENV = "TOOLORCHESTRA_INDEX_TOKEN"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_BODY, MOST_HITS = 1 << 16, 1000
DEADLINE_SECONDS, RETRIES = 30.0, 3
_PASSING = (408, 429)
"""Refusals that pass: too slow, too many at once."""


class IndexServer(ThreadingHTTPServer):
    """GET /health, POST /search {"query", "top_k"}."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, retriever: Retriever, host: str = "127.0.0.1", port: int = 0) -> None:
        self.retriever = retriever
        self.token = key_in(TOKEN_ENV)
        if host not in LOOPBACK and not self.token:
            raise ConfigError(f"an index served beyond this machine needs a token: export {TOKEN_ENV}=...")
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that broke off is nobody's trouble; what else went wrong takes one line."""
        del request
        err = sys.exception()
        if not isinstance(err, ConnectionError | TimeoutError):
            told = one_line(f"{client_address[0]}: {type(err).__name__}: {err}")
            print(f"a request failed: {told[:300]}", file=sys.stderr, flush=True)

    @property
    def url(self) -> str:
        """The address at which the server listens."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: IndexServer
    protocol_version = "HTTP/1.1"
    timeout = DEADLINE_SECONDS

    def do_GET(self) -> None:
        if self.path == "/health":
            self._say(200, {"status": "ok"})
        else:
            self._say(404, {"error": "GET /health or POST /search"})

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "")
        if self.server.token and not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._say(401, {"error": "wrong token"}, close=True)
            return
        length = self.headers.get("Content-Length", "")
        # "²" is a digit to isdigit() and none to int(), which takes no more than 4,300 of them.
        if self.path != "/search" or not (length.isdecimal() and len(length) < 9 and int(length) <= MOST_BODY):
            self._say(400, {"error": f"POST /search with at most {MOST_BODY} bytes"}, close=True)
            return
        try:
            asked = json.loads(self.rfile.read(int(length)))
            query, top_k = str(asked["query"]), min(int(asked["top_k"]), MOST_HITS)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self._say(400, {"error": 'a JSON object {"query", "top_k"} expected'})
            return
        try:
            hits = asyncio.run(_search(self.server.retriever, query, top_k))
        except (ToolError, LookupError, OSError, RuntimeError, ValueError) as err:  # an index's, or what it stands on
            self._say(500, {"error": f"{type(err).__name__}: {err}"})
            return
        self._say(200, {"hits": [[asdict(h.passage), h.score] for h in hits]})

    def _say(self, status: int, said: dict[str, Any], close: bool = False) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Does nothing, so that queries are not logged."""


async def _search(retriever: Retriever, query: str, top_k: int) -> Sequence[Hit]:
    return await retriever.search(query, top_k)


class Remote:
    """Searches an index that another process serves (`toolorchestra index serve`)."""

    suspends = True
    patience_seconds = (RETRIES + 1) * (DEADLINE_SECONDS + 5)

    def __init__(self, url: str) -> None:
        self._poster = HttpPoster(url.rstrip("/"), key_in(TOKEN_ENV), DEADLINE_SECONDS)
        self.url = self._poster.base_url
        found = self._poster.get("health")
        if not 200 <= found.status < 300:
            told = f"{found.status or 'no answer'}: {found.text[:200]}"
            line = "toolorchestra index serve FOLDER --port PORT"
            raise ConfigError(f"no index server at {self.url} ({told}); start one: {line}")

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages that the server finds for a query. Asks again up to RETRIES times, unless the server
        refuses the request itself."""
        problem = ""
        for attempt in range(RETRIES + 1):
            status, text, _ = await self._poster.post("search", {"query": query, "top_k": top_k})
            if status == 401:
                raise WrongSetting(f"{self.url} wants its token: export {TOKEN_ENV}=...")
            problem = f"{status or 'no answer'}: {text[:200]}"
            if status == 200:
                try:
                    return [Hit(Passage(**passage), score) for passage, score in json.loads(text)["hits"]]
                except (ValueError, KeyError, TypeError, RecursionError) as err:
                    problem = f"{type(err).__name__}: {err}"
            if 400 <= status < 500 and status not in _PASSING:
                raise Outage(f"the index server at {self.url} refuses a search: {problem}")
            if attempt < RETRIES:
                await asyncio.sleep(0.2 * 2**attempt)
        raise Outage(f"the index server at {self.url} did not answer: {problem}")
