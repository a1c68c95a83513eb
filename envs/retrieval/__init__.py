"""Retrieval behind one protocol: a corpus goes in once, queries come after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.bill import Bill


class Hit(NamedTuple):
    """A passage found, with the engine's own score."""

    passage: Passage
    score: float


class CachedHits(list[Hit]):
    """Hits of a search that was asked before and is kept: it is billed as nothing."""


class Retriever(Protocol):
    """Finds passages. `suspends` says whether searching waits for I/O."""

    @property
    def suspends(self) -> bool: ...

    async def search(self, query: str, top_k: int) -> Sequence[Hit]: ...


class BilledRetriever(Protocol):
    """A retriever that knows what each search used, and books it as soon as it does. Its class says
    `takes_bill = True`; of any other the search tool bills its own price."""

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]: ...


async def search_billed(retriever: Retriever, query: str, top_k: int, bill: Bill) -> Sequence[Hit]:
    """The passages found; a retriever that keeps count books on the bill."""
    if getattr(retriever, "takes_bill", False):
        return await cast("BilledRetriever", retriever).search(query, top_k, bill)
    return await retriever.search(query, top_k)
