"""An index served over HTTP, for several rollout processes that should hold it once; and the retriever that asks it.

    toolorchestra index serve indexes/mine --port 8765         then  index = "http://127.0.0.1:8765"

Bound to the loopback unless a token is set. Queries that come together reach a dense index as one batch.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, ToolError, WrongSetting, one_line
from toolorchestra.envs.base.http_client import MOST_AT_ONCE, MOST_READ_BYTES, HttpPoster
from toolorchestra.envs.base.secrets import key_in
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import TOOL, Tokens, Usage
from toolorchestra.envs.money.spend_cap import Hold
from toolorchestra.envs.retrieval import EXTRACT_ITEM, SEARCH_ITEM, Hit, Retriever, items_of, source_of

T = TypeVar("T")
TOKEN_ENV = "TOOLORCHESTRA_INDEX_TOKEN"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_BODY, MOST_HITS = 1 << 16, 1000
PROMPT_BYTES = 1 << 10
"""What an index may set before a query that it has embedded."""
DEADLINE_SECONDS, RETRIES = 30.0, 3
FIRST_PAUSE_SECONDS, _JITTER = 0.4, random.Random()
_PASSING = (408, 409, 425, 429)
"""Refusals that pass: too slow, too many at once."""


class RequestRefused(Exception):
    """A server refuses the request itself: asked again, it would say the same."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


async def asked(
    servers: Sequence[HttpPoster],
    path: str,
    body: Mapping[str, Any],
    retries: int,
    read: Callable[[Mapping[str, Any]], T],
    paid: tuple[Bill, Usage] | None = None,
) -> T:
    """What `read` makes of a server's reply. A request is made again while what goes wrong may pass, with the next
    server; then it is an Outage. `paid`: a bill, and the most that each request may use. It is set aside before, and
    booked for one that may have been served and was not read."""
    problem = ""

    def unread() -> None:
        if paid is not None:
            paid[0].add(paid[1])

    for attempt in range(retries + 1):
        poster = servers[attempt % len(servers)]
        held = await _held(paid, poster.deadline_seconds)
        try:
            status, text, after = await poster.post(path, body, unread)
            problem = f"{status or 'no answer'}: {text[:200]}"
            if status == 200:
                try:
                    return read(_object(text, unread))
                except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
                    problem = f"the reply cannot be read: {type(err).__name__}: {err}"
        finally:
            if held is not None:
                held.release()
        if status != 200 and 300 <= status < 500 and status not in _PASSING:
            raise RequestRefused(status, text)
        pause = after if after is not None else FIRST_PAUSE_SECONDS * 2**attempt * _JITTER.uniform(0.5, 1.0)
        if attempt == retries or pause > poster.deadline_seconds:
            break
        await asyncio.sleep(pause)
    raise Outage(f"{servers[0].base_url}/{path} did not answer: {problem}")


async def _held(paid: tuple[Bill, Usage] | None, seconds: float) -> Hold | None:
    try:
        return await paid[0].hold_for(paid[1], seconds) if paid is not None else None
    except SpendCapReached as err:
        raise ToolError(f"{err}; nothing was sent") from None


def _object(text: str, unread: Callable[[], None]) -> Mapping[str, Any]:
    try:
        reply = json.loads(text)
        if isinstance(reply, Mapping):
            return reply
    except (ValueError, RecursionError):
        pass
    unread()
    raise ValueError(f"a JSON object expected, got {text[:80]!r}")


def patience(retries: int, deadline_seconds: float) -> float:
    """The longest that asked() can take, pauses included."""
    return (retries + 1) * (deadline_seconds + 10)


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
            self._say(200, {"status": "ok", "bills": list(items_of(self.server.retriever)),
                            "source": source_of(self.server.retriever)})  # fmt: skip
        else:
            self._say(404, {"error": "GET /health or POST /search"})

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "")
        if self.server.token and not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._say(401, {"error": "wrong token"}, close=True)
            return
        if not self.server.token and self.headers.get("Origin"):  # any page that somebody opens reaches a loopback
            self._say(403, {"error": "a page in a browser may not ask a server without a token"}, close=True)
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
        bill = Bill()
        try:
            hits = asyncio.run(self.server.retriever.search(query, top_k, bill))
            found: dict[str, Any] = {"hits": [[asdict(h.passage), h.score] for h in hits]}
        except (ToolError, LookupError, OSError, RuntimeError, ValueError) as err:  # an index's, or what it stands on
            found = {"error": f"{type(err).__name__}: {err}"}
        used = [[u.item, sum(u.tokens), u.seconds, u.estimated, u.unconfirmed] for u in bill.usages]
        self._say(200, {**found, "used": used})

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


class Remote:
    """Searches an index that another process serves (`toolorchestra index serve`)."""

    suspends = True
    patience_seconds = patience(RETRIES, DEADLINE_SECONDS)

    def __init__(self, url: str) -> None:
        self._poster = HttpPoster(url.rstrip("/"), key_in(TOKEN_ENV), DEADLINE_SECONDS)
        self.url = self._poster.base_url
        found = self._poster.get("health")
        if not 200 <= found.status < 300:
            told = f"{found.status or 'no answer'}: {found.text[:200]}"
            line = "toolorchestra index serve FOLDER --port PORT"
            raise ConfigError(f"no index server at {self.url} ({told}); start one: {line}")
        health = _read_health(found.text)
        bills = health.get("bills")
        self.items = tuple(item for item in bills if isinstance(item, str)) if isinstance(bills, list) else ()
        """The rows of the price sheet that a search can bill; none of a server that does not say."""
        self.source = health.get("source")

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The passages that the server finds for a query. What it used for them is booked here, also for a search that
        fails there; and the most that it can have used where nobody reads what it was."""
        bill, body = bill or Bill(), {"query": query, "top_k": top_k}

        def read(reply: Mapping[str, Any]) -> list[Hit]:
            for item, tokens, seconds, estimated, unread in reply.get("used", ()):
                bill.add(Usage(item, TOOL, Tokens(int(tokens)), 0, seconds, bool(estimated), bool(unread)))
            if "error" in reply:
                raise ValueError(reply["error"])
            return [Hit(Passage(**passage), score) for passage, score in reply["hits"]]

        paid = None
        if self.items:
            most = Tokens(len(query.encode("utf-8", "replace")) + PROMPT_BYTES)
            paid = (bill, Usage(self.items[0], TOOL, most, estimated=True, unconfirmed=True))
        try:
            return await asked([self._poster], "search", body, RETRIES, read, paid)
        except RequestRefused as err:
            if err.status == 401:
                raise WrongSetting(f"{self.url} wants its token: export {TOKEN_ENV}=...") from None
            raise Outage(f"the index server at {self.url} refuses a search: {err}") from None


def _read_health(text: str) -> Mapping[str, Any]:
    """What a served index says of itself; nothing where that cannot be read."""
    try:
        health = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return health if isinstance(health, Mapping) else {}


# -- web search by Tavily: one search, then the text of the pages found. Billed by the piece, on the price sheet -------


SHORTEST_PAGE = 100
"""Characters; a shorter page is an error message or a cookie notice."""
_PAGES_AT_ONCE = 20


@dataclass(frozen=True)
class Service:
    """How the service is reached."""

    base_url: str = field(default="https://api.tavily.com", repr=False)
    """The address; it may hold a login."""
    key_env: str = "TAVILY_API_KEY"
    depth: str = "advanced"
    deadline_seconds: float = 30.0
    retries: int = 3
    at_once: int = MOST_AT_ONCE
    """Requests in flight; the others wait for their turn, which is no part of their deadline."""
    reply_bytes: int = MOST_READ_BYTES
    """The most of a reply that is read."""


class Tavily:
    """Searches the web. What it finds is a passage for each page that could be read."""

    suspends = True

    def __init__(self, service: Service = Service()) -> None:
        self.service = service
        key = key_in(service.key_env)
        if not key:
            raise ConfigError(f"web search needs a key: export {service.key_env}=...")
        self._poster = HttpPoster(service.base_url, key, service.deadline_seconds, service.at_once, service.reply_bytes)

    @property
    def patience_seconds(self) -> float:
        """The longest that a search can take."""
        return 2 * patience(self.service.retries, self.service.deadline_seconds)

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """Search, and read the pages. Each is booked when its reply is there: the pages that could be read, and the
        search also where they could not. A request that went out and was not read is booked as unconfirmed."""
        bill = bill or Bill()
        asked = {"query": query, "search_depth": self.service.depth, "max_results": min(top_k, _PAGES_AT_ONCE)}
        found = await self._post("search", asked, bill, Usage(SEARCH_ITEM, TOOL, units=1, unconfirmed=True))
        scores = {str(r["url"]): _number(r.get("score")) for r in _rows(found) if r.get("url")}
        titles = {str(r["url"]): str(r.get("title") or r["url"]) for r in _rows(found) if r.get("url")}
        if not scores:
            return []
        asked = {"urls": list(scores), "extract_depth": self.service.depth}
        most = Usage(EXTRACT_ITEM, TOOL, units=len(scores), unconfirmed=True)
        rows = _rows(await self._post("extract", asked, bill, most))
        hits = []
        for row in rows:
            url, text = str(row.get("url")), str(row.get("raw_content") or "")
            if url in scores and len(text) >= SHORTEST_PAGE:
                hits.append(Hit(Passage(url, titles[url], text), scores[url]))
        return sorted(hits, key=lambda h: (-h.score, h.passage.doc_id))

    async def _post(self, path: str, body: Mapping[str, Any], bill: Bill, most: Usage) -> Mapping[str, Any]:
        """A reply, which is booked. `most` is what each request may use, and counts for one that was not read."""
        began = time.monotonic()

        def read(reply: Mapping[str, Any]) -> Mapping[str, Any]:
            units = len(_rows(reply)) if path == "extract" else 1
            seconds = round(time.monotonic() - began, 3)
            bill.add(most._replace(units=units, seconds=seconds, unconfirmed=False))
            return reply

        try:
            return await asked([self._poster], path, body, self.service.retries, read, (bill, most))
        except RequestRefused as err:
            if err.status in (401, 403):
                raise WrongSetting(f"Tavily refused the key in ${self.service.key_env} ({err.status})") from None
            if err.status < 400 or err.status in (404, 405):
                raise WrongSetting(f"Tavily's address {err}") from None
            if err.status in (402, 432, 433):
                raise Outage(f"Tavily: the account's quota is used up ({err.status})") from None
            if err.status in (400, 413, 422):
                raise ToolError(f"the web search refused the query: {err}") from None
            raise Outage(f"Tavily refused the search: {err}") from None


def _number(score: object) -> float:
    """A score; what is none comes last, and its page is found all the same."""
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else 0.0


def _rows(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = reply.get("results")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
