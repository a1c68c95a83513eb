"""What routes are worth, learnt from random ones on many tasks: without anybody saying who is good at what.

On one task the best of a few random routes is often a cheap gamble that came off. So a route's chance is estimated from
all routes on all tasks. It is the chance that its searches find all that is needed (searching.py), times the chance
that it then ends right: by a logistic regression on what an agent sees (the first line of the question) and does (who
writes the program, who answers). Its bill is what its calls use on average, at the task's prices.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.agents.training.routes import (
    ANSWER,
    CODE,
    KINDS,
    MOST_SEARCHES,
    SEARCH,
    UNTIL_NOTHING_MISSING,
    UNTIL_PRINTED,
    Route,
    TriedRoute,
    header,
)
from toolorchestra.agents.training.searching import Searching, searching
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage

Numbers = np.ndarray[Any, np.dtype[np.float64]]

SAME_VALUE = 0.004
"""Routes whose value is within this share of the best one's count as equal."""
MOST_BESIDES = 3
"""Searches besides, of a searcher whom the user favours."""
ALL_FOUND = 0.97
"""From which chance on a route counts as one that has found all that is needed."""
RIDGE = 10.0
NEWTON_STEPS = 10


@dataclass(frozen=True)
class RouteValues:
    """What was learnt of one environment."""

    weights: Mapping[str, float]
    """Of what tells how likely a route ends right that has found all that is needed."""
    usual: Mapping[str, tuple[float, float, float]]
    """By expert: input and output tokens and seconds of a call."""
    searching: Searching = field(default_factory=Searching)
    """What it takes to find all that is needed."""
    unfound: float = 0.0
    """How likely a route ends right that has not found all."""
    programs: Mapping[str, float] = field(default_factory=dict)
    """By subject and writer: how many programs it takes until one prints something."""

    def best(self, episode: Episode, fixed: Sequence[Mapping[str, float]] = ()) -> Route:
        """The route with the highest expected reward at the task's prices, under the user's wish; the cheapest of those
        that come near it. `fixed`: the calls of the policies that the reward is scaled between; else all routes."""
        routes = _Routes(episode, self, fixed)
        values, usd = routes.values(), routes.sums[:, _USD]
        near = np.flatnonzero(values >= (1 - SAME_VALUE) * values.max())
        return routes.route(int(near[usd[near].argmin()]))

    def usual_calls(self, episode: Episode, picks: Mapping[str, str]) -> Mapping[str, float]:
        """What a fixed rule calls that always asks these experts, by kind of tool: it searches until nothing new comes,
        lets one program be written, and has the question answered."""
        searches = self.searching.nothing_new.get(header(episode), 1.0)
        return {alias: searches if kind == SEARCH else 1.0 for kind, alias in picks.items() if kind in KINDS}

    def chance(self, head: str, route: Route) -> float:
        """That a route ends right."""
        found = self.searching.chance(head, route.searches)
        right = 1 / (1 + math.exp(-sum(self.weights.get(name, 0.0) for name in features(head, route))))
        return found * right + (1 - found) * self.unfound

    def bills(self, episode: Episode) -> Mapping[str, tuple[float, float]]:
        """By expert, dollars and seconds of a call."""
        found = {}
        for tool in episode.world.toolbox:
            for offer in tool.offers if tool.kind in KINDS else ():
                read, written, seconds = self.usual.get(offer.alias, (0.0, 0.0, 0.0))
                usage = Usage(offer.model, EXPERT, Tokens(round(read), 0, round(written)))
                found[offer.alias] = episode.sheet.price(offer.model).nano_usd(usage) / NANO, seconds
        return found


class _Part(NamedTuple):
    """One way to do a part of a route: whom it calls, how often, and what the names of its features are."""

    alias: str
    said: int
    """What the route says: a number, or until when."""
    calls: tuple[tuple[str, float], ...]
    """Calls of each, as expected."""
    names: tuple[str, ...]
    besides: tuple[str, ...] = ()
    """Who is called before, because the user favours him."""


_USD, _SECONDS = 0, 1


class _Routes:
    """All routes of an episode at once, as arrays over (search, program, answer)."""

    def __init__(self, episode: Episode, values: RouteValues, fixed: Sequence[Mapping[str, float]]) -> None:
        self._values, self._fixed, self._episode = values, fixed, episode
        self._preference, self._bills = episode.preference, values.bills(episode)
        self.parts = _parts(episode, values)
        self._shape = tuple(map(len, self.parts))
        self._favoured = tuple(self._preference.tools)
        self.sums = self._summed()
        """Of each route: dollars, seconds, and calls of each favoured tool."""
        self._base = sum(values.weights.get(name, 0.0) for name in ("always", header(episode)))

    def route(self, number: int) -> Route:
        """The route with this number."""
        at = np.unravel_index(number, self._shape)
        search, code, answer = (part[int(n)] for part, n in zip(self.parts, at, strict=True))
        besides = search.besides + code.besides
        return Route(search.alias, search.said, code.alias, code.said, answer.alias, besides)

    def _spread(self, numbers: Sequence[Sequence[float]]) -> Numbers:
        """The sum over all combinations of a number of each part, flat."""
        total: Numbers = np.zeros(self._shape)
        for axis, some in enumerate(numbers):
            total += np.asarray(some, float).reshape([-1 if k == axis else 1 for k in range(len(self._shape))])
        return total.ravel()

    def _summed(self) -> Numbers:
        bills = [{alias: bill[at] for alias, bill in self._bills.items()} for at in (_USD, _SECONDS)]
        counts = [*bills, *({key: 1.0} for key in self._favoured)]
        columns = [
            [[sum(times * count.get(alias, 0.0) for alias, times in one.calls) for one in part] for part in self.parts]
            for count in counts
        ]
        return np.stack([self._spread(column) for column in columns], axis=1)

    def _bill(self, alias: str) -> tuple[float, float]:
        return self._bills.get(alias, (0.0, 0.0))

    def _chances(self) -> Numbers:
        weights = self._values.weights
        told = [[sum(weights.get(name, 0.0) for name in one.names) for one in part] for part in self.parts]
        _, writing, answering_ = self.parts
        together = [[weights.get(_pair(code.alias, answer.alias), 0.0) for answer in answering_] for code in writing]
        total: Numbers = self._spread(told).reshape(self._shape) + np.asarray(together)[None] + self._base
        head = header(self._episode)
        found = np.array([self._values.searching.chance(head, one.said) for one in self.parts[0]])[:, None, None]
        chances: Numbers = found / (1 + np.exp(-total)) + (1 - found) * self._values.unfound
        return chances.ravel()

    def values(self) -> Numbers:
        """The expected reward of each, as GroupReward scores a right answer."""
        wish = self._preference
        weights = [wish.usd, wish.seconds, *wish.tools.values()]
        signs = [-1.0, -1.0, *(1.0 for _ in self._favoured)]
        reward: Numbers = np.full(len(self.sums), float(wish.outcome))  # being right counts where everybody is
        for at, (weight, sign) in enumerate(zip(weights, signs, strict=True)):
            mine = sign * self.sums[:, at]
            low, high = self._ends(at, sign, mine)
            apart = high > low
            reward += weight * np.divide(mine - low, high - low, out=np.zeros_like(mine), where=apart)
        return self._chances() * reward

    def _ends(self, at: int, sign: float, mine: Numbers) -> tuple[Numbers, Numbers]:
        if not self._fixed:
            return np.full_like(mine, mine.min()), np.full_like(mine, mine.max())
        ends = [sign * self._measured(calls, at) for calls in self._fixed]
        if at not in (_USD, _SECONDS) and self._favoured[at - 2] in {one.alias for one in self.parts[0]}:
            # Somebody else may let a favoured searcher find all that is needed.
            ends.append(self._values.searching.needed(header(self._episode)))
        return np.minimum(mine, min(ends)), np.maximum(mine, max(ends))

    def _measured(self, calls: Mapping[str, float], at: int) -> float:
        if at in (_USD, _SECONDS):
            return sum(n * self._bill(alias)[at] for alias, n in calls.items())
        return float(calls.get(self._favoured[at - 2], 0.0))


def _parts(episode: Episode, values: RouteValues) -> tuple[Sequence[_Part], ...]:
    """What there is to choose from: for the search, the program and the answer."""
    head = header(episode)
    keys = {kind: tool.keys if (tool := episode.world.toolbox.of_kind(kind)) else () for kind in KINDS}

    def search(alias: str, said: int, besides: tuple[str, ...] = ()) -> _Part:
        times = values.searching.times(head, alias, said)
        first = ((besides[0], float(len(besides))),) if besides else ()
        calls = (*first, (alias, max(0.0, times - len(besides))))
        return _Part(alias, said, calls, (), besides)

    def writing(alias: str, said: int, besides: tuple[str, ...] = ()) -> _Part:
        times = values.programs.get(_writes(head, alias), 1.0) if said == UNTIL_PRINTED else float(said)
        first = tuple((one, 1.0) for one in besides)
        return _Part(alias, said, (*first, (alias, times)), _code_names(head, alias, said), besides)

    def besides(kind: str, most: int) -> Iterator[tuple[str, ...]]:
        yield ()
        for alias in keys[kind]:
            if alias in episode.preference.tools:
                yield from ((alias,) * n for n in range(1, most + 1))

    counts = (*range(1, MOST_SEARCHES + 1), UNTIL_NOTHING_MISSING)
    searches = [("", 0), *((alias, n) for alias in keys[SEARCH] for n in counts)]
    programs = [("", 0), *((alias, n) for alias in keys[CODE] for n in (1, UNTIL_PRINTED))]
    return (
        [search(*one, more) for more in besides(SEARCH, MOST_BESIDES) for one in searches],
        [writing(*one, more) for more in besides(CODE, 1) for one in programs],
        [_Part(alias, 1, ((alias, 1.0),), _answer_names(head, alias)) for alias in keys[ANSWER]],
    )


def every_route(episode: Episode) -> Iterator[Route]:
    """All routes of an episode that are compared with each other."""
    routes = _Routes(episode, RouteValues({}, {}), ())
    return (routes.route(number) for number in range(len(routes.sums)))


def features(head: str, route: Route) -> tuple[str, ...]:
    """What tells how likely a route is to end right."""
    return (
        "always",
        head,
        *_code_names(head, route.code, route.programs),
        *_answer_names(head, route.answer),
        _pair(route.code, route.answer),
    )


def _code_names(head: str, alias: str, programs: int) -> tuple[str, ...]:
    return f"{head}|programs {programs}", f"{_subject(head)}|program {alias}"


def _answer_names(head: str, alias: str) -> tuple[str, ...]:
    return (f"{_subject(head)}|{alias}",)


def _pair(code: str, answer: str) -> str:
    return f"{code}|{answer}"


def _subject(head: str) -> str:
    return head.partition(".")[0]


def learnt(routes: Sequence[TriedRoute]) -> RouteValues:
    """From all routes that were tried."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    programs: dict[str, list[int]] = defaultdict(list)
    for one in routes:
        for alias, use in one.used.items():
            for at, more in enumerate(use):
                sums[alias][at] += more
        if one.route.programs == UNTIL_PRINTED and one.route.code in one.used:
            programs[_writes(one.header, one.route.code)].append(one.used[one.route.code].calls)
    usual = {alias: (read / n, written / n, seconds / n) for alias, (n, read, written, seconds) in sums.items()}
    found = searching(routes)
    chances = [one.nothing_missing or found.chance(one.header, one.route.searches) for one in routes]
    complete = [one for one, chance in zip(routes, chances, strict=True) if chance >= ALL_FOUND]
    wanting = [one.solved for one, chance in zip(routes, chances, strict=True) if chance <= 1 - ALL_FOUND]
    return RouteValues(_regression(complete), usual, found, fmean(wanting or [0.0]), _means(programs))


def _means(counts: Mapping[str, Sequence[int]]) -> Mapping[str, float]:
    return {name: sum(some) / len(some) for name, some in counts.items()}


def _writes(head: str, alias: str) -> str:
    """A subject and who writes programs."""
    return f"{_subject(head)}|{alias}"


def _regression(routes: Sequence[TriedRoute]) -> Mapping[str, float]:
    """Logistic, with a ridge on all but the constant. Routes that look alike are one row."""
    times: Counter[tuple[str, ...]] = Counter()
    right: Counter[tuple[str, ...]] = Counter()
    for one in routes:
        look = features(one.header, one.route)
        times[look] += 1
        right[look] += one.solved
    columns = {name: at for at, name in enumerate(dict.fromkeys(name for look in times for name in look))}
    rows = np.zeros((len(times), len(columns)), np.float32)
    for at, look in enumerate(times):
        rows[at, [columns[name] for name in look]] = 1.0
    seen, solved = (np.array([counts[look] for look in times], np.float32) for counts in (times, right))
    ridge = np.array([1e-3 if name == "always" else RIDGE for name in columns], np.float32)
    weights: Any = np.zeros(len(columns), np.float32)
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (solved - seen * chance) - ridge * weights
        bend = (rows * (seen * chance * (1 - chance))[:, None]).T @ rows + np.diag(ridge)
        weights = weights + np.linalg.solve(bend, slope)
    return {name: float(weights[at]) for name, at in columns.items()}
