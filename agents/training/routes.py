"""Routes through a question: who searches, who writes programs, who answers. Drawn at random, played, and told of.

A route is fixed but for two things that it waits for: searches may go on until one brings nothing new, and programs
until one prints something.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import EXPERT
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.code import PRINTED
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

SEARCH, CODE, ANSWER = "search", "enhance_reasoning", "answer"
KINDS = (SEARCH, CODE, ANSWER)
MOST_SEARCHES = 4
UNTIL_NOTHING_NEW = -1
"""In place of a number of searches: until one brings nothing new."""
UNTIL_PRINTED = -1
"""In place of a number of programs: until one prints something."""
PATIENT = 0.5
"""Share of the random routes that search so; of those with programs, that go on until one prints something."""
PATIENCE = 7
"""Searches that even those stop after."""
MOST_PROGRAMS = 3
"""Programs that even those stop after."""


class Route(NamedTuple):
    """Who is called for what."""

    search: str
    searches: int
    """How often, or UNTIL_NOTHING_NEW."""
    code: str
    """Who writes programs; "" for nobody."""
    programs: int
    """How many, or UNTIL_PRINTED."""
    answer: str
    extra: str = ""
    """Who is called once besides, because the user favours him; "" for nobody."""


class FollowRoute:
    """Plays a route: the call besides, searches, programs, the answer."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._extra = route.extra
        self._searches = PATIENCE if route.searches == UNTIL_NOTHING_NEW else route.searches
        self._programs = MOST_PROGRAMS if route.programs == UNTIL_PRINTED else route.programs

    def __call__(self, episode: Episode) -> str:
        route, tools = self.route, episode.world.toolbox
        said = str(episode.messages[-1]["content"])
        if route.searches == UNTIL_NOTHING_NEW and said.startswith((NOTHING_NEW, NOTHING_MISSING)):
            self._searches = 0
        if route.programs == UNTIL_PRINTED and said.startswith(PRINTED):
            self._programs = 0
        used: Tool | None
        if self._extra:
            alias, self._extra = self._extra, ""
            return render_call(next(tool.name for tool in tools if alias in tool.keys), {"model": alias})
        if self._searches and (used := tools.of_kind(SEARCH)):
            self._searches -= 1
            return render_call(used.name, {"model": route.search})
        if self._programs and (used := tools.of_kind(CODE)):
            self._programs -= 1
            return render_call(used.name, {"model": route.code})
        return render_call(answering(episode).name, {"model": route.answer})


def random_route(episode: Episode, rng: random.Random) -> Route:
    """One model of each tool, picked at random whatever the question. Half of the routes search a random number of
    times, the others until a search brings nothing new. Half of them let a program be written, and half of these go on
    until one prints something."""
    searches = UNTIL_NOTHING_NEW if rng.random() < PATIENT else rng.randint(0, MOST_SEARCHES)
    computes = rng.random() < 0.5
    picked = {tool.kind: rng.choice(tool.keys) for tool in episode.world.toolbox}
    code = picked.get(CODE, "") if computes else ""
    programs = (UNTIL_PRINTED if rng.random() < PATIENT else 1) if code else 0
    return Route(picked.get(SEARCH, ""), searches, code, programs, picked[ANSWER])


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
