"""The policies that every learned one is held against: random, cheapest, strongest, and the oracle (in oracle.py).

A baseline reads the episode and writes the next action. The first three use what an agent may see, and the skill table
to know who is strong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.random_values import random_value
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import Skill
from toolorchestra.envs.money.prices import EXPERT, NANO, Tokens, Usage
from toolorchestra.envs.tools import Offer, Tool
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

Baseline = Callable[[Episode], str]
MOST_SEARCHES = 6
_PURPOSES: Mapping[str, Purpose] = {"search": "query", "enhance_reasoning": "code", "answer": "answer", "ask": "answer"}


def _world(episode: Episode) -> QaWorld:
    if not isinstance(episode.world, QaWorld):
        raise ConfigError(f"the baselines play question worlds; {episode.task_id} is a {type(episode.world).__name__}")
    return episode.world


def last_result(episode: Episode) -> str:
    """What the last turn's call gave, "" when there was none."""
    last = episode.messages[-1]
    return str(last["content"]) if last["role"] == "tool" else ""


def uses(episode: Episode, tool: Tool) -> int:
    """How often a tool was called."""
    return sum(episode.calls.get(key, 0) for key in tool.keys)


def results(episode: Episode) -> Iterator[str]:
    """What the calls so far gave."""
    return (str(message["content"]) for message in episode.messages if message["role"] == "tool")


def searched(episode: Episode, search: Tool) -> bool:
    """Whether searching is over: the agent's own query is asked once, an expert's until nothing new comes."""
    times = uses(episode, search)
    if not search.offers or times >= MOST_SEARCHES:
        return times > 0
    return times > 0 and any(text.startswith((NOTHING_NEW, NOTHING_MISSING)) for text in results(episode))


def tool_of(episode: Episode, *kinds: str) -> Tool | None:
    """The tool of the first of these kinds that there is."""
    return episode.world.toolbox.of_kind(*kinds)


class RandomPolicy:
    """Any tool with any arguments of its schema, evenly."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def __call__(self, episode: Episode) -> str:
        tool = self._rng.choice(episode.world.toolbox.tools)
        arguments: dict[str, Any] = {}
        for name, schema in tool.checker.arguments.items():
            if "enum" in schema:
                arguments[name] = self._rng.choice(schema["enum"])
            elif name == "query":
                arguments[name] = body_of(_world(episode).question.text)[:300]
            elif name == "answer":
                arguments[name] = last_result(episode)[:200] or "unknown"
            elif name == "code":
                arguments[name] = f"print({self._rng.randint(0, 999)})"
        if any(name not in arguments for name in tool.parameters.get("required", ())):  # a tool of another world
            arguments = {**random_value(tool.parameters, self._rng), **arguments}
        return render_call(tool.name, arguments)


def body_of(question: str) -> str:
    """The question without its first line, which names its subject."""
    return question.partition("\n")[2] or question


class Pipeline:
    """Always the same: search until nothing new comes, compute once, answer; each time with the model it likes best."""

    def __init__(self, best: Callable[[Episode, Offer, Purpose], float]) -> None:
        self._best = best

    def __call__(self, episode: Episode) -> str:
        search = tool_of(episode, "search", "local_search", "web_search")
        if search is not None and not searched(episode, search):
            return self._call(episode, search)
        code = tool_of(episode, "enhance_reasoning")
        if code is not None and not uses(episode, code):
            return self._call(episode, code)
        ask = tool_of(episode, "ask")
        submit = tool_of(episode, "submit")
        if submit is not None and (ask is None or uses(episode, ask)):
            return render_call(submit.name, {"answer": last_result(episode)})
        ending = tool_of(episode, "answer") or ask
        if ending is None:
            raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} ends the task")
        return self._call(episode, ending)

    def picks(self, episode: Episode) -> dict[str, str]:
        """By kind of tool, the expert that it calls."""
        tools = [tool for tool in episode.world.toolbox if tool.offers and tool.kind in _PURPOSES]
        return {tool.kind: self._liked(episode, tool).alias for tool in tools}

    def _liked(self, episode: Episode, tool: Tool) -> Offer:
        purpose = _PURPOSES[tool.kind]
        return max(tool.offers, key=lambda offer: self._best(episode, offer, purpose))

    def _call(self, episode: Episode, tool: Tool) -> str:
        if not tool.offers:
            return render_call(tool.name, {"query": body_of(_world(episode).question.text)[:300]})
        return render_call(tool.name, {"model": self._liked(episode, tool).alias})


def by_price(sign: float) -> Callable[[Episode, Offer, Purpose], float]:
    """Likes the dearest model best, or with a negative sign the cheapest; it looks at prices alone."""

    def prefers(episode: Episode, offer: Offer, _purpose: Purpose) -> float:
        return sign * token_price(episode, offer)

    return prefers


def token_price(episode: Episode, offer: Offer) -> float:
    """What a token in and one out cost, in pico-dollars."""
    rate = episode.sheet.price(offer.model).pico_usd_per_token or (0, 0, 0, 0)
    return float(rate[0] + rate[2])


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
    tokens = Tokens(input_tokens, 0, round(skill.output_tokens[purpose]))
    return episode.sheet.price(offer.model).nano_usd(Usage(offer.model, EXPERT, tokens)) / NANO


def guess(episode: Episode) -> str:
    """Answers at once without any expert, with the likeliest-looking words there are: the floor of each world."""
    submit = tool_of(episode, "submit")
    if submit is None:
        raise ConfigError('the guesser needs the plain tools: gym.make(..., tools="plain")')
    return render_call(submit.name, {"answer": body_of(_world(episode).question.text).split()[-1]})


NAMES = ("random", "cheapest", "strongest", "oracle")


def players(source: TaskSource) -> tuple[str, ...]:
    """The baselines that can play a source's tasks: all of them where experts and questions are the embedded ones,
    whose skills and facts are known, else none."""
    embedded = isinstance(source, QaSource) and source.backing is None and source.rows is None
    return NAMES if embedded else ()


def _oracle(*, knows_luck: bool = False) -> Baseline:
    from toolorchestra.agents.policies.oracle import Oracle  # it is made of what stands here

    return Oracle(knows_luck=knows_luck)


def baseline(name: str, seed: int = 0) -> Baseline:
    """A baseline by its name."""
    made: Mapping[str, Callable[[], Baseline]] = {
        "random": lambda: RandomPolicy(seed),
        "cheapest": lambda: Pipeline(_cheapness),
        "strongest": lambda: Pipeline(_strength),
        "oracle": _oracle,
        "task-oracle": lambda: _oracle(knows_luck=True),
        "guess": lambda: guess,
    }
    if name not in made:
        raise ConfigError(no_such("policy", name, made))
    return made[name]()
