"""Simulated experts: skill by subject and difficulty, tokens and latency drawn from a table, and no network.

Whether a simulated expert succeeds depends on what it is really shown. Facts count only when their sentence stands in
the messages; a computed result counts only when the right value stands there. The draw is a hash of (seed, question,
model, purpose, attempt, messages), so the same call gives the same reply in any process. All results are SIMULATED:
they are for testing and for learning to route, and say nothing about the real models whose names the table borrows.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.grading import is_right
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.money.prices import Tokens, Usage

CAP, FLOOR = 0.985, 0.02
COMPUTED_BONUS = 3.0
"""Levels by which a right computed result in view makes a question easier."""
MISLED = 0.4
"""Factor on the chance of being right when the computed results in view are all wrong."""
RESULT_MARK = "Output:"
CHARACTERS_PER_TOKEN = 4
_SHARE_REASONING = 0.8
_WORD = re.compile(r"\w+")
_RESULT = re.compile(rf"{RESULT_MARK} *(.+)")


@dataclass(frozen=True, slots=True)
class Skill:
    """How well one simulated model writes queries, programs and answers, and how long its replies are."""

    answering: Mapping[str, float]
    """By question family, on the scale of Question.difficulty."""
    coding: Mapping[str, float]
    """The same for writing programs."""
    querying: float
    """The same for writing search queries; one number."""
    output_tokens: Mapping[Purpose, int]
    """Typical length of a reply: of a query, a program (`code`) and an answer."""
    seconds: Mapping[Purpose, float]
    """Typical time of the same."""
    reasons: bool
    """Whether most of its output is billed as reasoning."""

    def answer_chance(self, question: Question, facts_shown: float, computed: str) -> float:
        """See answer_chance()."""
        return answer_chance(self, question, facts_shown, computed)

    def code_chance(self, question: Question, facts_shown: float) -> float:
        """See code_chance()."""
        return code_chance(self, question, facts_shown)

    def query_chance(self, question: Question) -> float:
        """See query_chance()."""
        return query_chance(self, question)

    def lengths(self, purpose: Purpose, question: Question, draws: Draws) -> tuple[int, float]:
        """Tokens and seconds of one reply."""
        del question
        out = round(self.output_tokens[purpose] * draws.around_one(0.3))
        return out, round(self.seconds[purpose] * draws.around_one(0.2), 3)

    def without_luck(self) -> Skill:
        """For a planner that knows skills alone: here there is nothing else to know."""
        return self

    @property
    def strength(self) -> float:
        """In answering, over all families."""
        return sum(self.answering.values())


@cache
def skills() -> Mapping[str, Skill]:
    """The packaged table of the simulated models' skills, by the model's name."""
    source = resources.files("toolorchestra.envs") / "data" / "models" / "simulated.json"
    return {name: Skill(**row) for name, row in json.loads(source.read_text(encoding="utf-8"))["models"].items()}


def read_skills(path: str | Path) -> Mapping[str, Skill]:
    """The packaged table and the models of a JSON file of its form; those of the file go before."""
    try:
        rows = json.loads(Path(path).read_bytes())["models"].items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        form = '{"models": {name: {"answering": ...}}}'
        why = "there is no such file" if isinstance(err, FileNotFoundError) else f"{type(err).__name__}: {err}"
        raise ConfigError(f"simulated models: a JSON file {form} expected at {str(path)!r}, but {why}") from None
    return {**skills(), **{name: _skill(row, f"simulated model {name!r} of {path}") for name, row in rows}}


def _skill(row: object, where: str) -> Skill:
    keys = [f.name for f in fields(Skill)]
    if not isinstance(row, Mapping) or set(row) != set(keys):
        got = sorted(row) if isinstance(row, Mapping) else repr(row)
        raise ConfigError(f"{where} is an object with {', '.join(keys)}; got {got!s:.80}")
    for name, parts in _PARTS.items():
        if not (isinstance(row[name], Mapping) and set(row[name]) == set(parts) and _amounts(row[name].values())):
            raise ConfigError(f"{where}: {name} has a number for each of {', '.join(parts)}; got {row[name]!r:.80}")
    if not (_amounts([row["querying"]]) and isinstance(row["reasons"], bool)):
        raise ConfigError(f"{where}: querying is a number and reasons true or false; got {row!r:.80}")
    return Skill(**row)


_FAMILIES = get_args(get_type_hints(Question)["family"])
_WRITTEN = ("query", "code", "answer")
_PARTS = {"answering": _FAMILIES, "coding": _FAMILIES, "output_tokens": _WRITTEN, "seconds": _WRITTEN}


def _amounts(values: Iterable[object]) -> bool:
    """Whether these are numbers from 0 up."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < math.inf for v in values)


def chance(skill: float, difficulty: float) -> float:
    """The chance of success: the cap half a level above the difficulty, the floor 1.5 below it, linear between."""
    share = min(1.0, max(0.0, (skill - difficulty + 1.5) / 2.0))
    return FLOOR + (CAP - FLOOR) * share


def answer_chance(skill: Skill, question: Question, facts_shown: float, computed: str) -> float:
    """The chance of a right answer. `facts_shown`: share of needed facts in view; `computed`: "", "right", "wrong"."""
    if facts_shown < 1.0:
        return FLOOR * facts_shown
    if computed == "right":
        easier = chance(skill.answering[question.family], question.difficulty - COMPUTED_BONUS)
        return 1.0 if easier >= CAP else easier
    plain = chance(skill.answering[question.family], question.difficulty)
    return plain * MISLED if computed == "wrong" else plain


def code_chance(skill: Skill, question: Question, facts_shown: float) -> float:
    """The chance that the written program prints the right result."""
    if not question.computable or facts_shown < 1.0:
        return 0.0
    return chance(skill.coding[question.family], question.difficulty)


def query_chance(skill: Skill, question: Question) -> float:
    """The chance of a query that finds the next missing fact."""
    return chance(skill.querying, question.difficulty)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=32).digest()


class Draws:
    """Uniform numbers from one hash: cheaper than seeding a generator for each call."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, digest: bytes) -> None:
        self._bytes, self._at = digest, 0

    def uniform(self) -> float:
        self._at += 4
        return int.from_bytes(self._bytes[self._at - 4 : self._at], "big") / 2**32

    def around_one(self, spread: float) -> float:
        """Log-normal-like with mean near 1, from the difference of two uniforms."""
        return math.exp(spread * (self.uniform() - self.uniform()) * 2.0)

    def choose(self, options: Any) -> Any:
        return options[int(self.uniform() * len(options))]


class SimulatedModels:
    """Every model of a table, as one backend."""

    suspends = False

    def __init__(self, table: Mapping[str, Skill] | None = None) -> None:
        self.skills = skills() if table is None else table

    def skill(self, model: str) -> Skill:
        """The table's row of a model."""
        if model not in self.skills:
            raise ConfigError(no_such("simulated model", model, self.skills))
        return self.skills[model]

    async def complete(self, request: ChatRequest) -> Completion:
        """Write a query, a program or an answer."""
        return drawn_reply(self, request)


def drawn_reply(models: SimulatedModels, request: ChatRequest) -> Completion:
    """What a simulated model writes, and what that used."""
    if request.truth is None:
        raise ConfigError("a simulated model needs the question's truth; only embedded worlds have it")
    if request.purpose not in _WRITERS:
        raise ConfigError(f"simulated models write {', '.join(_WRITERS)}; {request.purpose!r} needs another backend")
    skill = models.skill(request.model)
    shown = "\n".join(str(m["content"]) for m in request.messages)
    draws = Draws(_digest(request.seed, request.truth.text, request.model, request.purpose, request.attempt, shown))
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
