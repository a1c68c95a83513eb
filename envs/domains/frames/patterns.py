"""The reasoning patterns of the encyclopaedia's questions, by name, and those that follow a single path."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.frames.drafts import DraftMaker, QuestionDraft, closing, question
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.phrases import any_ending, entity_ending, named, number_ending, random_walk
from toolorchestra.envs.domains.frames.reckoning import count_and_extreme, date_arithmetic, population_sum
from toolorchestra.envs.domains.frames.selection import comparison, intersection, superlative

# Prizes and institutions are few: started from often, they would lead to the same answers again and again.
_START_WEIGHTS = {"work": 9, "person": 7, "institution": 3, "prize": 1}


def _path(book: Encyclopaedia, rng: random.Random, *, hops: int, asks: str) -> QuestionDraft | None:
    kind = rng.choices(list(_START_WEIGHTS), list(_START_WEIGHTS.values()))[0]
    walk = random_walk(book, rng, named(book, rng.choice(book.ids_by_kind[kind])), hops)
    if walk is None:
        return None
    if asks == "date":
        ending = number_ending(book, rng, walk, dates_only=True)
    elif asks == "name":
        ending = entity_ending(book, rng, walk)
    else:
        ending = any_ending(book, rng, walk)
    return closing(book, rng, ending.text, walk.steps, ending) if ending else None


def _bridge_name(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    return _path(book, rng, hops=rng.choice((1, 2)), asks="name")


_MAKERS: Mapping[str, DraftMaker] = {
    "bridge_date": partial(_path, hops=1, asks="date"),
    "bridge_name": _bridge_name,
    "chain_of_four": partial(_path, hops=3, asks="any"),
    "chain_of_five": partial(_path, hops=4, asks="any"),
    "date_arithmetic": date_arithmetic,
    "comparison": comparison,
    "count": count_and_extreme,
    "intersection": intersection,
    "superlative": superlative,
    "population_sum": population_sum,
}

PATTERNS: Mapping[str, Callable[[Encyclopaedia, random.Random], Question]] = MappingProxyType(
    {name: partial(question, name, make) for name, make in _MAKERS.items()}
)
"""Draws a question of the pattern. The same encyclopaedia and generator state give the same question."""
