"""Plans through a question: who searches, who computes, who answers, and how long each goes on.

Fixed rules, knn and skillbook, and the planned warm start all play plans. The move of a plan follows from the episode
alone, so a plan is nothing but data.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.tools import Offer, Tool
from toolorchestra.envs.tools.code import PRINTED
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

SEARCH = ("search", "local_search", "web_search")
CODE = ("enhance_reasoning",)
ANSWER = ("answer", "ask")
STAGES = {"search": SEARCH, "code": CODE, "answer": ANSWER}
OWN = "(own query)"
"""The searcher where the agent writes the query itself."""
UNTIL_NOTHING_NEW = -2
"""Mark in place of a number of searches: until one brings nothing new, MOST_SEARCHES at most."""
UNTIL_NOTHING_MISSING = -1
"""Mark in place of a number of searches: until the searcher says that nothing is missing, PATIENCE at most."""
UNTIL_PRINTED = -1
"""Mark in place of a number of programs: until one prints something, MOST_PROGRAMS at most."""
BROUGHT_NOTHING = (NOTHING_NEW, NOTHING_MISSING, "Error: ")
"""What the result of a search begins with that brought nothing."""
MOST_SEARCHES, PATIENCE, MOST_PROGRAMS = 6, 7, 3


class Plan(NamedTuple):
    """A plan: who does what; "" for nobody. An expert is named by the alias, or by the note that the agent is shown."""

    search: str
    code: str
    answer: str
    searches: int = UNTIL_NOTHING_NEW
    """How many searches that bring something new, or until when. One that brings nothing new does not count: its query
    was a poor one. When nothing is missing, searching ends in any case."""
    programs: int = 1
    """How many programs, or UNTIL_PRINTED."""
    besides: tuple[str, ...] = ()
    """Experts who are called besides, because the user favours them, each as often as it stands here: who searches
    before the other searches, who writes programs before the other programs."""


# -- what an agent sees ------------------------------------------------------------------------------------------------


def question_world(episode: Episode) -> QaWorld:
    """The world of a question. Only its question's text and subject are read here, which the agent is shown."""
    if not isinstance(episode.world, QaWorld):
        raise ConfigError(f"the baselines play question worlds; {episode.task_id} is a {type(episode.world).__name__}")
    return episode.world


def asked(episode: Episode) -> str:
    """The text of the question that an episode asks."""
    return question_world(episode).question.text


def body_of(question: str) -> str:
    """The question without its first line, which names its subject."""
    return question.partition("\n")[2] or question


def tool_of(episode: Episode, *kinds: str) -> Tool | None:
    """The tool of the first of these kinds that there is."""
    return episode.world.toolbox.of_kind(*kinds)


def answering(episode: Episode) -> Tool:
    """The tool that asks an expert for the answer."""
    found = tool_of(episode, *ANSWER)
    if found is None:
        raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
    return found


def uses(episode: Episode, tool: Tool) -> int:
    """How often a tool was called."""
    return sum(episode.calls.get(key, 0) for key in tool.keys)


def results(episode: Episode, tool: Tool | None = None) -> Iterator[str]:
    """What the calls so far gave: all of them, or those of a tool."""
    for message in episode.messages:
        if message["role"] == "tool" and (tool is None or message.get("name") == tool.name):
            yield str(message["content"])


def last_result(episode: Episode) -> str:
    """What the last turn's call gave, "" when there was none."""
    last = episode.messages[-1]
    return str(last["content"]) if last["role"] == "tool" else ""


def searched(episode: Episode, search: Tool) -> bool:
    """Whether searching is over: the agent's own query is asked once, an expert's until nothing new comes."""
    times = uses(episode, search)
    if not search.offers or times >= MOST_SEARCHES:
        return times > 0
    return times > 0 and any(text.startswith((NOTHING_NEW, NOTHING_MISSING)) for text in results(episode))


def experts(tool: Tool | None) -> dict[str, Offer]:
    """A tool's experts by name: the note where one is shown and no other has it, else the alias. So what was learnt
    holds where aliases are dealt out anew."""
    if tool is None:
        return {}
    notes = Counter(offer.note for offer in tool.offers)

    def known_as(offer: Offer) -> str:
        told = offer.note and notes[offer.note] == 1 and offer.note in tool.description
        return offer.note if told else offer.alias

    return {known_as(offer): offer for offer in tool.offers}


def token_price(episode: Episode, offer: Offer) -> float:
    """What a token in and one out cost, in pico-dollars."""
    rate = episode.sheet.price(offer.model).pico_usd_per_token or (0, 0, 0, 0)
    return float(rate[0] + rate[2])


def by_cost(episode: Episode, tool: Tool | None) -> list[str]:
    """A tool's experts, the cheapest first."""
    named = experts(tool)
    return sorted(named, key=lambda name: (token_price(episode, named[name]), name))


# -- plans to choose from ----------------------------------------------------------------------------------------------


def plans(episode: Episode) -> list[Plan]:
    """Every expert as the answerer, alone and with helpers: the cheapest or the most expensive searcher, and the
    cheapest or the most expensive writer of programs."""
    answerers = by_cost(episode, tool_of(episode, *ANSWER))
    search = tool_of(episode, *SEARCH)
    own = [OWN] if search is not None and not search.offers else []
    searchers = ["", *own, *_ends(by_cost(episode, search))]
    coders = ["", *_ends(by_cost(episode, tool_of(episode, *CODE)))]
    return [Plan(s, c, a) for s in searchers for c in coders for a in answerers]


def _ends(names: list[str]) -> list[str]:
    """The first and the last."""
    return list(dict.fromkeys([*names[:1], *names[-1:]]))


def random_plan(episode: Episode, rng: random.Random) -> Plan:
    """One expert of each tool, picked at random whatever the question. A third of the plans search until a random
    number of searches brought something new, the others until nothing is missing. Three of four let programs be
    written, and half of these go on until one prints something."""
    searches = UNTIL_NOTHING_MISSING if rng.random() < 0.65 else rng.randint(0, 5)
    computes = rng.random() < 0.75
    picked = {tool.kind: rng.choice(tool.keys) for tool in episode.world.toolbox}
    code = picked.get(CODE[0], "") if computes else ""
    programs = (UNTIL_PRINTED if rng.random() < 0.5 else 1) if code else 0
    return Plan(picked.get(SEARCH[0], ""), code, picked[answering(episode).kind], searches, programs)


def can_follow(plan: Plan, episode: Episode) -> bool:
    """Whether everybody in a plan is there."""
    search = tool_of(episode, *SEARCH)
    searchers = {"": None, OWN: None} if search and not search.offers else {"": None, **experts(search)}
    coders = {"": None, **experts(tool_of(episode, *CODE))}
    return plan.search in searchers and plan.code in coders and plan.answer in experts(tool_of(episode, *ANSWER))


# -- following one -----------------------------------------------------------------------------------------------------


class Follows:
    """Plays a plan that is chosen at the first turn of an episode."""

    def __init__(self, choose: Callable[[Episode], Plan]) -> None:
        self.choose = choose
        self._episode: Episode | None = None
        self._plan = Plan("", "", "")

    def __call__(self, episode: Episode) -> str:
        if episode is not self._episode:
            self._episode, self._plan = episode, self.choose(episode)
        return follow(self._plan, episode)


def follow(plan: Plan, episode: Episode) -> str:
    """The next move of a plan: search, then programs, then the answer. A plan that counts its searches answers when the
    turns come to their end."""
    search, code, answer = (tool_of(episode, *kinds) for kinds in (SEARCH, CODE, ANSWER))
    writer = _writer(plan, episode, code) if code is not None else ""
    hurried = plan.searches != UNTIL_NOTHING_NEW
    left = episode.rules.limits.turns - episode.turn if hurried else 3
    if search is not None and left > 1 + bool(writer) and (searcher := _searcher(plan, episode, search)):
        return call(episode, search, searcher)
    if code is not None and writer and left > 1:
        return call(episode, code, writer)
    return ended(episode, answer) or call(episode, answering(episode), plan.answer)


def _searcher(plan: Plan, episode: Episode, search: Tool) -> str:
    """The one who is to search now; "" where searching is over."""
    if favoured := _besides(plan, episode, search):
        return favoured
    if plan.searches == UNTIL_NOTHING_NEW:
        return "" if not plan.search or searched(episode, search) else plan.search
    texts = list(results(episode, search))
    found = sum(not text.startswith(BROUGHT_NOTHING) for text in texts)
    over = found == plan.searches or any(text.startswith(NOTHING_MISSING) for text in texts)
    own = len(texts) - sum(plan.besides.count(alias) for alias in search.keys)
    return "" if over or own >= PATIENCE else plan.search


def _writer(plan: Plan, episode: Episode, code: Tool) -> str:
    """The one who is to write a program now; "" where no more are wanted."""
    if favoured := _besides(plan, episode, code):
        return favoured
    own = uses(episode, code) - sum(plan.besides.count(alias) for alias in code.keys)
    if plan.programs != UNTIL_PRINTED:
        return plan.code if own < plan.programs else ""
    printed = any(text.startswith(PRINTED) for text in results(episode, code))
    return "" if printed or own >= MOST_PROGRAMS else plan.code


def _besides(plan: Plan, episode: Episode, tool: Tool) -> str:
    """The expert of a tool who is to be called besides now; "" for nobody."""
    calls = episode.calls
    return next((a for a in plan.besides if a in tool.keys and calls.get(a, 0) < plan.besides.count(a)), "")


def ended(episode: Episode, answer: Tool | None) -> str:
    """The submission of what was answered, or without an answerer of what was found; "" where answering ends the task,
    and before it."""
    submit = tool_of(episode, "submit")
    if submit is None or (answer is not None and (answer.kind != "ask" or not uses(episode, answer))):
        return ""
    return render_call(submit.name, {"answer": last_result(episode)})


def call(episode: Episode, tool: Tool, name: str) -> str:
    """A call of an expert by its name, or with the agent's own query."""
    if not tool.offers:
        return render_call(tool.name, {"query": body_of(asked(episode))[:300]})
    return render_call(tool.name, {"model": name if name in tool.keys else experts(tool)[name].alias})
