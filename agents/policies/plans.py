"""Plans of a question: who searches, who computes, who answers. What the routers without a trained model choose among.

A plan names experts by what the agent is told of them: their note in the tool's description, or the alias where no note
is shown. So what was learnt holds where aliases are dealt out anew.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from toolorchestra.agents.policies.baselines import (
    body_of,
    last_result,
    searched,
    token_price,
    tool_of,
    uses,
)
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.tools import Offer, Tool

SEARCH = ("search", "local_search", "web_search")
CODE = ("enhance_reasoning",)
ANSWER = ("answer", "ask")
STAGES = {"search": SEARCH, "code": CODE, "answer": ANSWER}
OWN = "(own query)"
"""The searcher where the agent writes the query itself."""


class Plan(NamedTuple):
    """Who does what, by name; "" for nobody."""

    search: str
    code: str
    answer: str


def question_world(episode: Episode) -> QaWorld:
    """The world of a question. Only its question's text and subject are read here, which the agent is shown."""
    if not isinstance(episode.world, QaWorld):
        raise ConfigError(f"this player answers questions; {episode.task_id} is a {type(episode.world).__name__}")
    return episode.world


def asked(episode: Episode) -> str:
    """The text of the question that an episode asks."""
    return question_world(episode).question.text


def subject(episode: Episode) -> str:
    """Its subject, as reset()'s info shows it."""
    return question_world(episode).question.subject


def experts(tool: Tool | None) -> dict[str, Offer]:
    """A tool's experts by name."""
    if tool is None:
        return {}
    notes = Counter(offer.note for offer in tool.offers)

    def known_as(offer: Offer) -> str:
        told = offer.note and notes[offer.note] == 1 and offer.note in tool.description
        return offer.note if told else offer.alias

    return {known_as(offer): offer for offer in tool.offers}


def by_cost(episode: Episode, tool: Tool | None) -> list[str]:
    """A tool's experts, the cheapest first."""
    named = experts(tool)
    return sorted(named, key=lambda name: (token_price(episode, named[name]), name))


def plans(episode: Episode) -> list[Plan]:
    """Every expert as the answerer, alone and with helpers: the cheapest or the dearest searcher, and the cheapest or
    the dearest writer of programs."""
    answerers = by_cost(episode, tool_of(episode, *ANSWER))
    search = tool_of(episode, *SEARCH)
    own = [OWN] if search is not None and not search.offers else []
    searchers = ["", *own, *_ends(by_cost(episode, search))]
    coders = ["", *_ends(by_cost(episode, tool_of(episode, *CODE)))]
    return [Plan(s, c, a) for s in searchers for c in coders for a in answerers]


def _ends(names: list[str]) -> list[str]:
    """The first and the last."""
    return list(dict.fromkeys([*names[:1], *names[-1:]]))


def can_follow(plan: Plan, episode: Episode) -> bool:
    """Whether everybody in a plan is there."""
    search = tool_of(episode, *SEARCH)
    searchers = {"": None, OWN: None} if search and not search.offers else {"": None, **experts(search)}
    coders = {"": None, **experts(tool_of(episode, *CODE))}
    return plan.search in searchers and plan.code in coders and plan.answer in experts(tool_of(episode, *ANSWER))


def follow(plan: Plan, episode: Episode) -> str:
    """The next move of a plan: search until nothing new comes, compute once, answer."""
    search, code, answer = (tool_of(episode, *kinds) for kinds in (SEARCH, CODE, ANSWER))
    if answer is None:
        raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
    if plan.search and search is not None and not searched(episode, search):
        return call(episode, search, plan.search)
    if plan.code and code is not None and not uses(episode, code):
        return call(episode, code, plan.code)
    return ended(episode, answer) or call(episode, answer, plan.answer)


def ended(episode: Episode, answer: Tool) -> str:
    """The submission of what was answered, where answering does not end the task; "" before."""
    submit = tool_of(episode, "submit")
    if answer.kind != "ask" or submit is None or not uses(episode, answer):
        return ""
    return render_call(submit.name, {"answer": last_result(episode)})


def call(episode: Episode, tool: Tool, name: str) -> str:
    """A call of an expert by its name, or with the agent's own query."""
    if not tool.offers:
        return render_call(tool.name, {"query": body_of(asked(episode))[:300]})
    return render_call(tool.name, {"model": experts(tool)[name].alias})
