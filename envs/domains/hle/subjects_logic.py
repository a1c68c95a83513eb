"""Owns the logic questions: orderings that their clues leave as the only one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import permutations
from typing import Final, NamedTuple

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.subjects_form import Drafter, SubjectDraft, pose, string

Places = tuple[int, ...]
"""The place of each item, counted from 0 at the left."""


class _Clue(NamedTuple):
    text: str
    holds: Callable[[Places], bool]


ClueMaker = Callable[[random.Random, Places], _Clue]

_MOST_TRIES: Final = 60


def logic(rng: random.Random, level: int) -> Question:
    """Orderings of six or seven items from clues."""
    return pose(rng, "logic", "logic", level, _LOGIC)


@lru_cache(maxsize=4)
def _all_places(size: int) -> tuple[Places, ...]:
    return tuple(permutations(range(size)))


def _letter(item: int) -> str:
    return chr(ord("A") + item)


def _pair(rng: random.Random, truth: Places) -> tuple[int, int]:
    """Two items, the first of them further left."""
    a, b = rng.sample(range(len(truth)), 2)
    return (a, b) if truth[a] < truth[b] else (b, a)


def _fixed(rng: random.Random, truth: Places) -> _Clue:
    return _place_of(rng.randrange(len(truth)), truth)


def _place_of(item: int, truth: Places) -> _Clue:
    place = truth[item]
    return _Clue(f"{_letter(item)} is in place {place + 1}", lambda p: p[item] == place)


def _telling_place_of(item: int) -> ClueMaker:
    return lambda _, truth: _place_of(item, truth)


def _before(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    return _Clue(f"{_letter(a)} is somewhere left of {_letter(b)}", lambda p: p[a] < p[b])


def _beside(rng: random.Random, truth: Places) -> _Clue:
    item = rng.randrange(len(truth))
    others = [other for other in range(len(truth)) if abs(truth[other] - truth[item]) == 1]
    a, b = item, rng.choice(others)
    return _Clue(f"{_letter(a)} and {_letter(b)} are neighbours", lambda p: abs(p[a] - p[b]) == 1)


def _gap(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    steps = truth[b] - truth[a]
    text = f"{steps - 1} of the others are between {_letter(a)} and {_letter(b)}"
    return _Clue(text, lambda p: abs(p[a] - p[b]) == steps)


def _apart(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    if truth[b] - truth[a] == 1:
        return _beside(rng, truth)
    return _Clue(f"{_letter(a)} and {_letter(b)} are not neighbours", lambda p: abs(p[a] - p[b]) != 1)


def _agreement(rng: random.Random, truth: Places) -> _Clue:
    """Either both comparisons hold or neither does."""
    a, b, c, d = rng.sample(range(len(truth)), 4)
    if (truth[a] < truth[b]) != (truth[c] < truth[d]):
        c, d = d, c
    left, right = f"{_letter(a)} is left of {_letter(b)}", f"{_letter(c)} is left of {_letter(d)}"
    return _Clue(f"{left} exactly if {right}", lambda p: (p[a] < p[b]) == (p[c] < p[d]))


def _middle(rng: random.Random, truth: Places) -> _Clue:
    a, b, c = sorted(rng.sample(range(len(truth)), 3), key=lambda item: truth[item])
    outer = sorted((a, c))
    text = f"{_letter(b)} is somewhere between {_letter(outer[0])} and {_letter(outer[1])}"
    return _Clue(text, lambda p: p[a] < p[b] < p[c] or p[c] < p[b] < p[a])


def _ordering(rng: random.Random, size: int, makers: Sequence[ClueMaker]) -> SubjectDraft:
    """Add true clues that rule something out, until brute force over all orderings leaves one."""
    truth = rng.choice(_all_places(size))
    left: Sequence[Places] = _all_places(size)
    clues: list[str] = []
    tries = [makers[index % len(makers)] for index in range(_MOST_TRIES)]
    # The places of all items decide every ordering, so the search below always ends with one.
    certain: list[ClueMaker] = [_telling_place_of(item) for item in range(size)]
    for maker in (*tries, *certain):
        clue = maker(rng, truth)
        kept = [places for places in left if clue.holds(places)]
        if len(kept) < len(left):
            left, clues = kept, [*clues, clue.text]
        if len(left) == 1:
            break
    rng.shuffle(clues)
    return _worded(rng, truth, clues)


def _worded(rng: random.Random, truth: Places, clues: Sequence[str]) -> SubjectDraft:
    size = len(truth)
    items = ", ".join(map(_letter, range(size)))
    body = rng.choice(
        (
            f"{size} books, {items}, stand on a shelf. The places are numbered from 1 at the left.",
            f"Runners {items} stand in a row of {size}, in places that count from 1 at the left.",
        )
    )
    ask = "Answer with all the letters from left to right, in the form B, A, ..."
    told = "; ".join(clues)
    row = sorted(range(size), key=lambda item: truth[item])
    wrong = []
    for first in rng.sample(range(size - 1), 3):
        swapped = list(row)
        swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
        wrong.append(_spelt(swapped))
    return string(f"{body} It is known that: {told}. {ask}", _spelt(row), wrong)


def _spelt(row: Sequence[int]) -> str:
    return ", ".join(map(_letter, row))


def _drafter(size: int, *makers: ClueMaker) -> Drafter:
    return lambda rng: _ordering(rng, size, makers)


_LOGIC: Final = (
    _drafter(6, _fixed),
    _drafter(6, _fixed, _before, _fixed, _beside),
    _drafter(6, _gap, _before, _beside),
    _drafter(7, _gap, _middle, _beside, _before, _apart),
    _drafter(7, _agreement, _gap, _middle, _agreement, _apart),
)
