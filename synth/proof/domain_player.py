"""Playing calls on a domain without an environment, and what an agent could have known at each call of a path.

An agent reads an id in the policy, in the user's words or in the result of an earlier call. A path that uses one that
nothing has said knows the answer; it cannot be imitated, and what it saves by that is no saving.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import Outage, ToolError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.domains.toolscale.database import DatabaseSession, SqlDatabase
from toolorchestra.envs.domains.toolscale.grading import SqlVerdict, entities, judge, mentions
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called, Runner
from toolorchestra.synth.formats import intent_templates


class PlayedCalls(NamedTuple):
    """What came of some calls."""

    called: tuple[Called, ...]
    error: str
    """The first refusal, or ""."""
    state: str


class DomainPlayer:
    """A domain ready for calls."""

    def __init__(self, domain: SqlDomain) -> None:
        self.domain = domain
        self.database = SqlDatabase(domain)
        self.runners = {name: Runner(tool, domain.clock) for name, tool in domain.tools.items()}
        self._checkers = {name: Checker(tool.parameters) for name, tool in domain.tools.items()}
        self._values: dict[str, list[Any]] = {}

    @contextmanager
    def session(self) -> Iterator[DatabaseSession]:
        """A session that is given back."""
        session = DatabaseSession(self.database)
        try:
            yield session
        finally:
            session.close()

    def call(self, session: DatabaseSession, action: GoldCall) -> Called:
        """One call, checked as the engine does. Raises ToolError, of a tool that breaks off too: it is to blame."""
        if action.name not in self.runners:
            raise ToolError(f"no tool {action.name!r}")
        self._checkers[action.name].check(action.arguments, action.name)
        try:
            return self.runners[action.name].call(session, action.arguments)
        except Outage as err:
            raise ToolError(str(err)) from None

    def follow(
        self, session: DatabaseSession, rows: Sequence[Mapping[str, Any]], values: Mapping[str, Any], where: str
    ) -> list[Called]:
        """Calls as a spec writes them, each filled in from values and from the results before it."""
        called: list[Called] = []
        for row in rows:
            called.append(self.call(session, intent_templates.action(row, values, called, where)))
        return called

    def play(self, actions: Sequence[GoldCall]) -> PlayedCalls:
        """The calls in their order; one that is refused changes nothing and the others are made."""
        with self.session() as session:
            called, error = self.made(session, actions)
            return PlayedCalls(called, error, digest(session))

    def made(self, session: DatabaseSession, actions: Sequence[GoldCall]) -> tuple[tuple[Called, ...], str]:
        """The calls in a session, and the first refusal."""
        called, error = [], ""
        for action in actions:
            try:
                called.append(self.call(session, action))
            except ToolError as err:
                error = error or f"{action.name}({dict(action.arguments)}): {err}"
        return tuple(called), error

    def judged(
        self,
        task: SqlTask,
        actions: Sequence[GoldCall],
        *,
        silent: bool = False,
        careless: bool = False,
        unasked: Sequence[str] = (),
    ) -> SqlVerdict:
        """The verdict on an agent that makes these calls and then says what it learnt of what it had to say, and what
        it had to compute. A careless one also takes a number from what only looks like it. It asks before all writes
        but those that are named."""
        with self.session() as session:
            called, _ = self.made(session, actions)
            learnt = [c.text for c in called]
            reads = may_be_read if careless else mentions
            said = (i for i in task.communicate if i in task.computed or any(reads(text, i) for text in learnt))
            told = [] if silent else list(said)
            return judge(task, session, called, told, unasked)

    def values(self, name: str) -> list[Any]:
        """Every value that the column of this name has, in all tables: the candidates for a swapped argument."""
        if name not in self._values:
            found: list[Any] = []
            for table in self.domain.tables.values():
                if name in table.columns:
                    at = table.columns.index(name)
                    found += [row[at] for row in table.rows]
            self._values[name] = list(dict.fromkeys(found))
        return self._values[name]

    # -- mutations -------------------------------------------------------------------------------------------------

    def swaps(self, action: GoldCall) -> Iterator[tuple[str, GoldCall]]:
        """The action with one argument changed to another valid value, for each of its arguments."""
        properties = self.domain.tools[action.name].parameters["properties"]
        for name, value in action.arguments.items():
            other = self._other(name, value, properties[name])
            if other is not None:
                yield name, GoldCall(action.name, {**action.arguments, name: other})

    def _other(self, name: str, value: Any, schema: Any) -> Any:
        if "enum" in schema:
            return next((option for option in schema["enum"] if option != value), None)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            low, high = schema.get("minimum"), schema.get("maximum")
            up = high is None or value + 1 <= high
            return value + 1 if up else (value - 1 if low is None or value - 1 >= low else None)
        pool = self.values(name)
        if value in pool and len(pool) > 1:
            return pool[(pool.index(value) + 1) % len(pool)]
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return f"{value[:-1]}{'7' if value[-1:] != '7' else '8'}" if value else "x"
        return (moment + datetime.timedelta(days=1)).isoformat(" ")[: len(value)]


_FIGURES = re.compile(
    r"(?:(?<=\b[A-Z]{3})|(?<![\w.-]))-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?=[A-Z]{3}\b|(?!\w|\.\d))"
)


def may_be_read(result: str, info: str) -> bool:
    """Whether an agent may take a value from a result, by chance too: a 15 that stands in 15:30 is read by somebody."""
    return mentions(result, info) or looks_said(result, info)


def looks_said(said: str, info: str) -> bool:
    """Whether the figures of a number stand in the words at all, such as 10 in 10:30: a grader that reads with less
    care than ours must not be pleased by them."""
    if not _FIGURES.fullmatch(info):
        return False
    wanted = float(info.replace(",", ""))
    return any(float(found.replace(",", "")) == wanted for found in _FIGURES.findall(said.replace("\u2212", "-")))


# -- ids are told before they are used ---------------------------------------------------------------------------------

_TOKEN = re.compile(r"[\w-]+")


def untold(bench: DomainPlayer, task: SqlTask, path: Sequence[GoldCall]) -> list[tuple[int, str]]:
    """The places of a path at which an id is used that nothing has said, with the id. At first the policy is said, and
    what the user says when it is asked."""
    facts = [*task.facts, *(fact for request in task.requests for fact in request.facts)]
    texts = [bench.domain.policy, *(say for r in task.requests for say in r.say), *(fact.value for fact in facts)]
    said, found = set().union(*map(_tokens, texts)), list[tuple[int, str]]()
    with bench.session() as session:
        for place, call in enumerate(path):
            for value in sorted(entities([call]) - said):
                parts = _TOKEN.findall(value)  # of an id that is no word: it may be said in parts
                if parts == [value] or not parts or not said.issuperset(parts):
                    found.append((place, value))
            try:
                said |= _tokens(bench.call(session, call).text)
            except ToolError:
                continue
            said.update(*map(_tokens, entities([call])))
    return found


@lru_cache(maxsize=4096)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(text))
