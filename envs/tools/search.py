"""Searching: `search(model)` lets a model write the query, `local_search` and `web_search` take the agent's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.prices import TOOL, Usage
from toolorchestra.envs.retrieval import EXTRACT_ITEM, SEARCH_ITEM, CachedHits, Retriever, items_of
from toolorchestra.envs.tools import ToolContext, ToolResult
from toolorchestra.envs.tools.question_material import Experts, QuestionMaterial

QUERY_CHARACTERS = 390
_QUERY = re.compile(r"<query>(.*?)</query>", re.DOTALL)
_WRITE_QUERY = (
    "Write one short search query for the next thing that must be looked up to answer the question, inside "
    "<query></query>. Leave it empty when the documents already say everything."
)


NOTHING_NEW = "No new documents"
NOTHING_MISSING = "Nothing further to look up."


class NewPassages(NamedTuple):
    """What a search leaves in the material: passages that were not there."""

    passages: tuple[Passage, ...]


class SearchSettings(NamedTuple):
    """How much comes back, and how much of it the agent is shown."""

    top_k: int = 5
    shown_characters: int = 600
    """Characters of each document's text, in the observation; 0 shows titles only. Experts are shown the whole
    document."""


class Search:
    """Both forms over one retriever."""

    items: tuple[str, ...]
    """The rows of the price sheet that a call of this tool can bill."""

    def __init__(self, retriever: Retriever, settings: SearchSettings, item: str, seconds: float) -> None:
        self.retriever, self.settings, self.seconds = retriever, settings, seconds
        self.items = (item, *items_of(retriever))

    async def written(self, context: ToolContext, experts: Experts, alias: str) -> ToolResult:
        """A model writes the query."""
        said = await experts.say(context, alias, "query", _WRITE_QUERY)
        found = _QUERY.search(said)
        query = (found.group(1) if found else said).strip()[:QUERY_CHARACTERS]
        if not query:
            return ToolResult(NOTHING_MISSING, note=NewPassages(()))
        return await self.asked(context, query)

    async def asked(self, context: ToolContext, query: str) -> ToolResult:
        """Searches with a query that the agent wrote itself."""
        material: QuestionMaterial = context.world
        booked = context.bill.part()
        hits = await self.retriever.search(query[:QUERY_CHARACTERS], self.settings.top_k, booked)
        have = {p.doc_id for p in material.documents}
        # Best hit last: what is cut off when a context is full is the beginning.
        new = tuple(h.passage for h in reversed(hits) if h.passage.doc_id not in have)
        if not booked.usages:  # a retriever that knows what it used has booked it; of any other, the tool's price holds
            for usage in self._usages(len(hits)):
                context.bill.add(Usage(usage.item, usage.role) if isinstance(hits, CachedHits) else usage)
        return ToolResult(self._show(query, new), note=NewPassages(new))

    def _usages(self, _pages: int) -> tuple[Usage, ...]:
        return (Usage(self.items[0], TOOL, seconds=self.seconds),)

    def _show(self, query: str, new: Sequence[Passage]) -> str:
        if not new:
            return f"{NOTHING_NEW} for: {query}"
        most = self.settings.shown_characters
        if not most:
            return f"{len(new)} new documents: {'; '.join(p.title for p in reversed(new))}"
        return "\n".join(f"[{p.title}] {p.text[:most]}" for p in reversed(new))


class WebSearch(Search):
    """A search billed by the piece: one search, and each page read."""

    items = (SEARCH_ITEM, EXTRACT_ITEM)

    def __init__(self, retriever: Retriever, settings: SearchSettings, seconds: float) -> None:
        self.retriever, self.settings, self.seconds = retriever, settings, seconds

    def _usages(self, pages: int) -> tuple[Usage, ...]:
        return (Usage(SEARCH_ITEM, TOOL, units=1, seconds=self.seconds), Usage(EXTRACT_ITEM, TOOL, units=pages))
