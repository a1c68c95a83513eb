"""Routes through a question: who searches, who writes programs, who answers. Drawn at random, played, and told of.

A route says whom to call, and what to wait for: searches go on until enough of them brought something new, or until
the searcher says that nothing is missing; programs may go on until one prints something.
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
BROUGHT_NOTHING = (NOTHING_NEW, NOTHING_MISSING, "Error: ")
"""What the result of a search begins with that brought nothing."""
MOST_SEARCHES = 5
"""That bring something new, which a route waits for by number."""
UNTIL_NOTHING_MISSING = -1
"""In place of a number of searches: until the searcher says that nothing is missing."""
UNTIL_PRINTED = -1
"""In place of a number of programs: until one prints something."""
PATIENT = 0.65
"""Share of the random routes that search so."""
COMPUTING = 0.75
"""Share of the random routes that let programs be written. Half of them go on until one prints something."""
PATIENCE = 7
"""Searches that even those stop after."""
MOST_PROGRAMS = 3
"""Programs that even those stop after."""


class Route(NamedTuple):
    """Who is called for what."""

    search: str
    searches: int
    """How many searches that bring something new, or UNTIL_NOTHING_MISSING. One that brings nothing new does not count:
    its query was a poor one. When nothing is missing, searching ends in any case."""
    code: str
    """Who writes programs; "" for nobody."""
    programs: int
    """How many, or UNTIL_PRINTED."""
    answer: str
    besides: tuple[str, ...] = ()
    """Who is called besides, because the user favours him, each as often as he stands here: who searches before the
    other searches, who writes programs before the other programs."""


class FollowRoute:
    """Plays a route: searches, programs, the answer. It answers when the turns come to their end."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._besides = list(route.besides)
        self._searches = PATIENCE if route.searches else 0
        self._wanted = route.searches
        self._searched = False
        self._programs = MOST_PROGRAMS if route.programs == UNTIL_PRINTED else route.programs

    def __call__(self, episode: Episode) -> str:
        route, tools = self.route, episode.world.toolbox
        said = str(episode.messages[-1]["content"])
        if self._searched:
            self._searched = False
            self._wanted -= not said.startswith(BROUGHT_NOTHING)
            if not self._wanted or said.startswith(NOTHING_MISSING):
                self._searches = 0
        if route.programs == UNTIL_PRINTED and said.startswith(PRINTED):
            self._programs = 0
        left = episode.rules.limits.turns - episode.turn
        search, code = tools.of_kind(SEARCH), tools.of_kind(CODE)
        if search and left > 1 + bool(self._programs):
            if alias := self._next_besides(search):
                self._searched = True
                return render_call(search.name, {"model": alias})
            if self._searches:
                self._searches -= 1
                self._searched = True
                return render_call(search.name, {"model": route.search})
        if code and left > 1:
            if alias := self._next_besides(code):
                return render_call(code.name, {"model": alias})
            if self._programs:
                self._programs -= 1
                return render_call(code.name, {"model": route.code})
        return render_call(answering(episode).name, {"model": route.answer})

    def _next_besides(self, tool: Tool) -> str:
        """Who is to be called next besides, of a tool; "" for nobody."""
        for alias in self._besides:
            if alias in tool.keys:
                self._besides.remove(alias)
                return alias
        return ""


def random_route(episode: Episode, rng: random.Random) -> Route:
    """One model of each tool, picked at random whatever the question. A third of the routes search until a random
    number of searches brought something new, the others until the searcher says that nothing is missing. Three of four
    let programs be written, and half of these go on until one prints something."""
    searches = UNTIL_NOTHING_MISSING if rng.random() < PATIENT else rng.randint(0, MOST_SEARCHES)
    computes = rng.random() < COMPUTING
    picked = {tool.kind: rng.choice(tool.keys) for tool in episode.world.toolbox}
    code = picked.get(CODE, "") if computes else ""
    programs = (UNTIL_PRINTED if rng.random() < 0.5 else 1) if code else 0
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
    searched: int = 0
    """How often it searched."""
    found: tuple[int, ...] = ()
    """Which of its searches brought something new, by their numbers from 1."""
    nothing_missing: bool = False
    """Whether the searcher said that nothing is missing."""


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
    solved = bool(episode.outcome and episode.outcome.value >= 1.0)
    search = episode.world.toolbox.of_kind(SEARCH)
    told = [
        str(m["content"]) for m in episode.messages if search and m["role"] == "tool" and m.get("name") == search.name
    ]
    found = tuple(n for n, text in enumerate(told, 1) if not text.startswith(BROUGHT_NOTHING))
    complete = any(text.startswith(NOTHING_MISSING) for text in told)
    return TriedRoute(route, header(episode), solved, used, len(told), found, complete)
