"""Web search by Tavily: one search, then the text of the pages found. Billed by the piece, on the price sheet."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, WrongSetting
from toolorchestra.envs.base.http_client import MOST_AT_ONCE, MOST_READ_BYTES, HttpPoster
from toolorchestra.envs.base.secrets import key_in
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import TOOL, Usage
from toolorchestra.envs.retrieval import Hit

SEARCH_ITEM, EXTRACT_ITEM = "tavily/search", "tavily/extract"
SHORTEST_PAGE = 100
"""Characters; a shorter page is an error message or a cookie notice."""
_PAGES_AT_ONCE = 20


@dataclass(frozen=True)
class Service:
    """How the service is reached."""

    base_url: str = field(default="https://api.tavily.com", repr=False)
    """It may hold a login."""
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
        self._jitter = random.Random()

    @property
    def patience_seconds(self) -> float:
        """The longest that a search can take."""
        return 2 * (self.service.retries + 1) * (self.service.deadline_seconds + 10)

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """Search, and read the pages. Each is booked when its reply is there: the pages that could be read, and the
        search also where they could not."""
        bill, began = bill or Bill(), time.monotonic()
        asked = {"query": query, "search_depth": self.service.depth, "max_results": min(top_k, _PAGES_AT_ONCE)}
        found = await self._post("search", asked)
        searched = time.monotonic()
        bill.add(Usage(SEARCH_ITEM, TOOL, units=1, seconds=round(searched - began, 3)))
        scores = {str(r["url"]): _number(r.get("score")) for r in _rows(found) if r.get("url")}
        titles = {str(r["url"]): str(r.get("title") or r["url"]) for r in _rows(found) if r.get("url")}
        if not scores:
            return []
        rows = _rows(await self._post("extract", {"urls": list(scores), "extract_depth": self.service.depth}))
        bill.add(Usage(EXTRACT_ITEM, TOOL, units=len(rows), seconds=round(time.monotonic() - searched, 3)))
        hits = []
        for row in rows:
            url, text = str(row.get("url")), str(row.get("raw_content") or "")
            if url in scores and len(text) >= SHORTEST_PAGE:
                hits.append(Hit(Passage(url, titles[url], text), scores[url]))
        return sorted(hits, key=lambda h: (-h.score, h.passage.doc_id))

    async def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        problem = ""
        for attempt in range(self.service.retries + 1):
            status, text, after = await self._poster.post(path, body)
            if status == 200:
                try:
                    reply = json.loads(text)
                except (ValueError, RecursionError):
                    reply = None
                if isinstance(reply, Mapping):
                    return reply
                text = "the reply is not a JSON object"
            if status in (401, 403):
                raise WrongSetting(f"Tavily refused the key in ${self.service.key_env} ({status})")
            if status in (432, 433):
                raise Outage(f"Tavily: the plan's limit is used up ({status})")
            if 400 <= status < 500 and status not in (408, 429):
                raise ToolError(f"the web search refused the query ({status}): {text[:200]}")
            problem = f"{status or 'no answer'}: {text[:200]}"
            pause = after if after is not None else 0.5 * 2**attempt * self._jitter.uniform(0.5, 1.0)
            if attempt == self.service.retries or pause > self.service.deadline_seconds:
                break
            await asyncio.sleep(pause)
        raise Outage(f"Tavily {path} did not answer: {problem}")


def _number(score: object) -> float:
    """A score; what is none comes last, and its page is found all the same."""
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else 0.0


def _rows(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = reply.get("results")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
