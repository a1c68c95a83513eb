"""BM25 over an embedded corpus, by bm25s. Built in memory at first use and shared by all episodes of the corpus."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import Hit
from toolorchestra.envs.retrieval.corpus import Passages

KEPT = 1024
"""Queries whose passages are kept: those who play one task together ask the same ones."""
_WORD = re.compile(r"\w\w+")
_STOP = frozenset(
    "a an and are as at be but by for from had has have he her his if in into is it its not of on or she so such"
    " that the their then there these they this to was were what when where which who whom whose will with".split()
)


def words(text: str) -> list[str]:
    """The terms of a text: lower-case words of two letters or more, without the commonest."""
    return [w for w in _WORD.findall(text.lower()) if w not in _STOP]


@cache
def library() -> Any:
    """bm25s, which then says nothing of what it does. It is imported as if there were no JAX, which it would start to
    pick the best of some scores, and which takes three quarters of a GPU's memory; and no tqdm, whose semaphore a
    process that is ended at once leaves behind."""
    hidden = ("jax", "tqdm", "tqdm.auto")
    had = {name: sys.modules[name] for name in hidden if name in sys.modules}
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # what an import of them then finds
    try:
        import bm25s
    finally:
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(had)

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s


def indexed(passages: Sequence[Passage] | Passages) -> Any:
    """The library's index of passages' titles and texts."""
    index = library().BM25()
    texts = (passages[i] for i in range(len(passages)))
    terms = [words(f"{p.title} {p.text}") for p in texts]
    if not any(terms):
        raise ConfigError(f"none of {len(terms)} passages has a word to be found by; give texts with words in them")
    index.index(terms, show_progress=False)
    return index


class Bm25:
    """An index of passages' titles and texts."""

    suspends = False

    def __init__(self, passages: Sequence[Passage] | Passages, index: Any = None) -> None:
        self.passages = passages if isinstance(passages, Passages) else tuple(passages)
        self._loaded = index

    @cached_property
    def _index(self) -> Any:
        return indexed(self.passages) if self._loaded is None else self._loaded

    @cached_property
    def source(self) -> str:
        """Digest of what it searches."""
        return digest("bm25", self.passages.digest if isinstance(self.passages, Passages) else self.passages)

    def find(self, query: str, top_k: int) -> list[Hit]:
        """The best passages that share a term with the query, best first."""
        return list(self._kept(query, top_k))

    @cached_property
    def _kept(self) -> Callable[[str, int], tuple[Hit, ...]]:
        return lru_cache(KEPT)(self._found)

    def _found(self, query: str, top_k: int) -> tuple[Hit, ...]:
        known = [w for w in words(query) if w in self._index.vocab_dict]
        if not known or top_k < 1:
            return ()
        scores = self._index.get_scores(known)
        return tuple(Hit(self.passages[i], float(scores[i])) for i in _top(scores, top_k))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """find(), as the protocol has it."""
        return self.find(query, top_k)


def _top(scores: Any, top_k: int) -> list[int]:
    """The best of those above 0; among equals those that come first in the corpus. NumPy's own choice among equals
    depends on the processor, so it is asked for the least of the best scores only."""
    import numpy as np

    some = np.flatnonzero(scores > 0)
    if len(some) > top_k:
        known = scores[some]
        some = some[known >= np.partition(known, len(known) - top_k)[len(known) - top_k]]
    return sorted((int(i) for i in some), key=lambda i: (-scores[i], i))[:top_k]
