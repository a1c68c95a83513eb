"""What searching comes to, learnt from routes that searched until nothing was missing.

They tell of each kind of question how many searches that bring something it takes, so how likely any smaller number is
enough, and how often a searcher has to be called for that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from toolorchestra.agents.training.routes import MOST_SEARCHES, UNTIL_NOTHING_MISSING, TriedRoute

Found = Sequence[int]
"""Of one play: which of its searches brought something, by their numbers from 1."""


@dataclass(frozen=True)
class Searching:
    """By the header of a question, what it takes to find all that is needed."""

    enough: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How likely no search, one that brings something, two and so on are enough; last: until nothing is missing."""
    calls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How many calls these take."""
    pace: Mapping[str, float] = field(default_factory=dict)
    """By searcher: how many calls he takes for one of the others."""
    nothing_new: Mapping[str, float] = field(default_factory=dict)
    """How many calls it takes until one brings nothing new."""

    def chance(self, head: str, said: int) -> float:
        """That all is found by what a route says; where nothing is known of such questions, that nothing is needed."""
        return self.enough[head][said] if head in self.enough else 1.0

    def times(self, head: str, alias: str, said: int) -> float:
        """How often a searcher is called by what a route says, as expected."""
        if not said:
            return 0.0
        return self.calls[head][said] * self.pace.get(alias, 1.0) if head in self.calls else float(abs(said))

    def needed(self, head: str) -> float:
        """How many searches that bring something a question needs, on average."""
        return sum(1 - chance for chance in self.enough.get(head, [1.0])[:MOST_SEARCHES])


def searching(routes: Sequence[TriedRoute]) -> Searching:
    """From all routes that were tried."""
    patient = [one for one in routes if one.route.searches == UNTIL_NOTHING_MISSING and one.searched]
    by_head: dict[str, list[TriedRoute]] = defaultdict(list)
    for one in patient:
        by_head[one.header].append(one)
    calls = {
        head: [*(fmean(_until(one, n) for one in some) for n in _NUMBERS), _mean(some)]
        for head, some in by_head.items()
    }
    return Searching(
        {
            head: [*(fmean(_has(one, n) for one in some) for n in _NUMBERS), _ended(some)]
            for head, some in by_head.items()
        },
        calls,
        _paces(patient, calls),
        {head: fmean(_first_without(one) for one in some) for head, some in by_head.items()},
    )


_NUMBERS = range(MOST_SEARCHES + 1)


def _until(one: TriedRoute, number: int) -> int:
    """Calls until so many brought something; all, where fewer did."""
    return 0 if not number else one.found[number - 1] if number <= len(one.found) else one.searched


def _has(one: TriedRoute, number: int) -> bool:
    """Whether so many would have been enough."""
    return one.nothing_missing and len(one.found) <= number


def _mean(some: Sequence[TriedRoute]) -> float:
    return fmean(one.searched for one in some)


def _ended(some: Sequence[TriedRoute]) -> float:
    return fmean(one.nothing_missing for one in some)


def _first_without(one: TriedRoute) -> int:
    return next((n for n in range(1, one.searched + 1) if n not in one.found), one.searched)


def _paces(patient: Sequence[TriedRoute], calls: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
    took: Counter[str] = Counter()
    usual: dict[str, float] = defaultdict(float)
    for one in patient:
        took[one.route.search] += one.searched
        usual[one.route.search] += calls[one.header][UNTIL_NOTHING_MISSING]
    return {alias: took[alias] / usual[alias] for alias in took}
