"""Simulated experts as recordings of real ones are: tasks that are hard for all, luck, long tails, answers that fail.

    success of a call  =  skill[family] - level - task + pair + chance  >  0

`task` is one number for a question and the same for all experts, so that errors are common. `pair` is one for each
expert with a question, so that asking the same expert again helps less than asking another. `chance` is new in each
call and has deviation 1. All are normal; their sizes are in the law, which a fit of recorded outcomes gives
(docs/calibrate.md).

Tokens and seconds are log-normal, tied to each other, and longer where the task is hard. Some calls end without an
answer after the law's limit (the agent is told, and the seconds and tokens are billed), and some answers are refusals.

Everything is drawn from hashes, as in simulated.py: the same call gives the same reply in any process. SIMULATED.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, get_type_hints

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.models.simulated import FLOOR, MISLED, Draws, SimulatedModels, drawn_reply
from toolorchestra.envs.money.prices import Tokens, Usage

_NORMAL = NormalDist()
_KNOWN = 1 << 16
"""Latent numbers that are kept."""
REFUSAL = "I cannot help with this request."


class Spread(NamedTuple):
    """How a length varies: deviations of its natural logarithm."""

    task: float
    pair: float
    run: float
    with_difficulty: float
    """Correlation of the task's part with its difficulty."""

    def mean(self, stretch: float = 1.0) -> float:
        """The mean over the median."""
        return math.exp(stretch**2 * (self.task**2 + self.pair**2 + self.run**2) / 2)


@dataclass(frozen=True)
class Law:
    """What all experts of a world have in common."""

    level: float
    """What one level of a question's difficulty takes from the skill."""
    middle: float
    """The level at which skills are given."""
    task: float
    """Deviation of the difficulty that the level does not tell."""
    pair: float
    """Deviation of an expert's luck with a question."""
    search: float
    """The share of `level`, `task` and `pair` that makes writing a search query hard."""
    computed: float
    """What a right computed result in view adds to the skill."""
    tokens: Spread
    seconds: Spread
    together: float
    """Correlation of tokens and seconds within each part."""
    limit_seconds: float
    """A call that would take longer ends then, without an answer."""
    refusals: float
    """Share of the answers that are refusals."""
    source: str = ""
    """Where the numbers come from."""


@dataclass(frozen=True)
class FittedSkill:
    """One expert under a law. Its numbers are in deviations of the chance of one call."""

    name: str
    law: Law
    answering: Mapping[str, float]
    """By question family, at the law's middle level."""
    coding: Mapping[str, float]
    querying: float
    median_tokens: Mapping[Purpose, float]
    median_seconds: Mapping[Purpose, float]
    reasons: bool
    stretch: float = 1.0
    """How widely its lengths spread, by the law's deviations."""
    knows_luck: bool = True
    """Whether chances are told as they are for this very question and expert, or, for planners that know skills alone,
    on average over questions of its family and level."""

    def answer_chance(self, question: Question, facts_shown: float, computed: str) -> float:
        """The chance of a right answer: see simulated.answer_chance()."""
        if facts_shown < 1.0:
            return FLOOR * facts_shown
        helped = self.law.computed if computed == "right" else 0.0
        chance = (1 - self.law.refusals) * self._chance(self.answering[question.family] + helped, question, 1.0)
        return chance * MISLED if computed == "wrong" else chance

    def code_chance(self, question: Question, facts_shown: float) -> float:
        """The chance that the written program prints the right result."""
        if not question.computable or facts_shown < 1.0:
            return 0.0
        return self._chance(self.coding[question.family], question, 1.0)

    def query_chance(self, question: Question) -> float:
        """The chance of a query that finds the next missing fact."""
        return max(FLOOR, self._chance(self.querying, question, self.law.search))

    def _chance(self, skill: float, question: Question, share: float) -> float:
        law = self.law
        clear = skill - share * law.level * (question.difficulty - law.middle)
        task, pair = share * law.task, share * law.pair
        if not self.knows_luck:
            return _NORMAL.cdf(clear / math.sqrt(1 + task**2 + pair**2))
        return _NORMAL.cdf(clear - task * latent("task", question.text) + pair * latent(self.name, question.text))

    @property
    def output_tokens(self) -> Mapping[Purpose, float]:
        """What planners expect of a reply: the mean."""
        mean = self.law.tokens.mean(self.stretch)
        return {purpose: value * mean for purpose, value in self.median_tokens.items()}

    @property
    def seconds(self) -> Mapping[Purpose, float]:
        """The same of its time."""
        mean = self.law.seconds.mean(self.stretch)
        return {purpose: value * mean for purpose, value in self.median_seconds.items()}

    @property
    def strength(self) -> float:
        """In answering, over all families."""
        return sum(self.answering.values())

    def lengths(self, purpose: Purpose, question: Question, draws: Draws) -> tuple[int, float]:
        """Tokens and seconds of one reply."""
        hard, tokens_task, tokens_pair, seconds_task, seconds_pair = _luck(self.name, question.text)
        of_tokens = tokens_task, tokens_pair, normal(draws.uniform())
        own = seconds_task, seconds_pair, normal(draws.uniform())
        tie, rest = self.law.together, math.sqrt(1 - self.law.together**2)
        of_seconds = [tie * one + rest * other for one, other in zip(of_tokens, own, strict=True)]
        tokens = self.median_tokens[purpose] * self._times(self.law.tokens, hard, *of_tokens)
        seconds = self.median_seconds[purpose] * self._times(self.law.seconds, hard, *of_seconds)
        return max(1, round(tokens)), round(seconds, 3)

    def _times(self, spread: Spread, hard: float, task: float, pair: float, run: float) -> float:
        """How many times the median."""
        tied = spread.with_difficulty
        of_task = tied * hard + math.sqrt(1 - tied**2) * task
        return math.exp(self.stretch * (spread.task * of_task + spread.pair * pair + spread.run * run))

    def without_luck(self) -> FittedSkill:
        """For a planner that knows skills, and not how a question suits whom."""
        return replace(self, knows_luck=False)


def normal(uniform: float) -> float:
    """A normal number of a uniform one."""
    return _NORMAL.inv_cdf(min(max(uniform, 1e-9), 1 - 1e-9))


@lru_cache(maxsize=_KNOWN)
def latent(of: str, text: str) -> float:
    """The normal number that a question has with somebody or something, the same for ever."""
    digest = hashlib.blake2b(f"{of}\x1f{text}".encode(), digest_size=8).digest()
    return normal((int.from_bytes(digest, "big") + 0.5) / 2**64)


@lru_cache(maxsize=_KNOWN)
def _luck(name: str, text: str) -> tuple[float, float, float, float, float]:
    """How hard a question is, and what it has with the lengths of replies and of this expert's: tokens and seconds."""
    return (
        latent("task", text),
        latent("tokens", text),
        latent(f"tokens {name}", text),
        latent("seconds", text),
        latent(f"seconds {name}", text),
    )


class FittedModels(SimulatedModels):
    """Every expert of a world, as one backend."""

    def __init__(self, table: Mapping[str, FittedSkill]) -> None:
        super().__init__(table)  # type: ignore[arg-type]

    async def complete(self, request: ChatRequest) -> Completion:
        """Write a query, a program or an answer; or take too long, or refuse."""
        reply = drawn_reply(self, request)
        skill: Any = self.skill(request.model)
        law, usage = skill.law, reply.usage
        if usage.seconds > law.limit_seconds:
            share = law.limit_seconds / usage.seconds
            request.bill.add(_cut(usage, share, law.limit_seconds))
            raise ToolError(f"{request.model} gave no answer within {law.limit_seconds:g} s")
        if request.purpose == "answer" and _refuses(request, law.refusals):
            return Completion(REFUSAL, usage)
        return reply


def _cut(usage: Usage, share: float, seconds: float) -> Usage:
    """What was used until then."""
    tokens = usage.tokens
    made = Tokens(tokens.input, tokens.cached, round(tokens.output * share), round(tokens.reasoning * share))
    return usage._replace(tokens=made, seconds=seconds)


def _refuses(request: ChatRequest, share: float) -> bool:
    """One number for a model with a question in an episode: asking again there is refused again."""
    assert request.truth is not None
    text = f"refusal\x1f{request.seed}\x1f{request.model}\x1f{request.truth.text}"
    drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
    return drawn / 2**32 < share


# -- files -------------------------------------------------------------------------------------------------------------


@cache
def packaged(world: str) -> Mapping[str, FittedSkill]:
    """The experts of a packaged world."""
    source = resources.files("toolorchestra.envs") / "data" / "models" / f"world-{world}.json"
    return read_world(json.loads(source.read_text(encoding="utf-8")), f"world {world}")


def read_file(path: str | Path) -> Mapping[str, FittedSkill]:
    """The experts of a world file: {"law": {...}, "models": {name: {...}}}."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as err:
        raise ConfigError(f'a world file {{"law": {{...}}, "models": {{...}}}} expected at {path} ({err})') from None
    return read_world(data, str(path))


def read_world(data: Any, where: str) -> Mapping[str, FittedSkill]:
    """The experts of a world."""
    try:
        given = dict(data["law"])
        law = Law(**{**given, **{name: Spread(**given[name]) for name in ("tokens", "seconds")}})
        made = {name: FittedSkill(name, law, **row) for name, row in data["models"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as err:
        raise ConfigError(
            f'{where}: {{"law": {{{", ".join(f.name for f in fields(Law))}}}, "models": {{name: '
            f"{{answering, coding, querying, median_tokens, median_seconds, reasons}}}}}} expected ({err})"
        ) from None
    _check(law, made, where)
    return made


def _check(law: Law, made: Mapping[str, FittedSkill], where: str) -> None:
    families, purposes = set(_families()), {"query", "code", "answer"}
    for name, one in made.items():
        for part in (one.answering, one.coding):
            if set(part) != families:
                wanted = f"a skill for each of {', '.join(sorted(families))}"
                raise ConfigError(f"{where}: {name}: {wanted}; got {part!r:.90}")
        for lengths in (one.median_tokens, one.median_seconds):
            if set(lengths) != purposes or not all(0 < v < math.inf for v in lengths.values()):
                wanted = f"a positive number for each of {', '.join(sorted(purposes))}"
                raise ConfigError(f"{where}: {name}: {wanted}; got {lengths!r:.90}")
    if not (0 <= law.refusals < 1 and law.limit_seconds > 0 and -1 <= law.together <= 1):
        wanted = "refusals is a share, limit_seconds is positive, together is a correlation"
        raise ConfigError(f"{where}: {wanted}; got {law}")


def _families() -> tuple[str, ...]:
    made: tuple[str, ...] = get_type_hints(Question)["family"].__args__
    return made
