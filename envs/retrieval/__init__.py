"""Retrieval behind one protocol: a corpus goes in once, queries come after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill

SEARCH_ITEM, EXTRACT_ITEM = "tavily/search", "tavily/extract"
"""The rows of the price sheet for a search of the web and for each page read."""
PATIENCE_SECONDS = 120.0
"""The longest that a search on this machine may take."""


class Hit(NamedTuple):
    """A passage found, with the engine's own score."""

    passage: Passage
    score: float


class CachedHits(list[Hit]):
    """Hits of a search that was asked before and is kept: it is billed as nothing."""


class Retriever(Protocol):
    """Finds passages. `suspends` says whether searching waits for I/O. One that knows what a search used books it on
    the bill as soon as it does; where nothing was booked, the search tool bills its own price."""

    @property
    def suspends(self) -> bool: ...

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]: ...


def items_of(retriever: object) -> tuple[str, ...]:
    """The rows of the price sheet that a retriever books what it used under; none of one that books nothing."""
    return tuple(getattr(retriever, "items", ()))


def source_of(retriever: object) -> str:
    """Digest of what a retriever searches, and how; "" of one that does not say."""
    source = getattr(retriever, "source", "")
    return source if isinstance(source, str) else ""
