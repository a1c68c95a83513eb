"""Simulated experts as recordings of real ones are: tasks that are hard for all, luck, long tails, answers that fail.

    success of a call  =  skill[family] - level - task + pair + chance  >  0

`task` is one number for a question and the same for all experts, so that errors are common. `pair` is one for each
expert with a question, so that asking the same expert again helps less than asking another. `chance` is new in each
call and has deviation 1. All are normal; their sizes are in the law, which a fit of recorded outcomes gives
(docs/calibrate.md).

Whether an expert succeeds depends on what it is really shown. Facts count only when their sentence stands in the
messages; a computed result counts only when the right value stands there. Tokens and seconds are log-normal, tied to
each other, and longer where the task is hard. Some calls end without an answer after the law's limit (the agent is
told, and the seconds and tokens are billed), and some answers are refusals.

Everything is drawn from hashes of (seed, question, model, purpose, attempt, messages), so the same call gives the same
reply in any process. All results are SIMULATED: they are for testing and for learning to route, and say nothing about
the real models whose names are borrowed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.answer_grading import is_right
from toolorchestra.envs.base.errors import ConfigError, ToolError, no_such
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, Tokens, Usage

PACKAGED = ("2026-11",)
"""Experts that come with the package, by name."""
DEFAULT = PACKAGED[-1]
FLOOR = 0.02
MISLED = 0.4
"""Factor on the chance of being right when the computed results in view are all wrong."""
RESULT_MARK = "Output:"
REFUSAL = "I cannot help with this request."
_SHARE_REASONING = 0.8
_WORD = re.compile(r"\w+")
_RESULT = re.compile(rf"{RESULT_MARK} *(.+)")
_NORMAL = NormalDist()
Numbers = NDArray[np.float64]
_nodes, _shares = np.polynomial.hermite_e.hermegauss(11)
NODES: tuple[float, ...] = tuple(_nodes)
"""Values of a normal number that its law is summed over (Gauss and Hermite's)."""
SHARES: Numbers = _shares / _shares.sum()
"""How much each of the NODES counts."""
_KNOWN = 1 << 16
"""Latent numbers that are kept."""


class LengthSpread(NamedTuple):
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
    """What all experts of one file have in common."""

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
    tokens: LengthSpread
    seconds: LengthSpread
    together: float
    """Correlation of tokens and seconds within each part."""
    limit_seconds: float
    """A call that would take longer ends then, without an answer."""
    refusals: float
    """Share of the answers that are refusals."""
    source: str = ""
    """Where the numbers come from."""

    def __post_init__(self) -> None:
        if not (0 <= self.refusals < 1 and self.limit_seconds > 0 and -1 <= self.together <= 1):
            raise ConfigError(f"refusals is a share, limit_seconds is positive, together is a correlation; got {self}")


@dataclass(frozen=True)
class Skill:
    """One expert under a law. Its numbers are in deviations of the chance of one call."""

    name: str
    law: Law
    answering: Mapping[str, float]
    """Skill by question family, at the law's middle level."""
    coding: Mapping[str, float]
    querying: float
    median_tokens: Mapping[Purpose, float]
    median_seconds: Mapping[Purpose, float]
    reasons: bool
    stretch: float = 1.0
    """How widely its lengths spread, by the law's deviations."""
    luck_by_strength: float = 0.0
    """Correlation of its luck with what strength is worth on a question, from -1 to 1: strong experts fail together
    where it is worth nothing."""
    knows_luck: bool = True
    """Whether chances are told as they are for this very question and expert, or, for planners that know skills alone,
    on average over questions of its family and level."""

    def answer_chance(self, question: Question, facts_shown: float, computed: str) -> float:
        """The chance of a right answer. `facts_shown`: share of needed facts in view; `computed`: "" for no result,
        "right" or "wrong"."""
        if facts_shown < 1.0:
            return FLOOR * facts_shown
        chance = self._chance(self._answering(question, computed), question, 1.0)
        return (1 - self.law.refusals) * chance * (MISLED if computed == "wrong" else 1.0)

    def code_chance(self, question: Question, facts_shown: float) -> float:
        """The chance that the written program prints the right result."""
        if not question.computable or facts_shown < 1.0:
            return 0.0
        return self._chance(self.coding[question.family], question, 1.0)

    def chances(self, question: Question, computed: str | None) -> Numbers:
        """Chances of a right answer when all facts are shown, or with None of a right program, for each of the NODES as
        the question's `task` and, beside it, as this expert's luck with it."""
        skill = self.coding[question.family] if computed is None else self._answering(question, computed)
        found = _chances(self._clear(skill, question, 1.0), self.law.task, self.law.pair)
        if computed is None:
            return found
        return (1 - self.law.refusals) * found * (MISLED if computed == "wrong" else 1.0)

    def query_chance(self, question: Question) -> float:
        """The chance of a query that finds the next missing fact."""
        return max(FLOOR, self._chance(self.querying, question, self.law.search))

    def _answering(self, question: Question, computed: str) -> float:
        return self.answering[question.family] + (self.law.computed if computed == "right" else 0.0)

    def _clear(self, skill: float, question: Question, share: float) -> float:
        """What is left of a skill at the question's level."""
        return skill - share * self.law.level * (question.difficulty - self.law.middle)

    def _chance(self, skill: float, question: Question, share: float) -> float:
        law, clear = self.law, self._clear(skill, question, share)
        task, pair = share * law.task, share * law.pair
        if not self.knows_luck:
            return _NORMAL.cdf(clear / math.sqrt(1 + task**2 + pair**2))
        luck, tie = latent(self.name, question.text), self.luck_by_strength
        if tie:
            luck = tie * latent("strength", question.text) + math.sqrt(1 - tie**2) * luck
        return _NORMAL.cdf(clear - task * latent("task", question.text) + pair * luck)

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
        """Skill in answering, over all families."""
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

    def _times(self, spread: LengthSpread, hard: float, task: float, pair: float, run: float) -> float:
        """How many times the median."""
        tied = spread.with_difficulty
        of_task = tied * hard + math.sqrt(1 - tied**2) * task
        return math.exp(self.stretch * (spread.task * of_task + spread.pair * pair + spread.run * run))

    def without_luck(self) -> Skill:
        """The chance for a planner that knows skills, and not how a question suits whom."""
        return replace(self, knows_luck=False)


@lru_cache(maxsize=_KNOWN)
def _chances(clear: float, task: float, pair: float) -> Numbers:
    return np.array([[_NORMAL.cdf(clear - task * one + pair * other) for other in NODES] for one in NODES])


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


class Draws:
    """Uniform numbers from one hash: cheaper than seeding a generator for each call."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, digest: bytes) -> None:
        self._bytes, self._at = digest, 0

    def uniform(self) -> float:
        self._at += 4
        return int.from_bytes(self._bytes[self._at - 4 : self._at], "big") / 2**32

    def choose(self, options: Any) -> Any:
        return options[int(self.uniform() * len(options))]


class SimulatedModels:
    """Every expert of a table, as one backend."""

    suspends = False

    def __init__(self, table: Mapping[str, Skill]) -> None:
        self.skills = table

    def skill(self, model: str) -> Skill:
        """The table's row of a model."""
        if model not in self.skills:
            raise ConfigError(no_such("simulated model", model, self.skills))
        return self.skills[model]

    async def complete(self, request: ChatRequest) -> Completion:
        """Write a query, a program or an answer; or take too long, or refuse."""
        reply = drawn_reply(self, request)
        law, usage = self.skill(request.model).law, reply.usage
        if usage.seconds > law.limit_seconds:
            share, used = law.limit_seconds / usage.seconds, usage.tokens
            made = used._replace(output=round(used.output * share), reasoning=round(used.reasoning * share))
            request.bill.add(usage._replace(tokens=made, seconds=law.limit_seconds))
            raise ToolError(f"{request.model} gave no answer within {law.limit_seconds:g} s")
        if request.purpose == "answer" and _refuses(request, law.refusals):
            return Completion(REFUSAL, usage)
        return reply


def _refuses(request: ChatRequest, share: float) -> bool:
    """One number for a model with a question in an episode: asking again there is refused again."""
    assert request.truth is not None
    text = f"refusal\x1f{request.seed}\x1f{request.model}\x1f{request.truth.text}"
    drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
    return drawn / 2**32 < share


def drawn_reply(models: SimulatedModels, request: ChatRequest) -> Completion:
    """What a simulated model writes, and what that used."""
    if request.truth is None:
        raise ConfigError("a simulated model needs the question's truth; only embedded worlds have it")
    if request.purpose not in _WRITERS:
        raise ConfigError(f"simulated models write {', '.join(_WRITERS)}; {request.purpose!r} needs another backend")
    skill = models.skill(request.model)
    shown = "\n".join(str(m["content"]) for m in request.messages)
    drawn_by = (request.seed, request.truth.text, request.model, request.purpose, request.attempt, shown)
    draws = Draws(hashlib.blake2b("\x1f".join(map(str, drawn_by)).encode(), digest_size=32).digest())
    text = _WRITERS[request.purpose](skill, request.truth, shown, draws)
    out, seconds = skill.lengths(request.purpose, request.truth, draws)
    reasoning = round(out * _SHARE_REASONING) if skill.reasons else 0
    tokens = Tokens(len(shown) // CHARACTERS_PER_TOKEN, 0, out - reasoning, reasoning)
    return Completion(text, Usage(request.model, request.role, tokens, seconds=seconds))


def facts_in(question: Question, shown: str) -> float:
    """The share of the question's needed facts that stand in the text; 1 when it needs none."""
    if not question.facts:
        return 1.0
    return sum(fact.sentence in shown for fact in question.facts) / len(question.facts)


def computed_in(question: Question, shown: str) -> str:
    """Whether the last computed result in the text is right or wrong, or there is none ("").

    The last alone: an agent that prints every number there is has not computed anything.
    """
    results = _RESULT.findall(shown)
    if not results or not question.computable:
        return ""
    return "right" if is_right(question.answer, results[-1]) else "wrong"


def _write_query(skill: Skill, question: Question, shown: str, draws: Draws) -> str:
    missing = next((f for f in question.facts if f.sentence not in shown), None)
    if missing is None:
        return "<query></query>"
    if draws.uniform() < skill.query_chance(question):
        return f"<query>{missing.query}</query>"
    words = [w for w in question.text.split("\n")[-1].split() if w.islower() and len(w) > 3]
    return (
        f"<query>{' '.join(words[:3]) or 'overview'} {draws.choose(('history', 'overview', 'list', 'facts'))}</query>"
    )


def _write_code(skill: Skill, question: Question, shown: str, draws: Draws) -> str:
    if draws.uniform() < skill.code_chance(question, facts_in(question, shown)):
        printed = question.answer.text
    elif draws.uniform() < 0.5 or not question.decoys:
        return "```python\nraise_for_missing_step()\n```"
    else:
        printed = draws.choose(question.decoys)
    return f"```python\nprint({printed!r})\n```"


def _asks(question: Question, shown: str) -> bool:
    """Whether the question stands in the text, in its own words or nearly."""
    if question.text in shown:
        return True
    body = question.text.partition("\n")[2] or question.text
    wanted = {w for w in _WORD.findall(body.lower()) if len(w) > 3 or w.isdigit()}
    return len(wanted & set(_WORD.findall(shown.lower()))) >= 0.8 * len(wanted)


def _write_answer(skill: Skill, question: Question, shown: str, draws: Draws) -> str:
    if not _asks(question, shown):
        return "<answer>I do not see the question.</answer>"
    right = skill.answer_chance(question, facts_in(question, shown), computed_in(question, shown))
    if draws.uniform() < right:
        return f"<answer>{question.answer.text}</answer>"
    return f"<answer>{draws.choose(question.decoys) if question.decoys else 'unknown'}</answer>"


_WRITERS = {"query": _write_query, "code": _write_code, "answer": _write_answer}

# -- files -------------------------------------------------------------------------------------------------------------


@cache
def packaged(name: str) -> Mapping[str, Skill]:
    """The packaged experts of a name."""
    if name not in PACKAGED:
        raise ConfigError(f"{no_such('experts', name, PACKAGED)} Or name a file, FILE.json")
    source = resources.files("toolorchestra.envs") / "data" / "experts" / f"{name}.json"
    data = json.loads(source.read_text(encoding="utf-8"))
    law = Law(**{**data["law"], **{name: LengthSpread(**data["law"][name]) for name in ("tokens", "seconds")}})
    return {model: Skill(model, law, **row) for model, row in data["models"].items()}


@dataclass(frozen=True)
class _ExpertsFile:
    """A file of experts."""

    law: Law
    models: Mapping[str, Mapping[str, Any]]
    made_of: Mapping[str, Any] = field(default_factory=dict)
    """What `recorded world` says of where they come from."""


def load_experts(named: str | Path) -> Mapping[str, Skill]:
    """Packaged experts by their name, or those of a file: {"law": {...}, "models": {name: {...}}}."""
    if not str(named).endswith(".json"):
        return packaged(str(named))
    try:
        data = json.loads(Path(named).read_bytes())
    except (OSError, ValueError) as err:
        raise ConfigError(
            f'a file of experts {{"law": {{...}}, "models": {{...}}}} expected at {named} ({err}); '
            "`toolorchestra recorded world` writes one"
        ) from None
    return read_experts(data, str(named))


def read_experts(data: Any, where: str) -> Mapping[str, Skill]:
    """The experts of a file's content, `where` being its name in errors."""
    file = shapes.read(_ExpertsFile, data, where)
    made: dict[str, Skill] = {}
    families, purposes = set(get_args(get_type_hints(Question)["family"])), set(_WRITERS)
    for name, row in file.models.items():
        at = f"{where}: models.{name}"
        one = replace(shapes.read(Skill, row, at, name=name, law=data["law"], knows_luck=True), law=file.law)
        if wrong := [part for part in (one.answering, one.coding) if set(part) != families]:
            raise ConfigError(f"{at}: a skill for each of {', '.join(sorted(families))} expected, got {wrong[0]!r:.90}")
        if not -1 <= one.luck_by_strength <= 1:
            raise ConfigError(f"{at}: luck_by_strength from -1 to 1 expected, got {one.luck_by_strength!r}")
        for lengths in (one.median_tokens, one.median_seconds):
            if set(lengths) != purposes or min(lengths.values()) <= 0:
                wanted = f"a positive number for each of {', '.join(sorted(purposes))}"
                raise ConfigError(f"{at}: {wanted} expected, got {lengths!r:.90}")
        made[name] = one
    return made
