"""The policies that every learned one is held against: random, cheapest, strongest, and an oracle that knows the task.

A baseline reads the episode and writes the next action. The first three use what an agent may see, and the skill table
to know who is strong; the oracle also reads the hidden question. It plans by expectation and never looks at the draws,
so what it reaches is within a policy's reach.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import (
    CHARACTERS_PER_TOKEN,
    Skill,
    answer_chance,
    code_chance,
    computed_in,
    facts_in,
    query_chance,
)
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage
from toolorchestra.envs.tools import Offer, Tool
from toolorchestra.envs.tools.question_material import gathered
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

Baseline = Callable[[Episode], str]
MOST_SEARCHES = 6
MOST_PLANNED_SEARCHES = 12
SAME_CHANCE = 0.005
"""Routes this close in their chance count as equally accurate; the cheaper one is taken."""
_PURPOSES: Mapping[str, Purpose] = {"search": "query", "enhance_reasoning": "code", "answer": "answer", "ask": "answer"}


def _world(episode: Episode) -> QaWorld:
    if not isinstance(episode.world, QaWorld):
        raise ConfigError(f"the baselines play question worlds; {episode.task_id} is a {type(episode.world).__name__}")
    return episode.world


def _last_result(episode: Episode) -> str:
    last = episode.messages[-1]
    return str(last["content"]) if last["role"] == "tool" else ""


def _uses(episode: Episode, tool: Tool) -> int:
    return sum(episode.calls.get(key, 0) for key in tool.keys)


def _tool(episode: Episode, *kinds: str) -> Tool | None:
    return episode.world.toolbox.of_kind(*kinds)


class RandomPolicy:
    """Any tool with any arguments of its schema, evenly."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def __call__(self, episode: Episode) -> str:
        tool = self._rng.choice(episode.world.toolbox.tools)
        arguments: dict[str, str] = {}
        for name, schema in tool.checker.arguments.items():
            if "enum" in schema:
                arguments[name] = self._rng.choice(schema["enum"])
            elif name == "query":
                arguments[name] = _body(_world(episode).question.text)[:300]
            elif name == "answer":
                arguments[name] = _last_result(episode)[:200] or "unknown"
            elif name == "code":
                arguments[name] = f"print({self._rng.randint(0, 999)})"
        return render_call(tool.name, arguments)


def _body(question: str) -> str:
    return question.partition("\n")[2] or question


class Pipeline:
    """Always the same: search until nothing new comes, compute once, answer; each time with the model it likes best."""

    def __init__(self, best: Callable[[Episode, Offer, Purpose], float]) -> None:
        self._best = best

    def __call__(self, episode: Episode) -> str:
        last = _last_result(episode)
        search = _tool(episode, "search", "local_search", "web_search")
        if search is not None and _uses(episode, search) < self._searches(search, last, episode):
            return self._call(episode, search)
        code = _tool(episode, "enhance_reasoning")
        if code is not None and not _uses(episode, code):
            return self._call(episode, code)
        ask = _tool(episode, "ask")
        submit = _tool(episode, "submit")
        if submit is not None and (ask is None or _uses(episode, ask)):
            return render_call(submit.name, {"answer": last})
        ending = _tool(episode, "answer") or ask
        if ending is None:
            raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} ends the task")
        return self._call(episode, ending)

    @staticmethod
    def _searches(search: Tool, last: str, episode: Episode) -> int:
        if not search.offers:
            return 1  # its own query would be the question again
        done = last.startswith((NOTHING_NEW, NOTHING_MISSING)) or len(episode.messages) > 2 * MOST_SEARCHES + 2
        return 0 if done else MOST_SEARCHES

    def _call(self, episode: Episode, tool: Tool) -> str:
        if not tool.offers:
            return render_call(tool.name, {"query": _body(_world(episode).question.text)[:300]})
        purpose = _PURPOSES[tool.kind]
        offer = max(tool.offers, key=lambda o: self._best(episode, o, purpose))
        return render_call(tool.name, {"model": offer.alias})


def _cheapness(episode: Episode, offer: Offer, purpose: Purpose) -> float:
    skill = _world(episode).skills[offer.model]
    return -_usd(episode, offer, skill, purpose, 400)


def _strength(episode: Episode, offer: Offer, purpose: Purpose) -> float:
    skill = _world(episode).skills[offer.model]
    if purpose == "query":
        return skill.querying
    table = skill.coding if purpose == "code" else skill.answering
    return sum(table.values())


def _usd(episode: Episode, offer: Offer, skill: Skill, purpose: Purpose, input_tokens: int) -> float:
    tokens = Tokens(input_tokens, 0, skill.output_tokens[purpose])
    return episode.sheet.price(offer.model).nano_usd(Usage(offer.model, EXPERT, tokens)) / NANO


class Route(NamedTuple):
    """A way to the end from here: which program writer first, if any, and who answers."""

    keys: tuple[str, ...]
    chance: float
    usd: float
    seconds: float


@dataclass(frozen=True)
class Oracle:
    """Knows the question, its facts and everybody's skill. Takes the likeliest route, and of equals the cheapest; or,
    where a `value` is given, the route that it likes best."""

    value: Callable[[Episode, Route], float] | None = None

    def __call__(self, episode: Episode) -> str:
        world = _world(episode)
        shown = gathered(world)
        ask, submit = _tool(episode, "ask"), _tool(episode, "submit")
        if ask is not None and _uses(episode, ask) and submit is not None:
            return render_call(submit.name, {"answer": _last_result(episode)})
        if facts_in(world.question, shown) < 1.0 and (search := self._search(episode, world, shown)):
            return search
        routes = self.routes(episode)
        best = max(routes, key=lambda r: self._value(episode, r, routes))
        tool = next(t for t in episode.world.toolbox if best.keys[0] in t.keys)
        return render_call(tool.name, {"model": best.keys[0]})

    def _value(self, episode: Episode, route: Route, routes: Sequence[Route]) -> tuple[float, float]:
        if self.value is not None:
            return self.value(episode, route), -route.usd
        likeliest = max(r.chance for r in routes)
        return float(route.chance >= likeliest - SAME_CHANCE), -route.usd

    @staticmethod
    def _search(episode: Episode, world: QaWorld, shown: str) -> str:
        """The next search, or "" when there is nothing to search with."""
        missing = next(f for f in world.question.facts if f.sentence not in shown)
        plain = _tool(episode, "local_search", "web_search")
        if plain is not None:
            return render_call(plain.name, {"query": missing.query}) if episode.turn < MOST_PLANNED_SEARCHES else ""
        search = _tool(episode, "search")
        if search is None or _uses(episode, search) >= MOST_PLANNED_SEARCHES:
            return ""
        size = (len(shown) + len(world.question.text)) // CHARACTERS_PER_TOKEN

        def usd_per_success(offer: Offer) -> float:
            skill = world.skills[offer.model]
            return _usd(episode, offer, skill, "query", size) / query_chance(skill, world.question)

        return render_call(search.name, {"model": min(search.offers, key=usd_per_success).alias})

    def routes(self, episode: Episode) -> list[Route]:
        """Every way to end from here."""
        world = _world(episode)
        shown = gathered(world)
        size = (len(shown) + len(world.question.text)) // CHARACTERS_PER_TOKEN
        facts = facts_in(world.question, shown)
        computed = computed_in(world.question, shown)
        ending, code = _tool(episode, "answer", "ask"), _tool(episode, "enhance_reasoning")
        if ending is None:
            raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
        direct = [self._direct(episode, offer, size, facts, computed) for offer in ending.offers]
        if code is None or not world.question.computable or computed == "right" or _uses(episode, code) >= 2:
            return direct
        helped = [
            self._helped(episode, writer, offer, size, facts) for writer in code.offers for offer in ending.offers
        ]
        return direct + helped

    @staticmethod
    def _direct(episode: Episode, offer: Offer, size: int, facts: float, computed: str) -> Route:
        skill = _world(episode).skills[offer.model]
        chance = answer_chance(skill, _world(episode).question, facts, computed)
        return Route((offer.alias,), chance, _usd(episode, offer, skill, "answer", size), skill.seconds["answer"])

    def _helped(self, episode: Episode, writer: Offer, offer: Offer, size: int, facts: float) -> Route:
        skill = _world(episode).skills[writer.model]
        works = code_chance(skill, _world(episode).question, facts)
        ends = [self._direct(episode, offer, size, facts, state) for state in ("right", "wrong", "")]
        # Of programs that do not work half print something wrong and half print nothing.
        chance = works * ends[0].chance + (1 - works) * (ends[1].chance + ends[2].chance) / 2
        usd = _usd(episode, writer, skill, "code", size) + ends[0].usd
        seconds = skill.seconds["code"] + ends[0].seconds
        return Route((writer.alias, offer.alias), chance, usd, seconds)


def guess(episode: Episode) -> str:
    """Answers at once without any expert, with the likeliest-looking words there are: the floor of each world."""
    submit = _tool(episode, "submit")
    if submit is None:
        raise ConfigError('the guesser needs the plain tools: gym.make(..., tools="plain")')
    return render_call(submit.name, {"answer": _body(_world(episode).question.text).split()[-1]})


NAMES = ("random", "cheapest", "strongest", "oracle")


def players(source: TaskSource) -> tuple[str, ...]:
    """The baselines that can play a source's tasks: all of them where experts and questions are the embedded ones,
    whose skills and facts are known, else none."""
    embedded = isinstance(source, QaSource) and source.backing is None and source.rows is None
    return NAMES if embedded else ()


def baseline(name: str, seed: int = 0) -> Baseline:
    """A baseline by its name."""
    made: Mapping[str, Callable[[], Baseline]] = {
        "random": lambda: RandomPolicy(seed),
        "cheapest": lambda: Pipeline(_cheapness),
        "strongest": lambda: Pipeline(_strength),
        "oracle": Oracle,
        "guess": lambda: guess,
    }
    if name not in made:
        raise ConfigError(no_such("policy", name, made))
    return made[name]()
