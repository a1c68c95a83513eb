"""The policies that every learned one is compared with: random, cheapest, strongest, always, a cascade, and the oracle
(in oracle.py).

A baseline reads the episode and writes the next action. Cheapest and strongest know the skill table; the others use
what an agent may see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from toolorchestra.agents.policies.plans import (
    ANSWER,
    CODE,
    OWN,
    SEARCH,
    Follows,
    Plan,
    answering,
    body_of,
    by_cost,
    call,
    ended,
    last_result,
    question_world,
    results,
    searched,
    token_price,
    tool_of,
    uses,
)
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such, one_of
from toolorchestra.envs.base.random_values import random_value
from toolorchestra.envs.domains.questions.datasets import NO_SUBJECT
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import RESULT_MARK
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage
from toolorchestra.envs.tools import Offer, Tool

Baseline = Callable[[Episode], str]
Likes = Callable[[Episode, Offer, Purpose], float]
"""How well an expert is liked for a purpose."""
NAMES = ("random", "cheapest", "strongest", "oracle")
PREFIX = "always:"
HABITUAL = 0.4
"""How often a random play with habits does what its subject's habit is."""


class RandomPolicy:
    """Any tool with any arguments of its schema, evenly.

    One with `habits` takes what the user's sentence asks for as often as all else. And each subject of questions has a
    habit, which by these habits' name is any tool and any expert: it is taken two times of five."""

    def __init__(self, seed: int = 0, habits: str = "") -> None:
        self._rng, self._habits = random.Random(seed), habits

    def __call__(self, episode: Episode) -> str:
        any_of = partial(self._any, wished_for(episode) if self._habits else (), self._habit(episode))
        tools = {one.name: one for one in episode.world.toolbox}
        tool = tools[any_of(list(tools))]
        arguments: dict[str, Any] = {}
        for name, schema in tool.checker.arguments.items():
            if "enum" in schema:
                arguments[name] = any_of(schema["enum"])
            elif name == "query":
                arguments[name] = body_of(question_world(episode).question.text)[:300]
            elif name == "answer":
                arguments[name] = last_result(episode)[:200] or "unknown"
            elif name == "code":
                arguments[name] = f"print({self._rng.randint(0, 999)})"
        if any(name not in arguments for name in tool.parameters.get("required", ())):  # a tool of another world
            arguments = {**random_value(tool.parameters, self._rng), **arguments}
        return render_call(tool.name, arguments)

    def _habit(self, episode: Episode) -> str:
        """The name of its habit with questions of this subject."""
        subject = episode.world.question.subject if isinstance(episode.world, QaWorld) else NO_SUBJECT
        return f"{self._habits}/{subject}" if self._habits and subject != NO_SUBJECT else ""

    def _any(self, wished: Collection[str], habit: str, options: Sequence[Any]) -> Any:
        if habit and self._rng.random() < HABITUAL:
            return max(options, key=lambda one: random.Random(f"{habit}/{one}").random())
        named = [one for one in options if isinstance(one, str) and one in wished]
        return self._rng.choice(named if named and self._rng.random() < 0.5 else options)


def wished_for(episode: Episode) -> Collection[str]:
    """What a sentence asks to be called: the tools and experts that it names. Who wants to save, or is in a hurry, asks
    for each other tool's cheapest expert, or for the soonest; and for these tools, where other tools have no experts
    and the sentence names none."""
    preference, wished = episode.preference, set(episode.preference.tools)
    tools = list(episode.world.toolbox)
    offering = [tool for tool in tools if tool.offers]
    others = [tool for tool in offering if not any(offer.alias in wished for offer in tool.offers)]
    for tool in others:
        if preference.usd >= 1:
            wished.add(min(tool.offers, key=lambda offer: token_price(episode, offer)).alias)
        if preference.seconds >= 1:
            wished.add(min(tool.offers, key=lambda offer: offer.seconds).alias)
    if len(others) == len(offering) < len(tools) and max(preference.usd, preference.seconds) >= 1:
        wished.update(tool.name for tool in offering)
    return wished


# -- plans of experts that are liked best ------------------------------------------------------------------------------


def liking(likes: Likes) -> Follows:
    """Always the same: search until nothing new comes, compute once, answer; each time with the expert liked best."""

    def plan(episode: Episode) -> Plan:
        def best(kinds: Sequence[str], purpose: Purpose) -> str:
            tool = tool_of(episode, *kinds)
            if tool is None:
                return ""
            return max(tool.offers, key=lambda offer: likes(episode, offer, purpose)).alias if tool.offers else OWN

        return Plan(best(SEARCH, "query"), best(CODE, "code"), best(ANSWER, "answer"))

    return Follows(plan)


def _cheapness(episode: Episode, offer: Offer, purpose: Purpose) -> float:
    skill = question_world(episode).skills[offer.model]
    tokens = Tokens(400, 0, round(skill.output_tokens[purpose]))
    return -episode.sheet.price(offer.model).nano_usd(Usage(offer.model, EXPERT, tokens)) / NANO


def _strength(episode: Episode, offer: Offer, purpose: Purpose) -> float:
    skill = question_world(episode).skills[offer.model]
    if purpose == "query":
        return skill.querying
    table = skill.coding if purpose == "code" else skill.answering
    return sum(table.values())


# -- one expert alone, a cascade ---------------------------------------------------------------------------------------


def always(alias: str) -> Baseline:
    """Asks the expert behind an alias at once, and hands in what it says: recorded so, each expert is seen alone. Where
    an expert writes the turns of a conversation, it writes them all."""

    def rule(episode: Episode) -> str:
        tool = tool_of(episode, *ANSWER) or next((one for one in episode.world.toolbox if one.offers), None)
        if tool is None or alias not in tool.keys:
            raise ConfigError(no_such("expert to ask", alias, tool.keys if tool is not None else ()))
        submit = tool_of(episode, "submit")
        if submit is not None and uses(episode, tool):
            return render_call(submit.name, {"answer": last_result(episode)})
        return render_call(tool.name, {tool.keyed_by: alias})

    return rule


def always_refusal(name: str, factory: EpisodeFactory) -> str:
    """Why it cannot play a factory's episodes, or ""."""
    alias, source = name.removeprefix(PREFIX), factory.source
    if isinstance(source, QaSource):
        offered = [offer.alias for entry in source.config.tools if entry.kind in ANSWER for offer in entry.offers]
    else:
        tools = factory.start(0).episode.world.toolbox
        offered = [offer.alias for one in tools for offer in one.offers]
    if alias in offered:
        return ""
    return f"policy {name!r} asks one expert for the answer; {no_such('expert to ask', alias, offered)}"


def cascade(episode: Episode) -> str:
    """The next move of a cascade as in FrugalGPT (arXiv 2305.05176): from the cheap to the expensive by a stated rule.

    The cheapest searcher searches until nothing new comes; where experts can be asked, they are asked from the cheapest
    up until two give the same answer; where asking ends the task, programs are written from the cheapest writer up
    until two print the same; then the cheapest expert answers if they agreed, and the most expensive if not.
    """
    answer = answering(episode)
    search, code = tool_of(episode, *SEARCH), tool_of(episode, *CODE)
    if search is not None and not searched(episode, search):
        return call(episode, search, next(iter(by_cost(episode, search)), OWN))
    if answer.kind == "ask":
        return _asked_upwards(episode, answer)
    printed = [text for text in results(episode) if text.startswith(RESULT_MARK)]
    agreed = len(set(printed)) < len(printed)
    writers = by_cost(episode, code)
    if code is not None and not agreed and uses(episode, code) < len(writers):
        return call(episode, code, writers[uses(episode, code)])
    answerers = by_cost(episode, answer)
    return call(episode, answer, answerers[0] if agreed else answerers[-1])


def _asked_upwards(episode: Episode, answer: Tool) -> str:
    """Ask from the cheapest up until two agree; what the last one said is submitted."""
    given = list(results(episode))[-uses(episode, answer) :] if uses(episode, answer) else []
    answerers = by_cost(episode, answer)
    if len(given) < len(answerers) and len({text.strip().lower() for text in given}) == len(given):
        return call(episode, answer, answerers[len(given)])
    return ended(episode, answer) or last_result(episode)


# -- by name -----------------------------------------------------------------------------------------------------------


def players(source: TaskSource) -> tuple[str, ...]:
    """The baselines that can play a source's tasks: all of them where experts and questions are the embedded ones,
    whose skills and facts are known, else none."""
    embedded = isinstance(source, QaSource) and source.backing is None and source.rows is None
    return NAMES if embedded else ()


def baseline(name: str, seed: int = 0) -> Baseline:
    """A baseline by its name."""
    from toolorchestra.agents.policies.oracle import Oracle

    made: Mapping[str, Callable[[], Baseline]] = {
        "random": lambda: RandomPolicy(seed),
        "cheapest": lambda: liking(_cheapness),
        "strongest": lambda: liking(_strength),
        "oracle": Oracle,
        "told-oracle": lambda: Oracle(is_told=True),
        "task-oracle": lambda: Oracle(knows_luck=True),
        "cheap": lambda: liking(lambda episode, offer, _: -token_price(episode, offer)),
        "expensive": lambda: liking(lambda episode, offer, _: token_price(episode, offer)),
        "cascade": lambda: cascade,
    }
    one_of("policy", name, made)
    return made[name]()
