"""What routes are worth, learnt from random ones on many tasks: without anybody saying who is good at what.

On one task the best of a few random routes is often a cheap gamble that came off. So a route's chance is estimated from
all routes on all tasks: by a logistic regression on what an agent sees (the first line of the question) and does (how
often it searches, who writes the program, who answers). Its bill is what its calls use on average, at the task's
prices.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.agents.rollouts.rewards import GroupReward, Measure
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

SEARCH, CODE, ANSWER = "search", "enhance_reasoning", "answer"
KINDS = (SEARCH, CODE, ANSWER)
MOST_SEARCHES = 4
UNTIL_NOTHING_NEW = -1
"""In place of a number of searches: until one brings nothing new."""
PATIENT = 0.5
"""Share of the random routes that search so."""
PATIENCE = 7
"""Searches that even those stop after."""
SAME_VALUE = 0.004
"""Routes whose value is within this share of the best one's count as equal."""
RIDGE = 2.0
NEWTON_STEPS = 10


class Route(NamedTuple):
    """Who is called for what."""

    search: str
    searches: int
    """How often, or UNTIL_NOTHING_NEW."""
    code: str
    """Who writes a program; "" for nobody."""
    answer: str


class FollowRoute:
    """Plays a route: searches, computes or not, answers."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._searches = PATIENCE if route.searches == UNTIL_NOTHING_NEW else route.searches
        self._code = route.code

    def __call__(self, episode: Episode) -> str:
        route, tools = self.route, episode.world.toolbox
        if route.searches == UNTIL_NOTHING_NEW:
            said = str(episode.messages[-1]["content"])
            if said.startswith((NOTHING_NEW, NOTHING_MISSING)):
                self._searches = 0
        used: Tool | None
        if self._searches and (used := tools.of_kind(SEARCH)):
            self._searches -= 1
            return render_call(used.name, {"model": route.search})
        if self._code and (used := tools.of_kind(CODE)):
            self._code = ""
            return render_call(used.name, {"model": route.code})
        return render_call(answering(episode).name, {"model": route.answer})


def random_route(episode: Episode, rng: random.Random) -> Route:
    """One model of each tool, picked at random whatever the question. Half of the routes search a random number of
    times, the others until a search brings nothing new; half of them let a program be written."""
    patient = rng.random() < PATIENT
    searches = UNTIL_NOTHING_NEW if patient else rng.randint(0, MOST_SEARCHES)
    computes = rng.random() < 0.5
    picked = {tool.kind: rng.choice(tool.keys) for tool in episode.world.toolbox}
    return Route(picked.get(SEARCH, ""), searches, picked.get(CODE, "") if computes else "", picked[ANSWER])


def answering(episode: Episode) -> Tool:
    """The paper's `answer`, by whatever name."""
    found = episode.world.toolbox.of_kind(ANSWER)
    if found is None:
        raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
    return found


class ExpertUse(NamedTuple):
    """What the calls of one expert used together."""

    calls: int
    input: int
    output: int
    """With reasoning."""
    seconds: float


class TriedRoute(NamedTuple):
    """A route that was played."""

    route: Route
    header: str
    solved: bool
    used: Mapping[str, ExpertUse]


def header(episode: Episode) -> str:
    """The first line of what was asked: subject and level, or subject and pattern."""
    return str(episode.messages[1]["content"]).partition("\n")[0]


def tried(route: Route, episode: Episode) -> TriedRoute:
    """What a played episode tells of its route."""
    used: dict[str, ExpertUse] = {}
    for charge in episode.ledger:
        if charge.role == EXPERT:
            tokens, before = charge.usage.tokens, used.get(charge.tool, ExpertUse(0, 0, 0, 0.0))
            used[charge.tool] = ExpertUse(
                before.calls + 1,
                before.input + tokens.input,
                before.output + tokens.output + tokens.reasoning,
                before.seconds + charge.usage.seconds,
            )
    return TriedRoute(route, header(episode), bool(episode.outcome and episode.outcome.value >= 1.0), used)


@dataclass(frozen=True)
class RouteValues:
    """What was learnt of one environment."""

    weights: Mapping[str, float]
    """Of what tells how likely a route ends right."""
    usual: Mapping[str, tuple[float, float, float]]
    """By expert: input and output tokens and seconds of a call."""
    searches: Mapping[str, float]
    """By header: how many searches it takes until nothing new comes."""

    def best(self, episode: Episode, fixed: Sequence[Mapping[str, float]] = ()) -> Route:
        """The route with the highest expected reward at the task's prices, under the user's wish; the cheapest of those
        that come near it. `fixed`: the calls of the policies that the reward is scaled between; else all routes."""
        routes = list(every_route(episode))
        head, known = header(episode), self.weights.get
        earned = self._earned(episode, routes, fixed)

        @cache
        def weighed(names: tuple[str, ...]) -> float:
            return sum(known(name, 0.0) for name in names)

        values = []
        for route, (reward, usd) in zip(routes, earned, strict=True):
            total = sum(map(weighed, _seen(head, route)))
            values.append((reward / (1 + math.exp(-total)), -usd))
        enough = (1 - SAME_VALUE) * max(values)[0]
        near = [number for number, (value, _) in enumerate(values) if value >= enough]
        return routes[max(near, key=lambda number: values[number][1])]

    def _earned(
        self, episode: Episode, routes: Sequence[Route], fixed: Sequence[Mapping[str, float]]
    ) -> Iterator[tuple[float, float]]:
        """What each route earns if it ends right, and its dollars."""
        bills = self._bills(episode)
        until = self.searches.get(header(episode), 1.0)
        measures = [_measure(_calls(route, until), bills) for route in routes]
        wrong = replace(measures[0], outcome=0.0)  # being right counts where everybody is
        reward = GroupReward(episode.preference, episode.world.toolbox.keys)
        if fixed:
            ends = [*(_measure(calls, bills) for calls in fixed), wrong]
            scores = [reward.score([measure], ends)[0] for measure in measures]
        else:
            scores = reward.score(measures, [wrong])
        for score, measure in zip(scores, measures, strict=True):
            yield score.total if score else 0.0, measure.usd

    def chance(self, head: str, route: Route) -> float:
        """That a route ends right."""
        return 1 / (1 + math.exp(-sum(self.weights.get(name, 0.0) for name in features(head, route))))

    def _bills(self, episode: Episode) -> Mapping[str, tuple[float, float]]:
        """By expert, dollars and seconds of a call."""
        found = {}
        for tool in episode.world.toolbox:
            for offer in tool.offers if tool.kind in KINDS else ():
                read, written, seconds = self.usual.get(offer.alias, (0.0, 0.0, 0.0))
                usage = Usage(offer.model, EXPERT, Tokens(round(read), 0, round(written)))
                found[offer.alias] = episode.sheet.price(offer.model).nano_usd(usage) / NANO, seconds
        return found


def _calls(route: Route, until: float) -> Mapping[str, float]:
    """By expert; `until` is how many searches it takes until nothing new comes."""
    searches = until if route.searches == UNTIL_NOTHING_NEW else float(route.searches)
    return {alias: n for alias, n in ((route.search, searches), (route.code, 1.0), (route.answer, 1.0)) if alias and n}


def _measure(calls: Mapping[str, float], bills: Mapping[str, tuple[float, float]]) -> Measure:
    """A right answer behind these calls."""
    usd, seconds = (sum(n * bills[alias][at] for alias, n in calls.items() if alias in bills) for at in (0, 1))
    return Measure(1.0, usd, seconds, calls)


def every_route(episode: Episode) -> Iterator[Route]:
    """All that a random one could be."""
    keys = {kind: tool.keys if (tool := episode.world.toolbox.of_kind(kind)) else () for kind in KINDS}
    searching = [(alias, n) for alias in keys[SEARCH] for n in (*range(1, MOST_SEARCHES + 1), UNTIL_NOTHING_NEW)]
    for (search, times), code, answer in itertools.product([("", 0), *searching], ("", *keys[CODE]), keys[ANSWER]):
        yield Route(search, times, code, answer)


def features(head: str, route: Route) -> tuple[str, ...]:
    """What tells how likely a route is to end right."""
    return tuple(itertools.chain.from_iterable(_seen(head, route)))


@lru_cache(maxsize=1 << 16)
def _seen(head: str, route: Route) -> tuple[tuple[str, ...], ...]:
    """The same in parts that many routes have in common."""
    subject = head.partition(".")[0]
    searched = f"searches {route.searches}"
    return (
        ("always", head),
        (f"{head}|{searched}", f"{route.search if route.searches else ''}|{searched}"),
        (f"{head}|program {bool(route.code)}", f"{subject}|program {route.code}"),
        (f"{subject}|{route.answer}",),
        (f"{route.code}|{route.answer}",),
    )


def learnt(routes: Sequence[TriedRoute]) -> RouteValues:
    """From all routes that were tried."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    searches: dict[str, list[int]] = defaultdict(list)
    for one in routes:
        for alias, use in one.used.items():
            for at, more in enumerate(use):
                sums[alias][at] += more
        if one.route.searches == UNTIL_NOTHING_NEW and one.route.search in one.used:
            searches[one.header].append(one.used[one.route.search].calls)
    usual = {alias: (read / n, written / n, seconds / n) for alias, (n, read, written, seconds) in sums.items()}
    return RouteValues(_regression(routes), usual, {head: sum(n) / len(n) for head, n in searches.items()})


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
