"""The nouns every layer shares: messages, tool calls, questions and outcomes. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeVar

T = TypeVar("T")


build = tuple.__new__
"""build(Tokens, (1, 0, 2, 0)) is Tokens(1, 0, 2, 0) in half the time: for the tuples that every step makes. It knows no
defaults and does not count."""


def _refuse(_self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(
        "an observation's data is shared and cannot be changed; copy it first: dict(message), list(messages)"
    )


class FrozenDict(dict[str, Any]):
    """A real dict (json, jinja, SDKs take it) that refuses to be changed."""

    __slots__ = ()

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        return type(self), (dict(self),)


class Message(FrozenDict):
    """One chat message in OpenAI's shape: role, content, and for tool results the tool's name."""

    __slots__ = ()


class Rows(list[T]):
    """A real list that refuses to be changed: observations hold these, since each shares its rows with the last."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __iadd__ = __imul__ = _refuse

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[list[T]]]:
        return type(self), (list(self),)


def freeze(value: Any) -> Any:
    """JSON-like data as Frozen and Rows, all the way down."""
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(part) for key, part in value.items()})
    if isinstance(value, list | tuple):
        return Rows(freeze(part) for part in value)
    return value


_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Convert to what json.dumps writes with names: mappings and named tuples as dicts, all the way down."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return type(value)(plain(part) for part in value)
    return value


Transcript = tuple[Message, ...]
Observation = dict[str, Any]
"""{"messages": Rows of Message, "tools": Rows of schemas}; a fresh dict each step, its values immutable."""


class ToolCall(NamedTuple):
    """A call as the assistant wrote it: the tool's name and its JSON arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passage:
    """One document that a search can return, such as an article of the encyclopaedia: id, title and text."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A reference answer and how to compare with it; see answer_grading.py for the rules of each kind."""

    text: str
    kind: Literal["exact", "number", "text", "quasi"] = "text"
    tolerance: float = 0.0
    """Relative tolerance of kind "number"; 0 compares exactly."""
    unit: str = ""
    """Unit that the answer is in; an answer may leave it out but may not name another."""
    aliases: tuple[str, ...] = ()
    """Other texts that are also right."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence that a solver must have seen to answer, and a search query that finds the passage with this
    sentence."""

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
    """Facts in the order in which they can be looked up: each query uses names from the question or from earlier
    facts."""
    computable: bool = False
    """Whether a short program can compute the answer once the facts are known."""
    decoys: tuple[str, ...] = ()
    """Plausible wrong answers, none of them right."""
    files: tuple[str, ...] = ()
    """Files that belong to it, which a sandbox with files of its own is given."""
    attached: tuple[Passage, ...] = ()
    """What can be read of them."""
    images: tuple[str, ...] = ()
    """Pictures that belong to it, as `data:` URLs, for models that take some."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended: its value in [0, 1] and the evidence for it."""

    value: float
    evidence: Mapping[str, Any]
    truncated_by: str = ""
    """The world's own limit that cut the episode off; "" when it ended by itself or by the engine's limits."""
