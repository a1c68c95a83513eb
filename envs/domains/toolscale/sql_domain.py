"""The nouns of a domain: its tools as guarded SQL, its tasks with their users, and the folder they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeVar

Value = str | int | float | None
Arguments = Mapping[str, Any]
Kind = Literal["read", "write"]
T = TypeVar("T")
P = ParamSpec("P")


class ToolStatement(NamedTuple):
    """One SQL statement that a tool runs."""

    verb: Literal["let", "check", "do"]
    """`let` selects one row whose columns become parameters, `check` is an expression that must hold, `do` writes."""
    sql: str
    error: str
    """What the agent is told when `let` finds no row or `check` does not hold; {parameter} is filled in."""


@dataclass(frozen=True, slots=True)
class SqlTool:
    """A tool as a domain's tools.json has it."""

    name: str
    kind: Kind
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments, without the formats."""
    formats: Mapping[str, str]
    """Parameter -> format of its text: see argument_formats.FORMATS."""
    steps: tuple[ToolStatement, ...]
    result: str
    """A SELECT whose rows are the result."""
    many: bool
    """Whether the result is a list of rows; else it is the first row."""
    transfers: bool = False
    """Whether the user is handed over to a person with it."""


@dataclass(frozen=True, slots=True)
class UserFact:
    """Something the user knows, or, with no value, is known not to know."""

    label: str
    asked: tuple[str, ...]
    """Words by which an agent asks for it."""
    value: str = ""


@dataclass(frozen=True, slots=True)
class FirstWords:
    """What a user says of a request at first, and does not stay with."""

    kind: Literal["corrects", "changes_mind", "negotiates"]
    """Kind of change: the user has mixed something up; it comes to want something else; or it asks for more than it can
    have, and takes less when that is refused."""
    say: tuple[str, ...]
    then: tuple[str, ...]
    """How it takes the first words back, in several wordings."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing the user wants, and how it is to be settled."""

    intent: str
    ending: Literal["serve", "refuse", "transfer"]
    say: tuple[str, ...]
    """The request in several wordings."""
    facts: tuple[UserFact, ...]
    actions: tuple[int, ...]
    """The task's gold actions that settle it, by number."""
    inform: tuple[str, ...]
    """What the user must be told."""
    pushback: str = ""
    """What the user says to a first refusal; "" accepts it."""
    first: FirstWords | None = None
    """What it says before `say`."""


class GoldCall(NamedTuple):
    """One call of the way that solves a task, as the task's file has it: a tool's name, such as "cancel_order", and its
    arguments. The proof runs these calls, and grading compares the agent's end state with theirs."""

    name: str
    arguments: Mapping[str, Any]


class WrongWay(NamedTuple):
    """What an agent does that misses what is hard in a request. It must give 0."""

    kind: Literal["candidate", "uncomputed", "branch", "first_said"]
    """Kind of mistake: the agent takes another candidate, a number that it only read, what holds in another case, or
    the user's first word."""
    request: int
    calls: tuple[GoldCall, ...]
    """Calls in place of the request's gold calls."""


@dataclass(frozen=True, slots=True)
class SqlTask:
    """One task. `shape` is the row as the file has it: tau2's Task, with what is ours under "toolscale"."""

    task_id: str
    split: str
    difficulty: int
    actions: tuple[GoldCall, ...]
    alternatives: tuple[tuple[GoldCall, ...], ...]
    """Other gold paths that are as right."""
    end_states: tuple[str, ...]
    """Digest of the right end state: of the gold path first, then of the alternatives that end elsewhere."""
    communicate: tuple[str, ...]
    facts: tuple[UserFact, ...]
    requests: tuple[Request, ...]
    identify: int
    """How many of the first gold actions identify the user."""
    shape: Mapping[str, Any] = field(repr=False, compare=False)
    caller: str = ""
    """The one whose data the user may have: a value of the domain's `process.caller`; "" where nobody is to be
    identified."""
    computed: tuple[str, ...] = ()
    """What of `communicate` stands in no result and has to be computed."""
    wrong: tuple[WrongWay, ...] = ()
    hardness: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What makes the task hard, by name; see docs/domains.md. Empty where the file does not say."""
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out of the task; see once()."""

    def once(self, make: Callable[Concatenate[SqlTask, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """make(task, ...), worked out the first time and kept with the task, for all episodes that play it. What is
        made must never change what it says, and `args` must be hashable."""
        key = (make, *args, *kwargs.items())
        if key not in self.kept:
            self.kept[key] = make(self, *args, **kwargs)
        made: T = self.kept[key]
        return made

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # nothing that it says changes

    def __reduce__(self) -> tuple[Any, ...]:
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return partial(SqlTask, **values), ()

    @property
    def level(self) -> str:
        """easy, medium or hard; "" where the file does not say."""
        return str(self.hardness.get("level", ""))

    @property
    def idle(self) -> bool:
        """Whether leaving the database alone and telling nothing is right."""
        return not self.communicate and all(r.ending == "refuse" for r in self.requests)


class SqlTable(NamedTuple):
    """A table's columns, its key column and its seed rows."""

    columns: tuple[str, ...]
    key: str
    rows: Sequence[tuple[Value, ...]]


@dataclass(frozen=True, eq=False)
class SqlDomain:
    """A service domain as its folder holds it: database, tools, policy and tasks."""

    name: str
    subject: str
    clock: str
    """The time that tools see as :now, "YYYY-MM-DD HH:MM:SS"."""
    held_out: bool
    policy: str = field(repr=False)
    schema: str = field(repr=False)
    tables: Mapping[str, SqlTable] = field(repr=False)
    tools: Mapping[str, SqlTool] = field(repr=False)
    tasks: Mapping[str, SqlTask] = field(repr=False)
    manifest: Mapping[str, Any] = field(repr=False)
    folder: Path = field(repr=False)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The names of the tools that change something."""
        return frozenset(name for name, tool in self.tools.items() if tool.kind == "write")

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # nothing in it changes
