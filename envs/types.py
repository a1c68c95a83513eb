"""The nouns every layer shares: messages, tool calls, questions and outcomes. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn


class Message(dict[str, Any]):
    """One chat message in OpenAI's shape. A real dict (json, jinja, SDKs take it) that refuses to be changed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a transcript's Message cannot be changed; build a new one: Message(role=..., content=...)")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __deepcopy__(self, _memo: object) -> Message:
        return self

    def __reduce__(self) -> tuple[type[Message], tuple[dict[str, Any]]]:
        return Message, (dict(self),)


Transcript = tuple[Message, ...]
ToolSchema = Mapping[str, Any]
Observation = dict[str, Any]
"""{"messages": Transcript, "tools": tuple[ToolSchema, ...]}; a fresh dict each step, its values immutable."""


class ToolCall(NamedTuple):
    """A call as the assistant wrote it: the tool's name and its JSON arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable document."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A reference answer and how to compare with it; see grading.py for the rules of each kind."""

    text: str
    kind: Literal["exact", "number", "text"] = "text"
    tolerance: float = 0.0
    """Relative tolerance of kind "number"; 0 compares exactly."""
    unit: str = ""
    """Unit that the answer is in; an answer may leave it out but may not name another."""
    aliases: tuple[str, ...] = ()
    """Other texts that are also right."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence that a solver must have seen, and a search query that finds the passage holding it."""

    sentence: str
    query: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with all that is known of it. The agent sees `text` alone; the rest is for graders and simulators."""

    text: str
    answer: Answer
    subject: str
    family: Literal["math", "science", "code", "logic", "knowledge"]
    difficulty: float
    """0 (trivial) to 6; the scale of the simulated models' skills."""
    facts: tuple[Fact, ...] = ()
    """In the order in which they can be looked up: each query uses names from the question or from earlier facts."""
    computable: bool = False
    """Whether a short program can compute the answer once the facts are known."""
    decoys: tuple[str, ...] = ()
    """Plausible wrong answers, none of them right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended: its value in [0, 1] and the evidence for it."""

    value: float
    evidence: Mapping[str, Any]
