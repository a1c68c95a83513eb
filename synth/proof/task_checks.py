"""Playing calls on a domain without an environment, and the checks that every task must pass before it is kept."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import Outage, ToolError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.domains.toolscale.database import Session, SqlDatabase
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.formats import check_formats
from toolorchestra.envs.domains.toolscale.grading import SqlVerdict, judge, mentions
from toolorchestra.envs.domains.toolscale.grading_ids import touched
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called, Runner


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
    def session(self) -> Iterator[Session]:
        """A session that is given back."""
        session = Session(self.database)
        try:
            yield session
        finally:
            session.close()

    def call(self, session: Session, action: GoldCall) -> Called:
        """One call, checked as the engine does. Raises ToolError, of a tool that breaks off too: it is to blame."""
        if action.name not in self.runners:
            raise ToolError(f"no tool {action.name!r}")
        self._checkers[action.name].check(action.arguments, action.name)
        check_formats(self.domain.tools[action.name].formats, action.arguments)
        try:
            return self.runners[action.name].call(session, action.arguments)
        except Outage as err:
            raise ToolError(str(err)) from None

    def play(self, actions: Sequence[GoldCall]) -> PlayedCalls:
        """The calls in their order; one that is refused changes nothing and the others are made."""
        with self.session() as session:
            called, error = self.made(session, actions)
            return PlayedCalls(called, error, digest(session))

    def made(self, session: Session, actions: Sequence[GoldCall]) -> tuple[tuple[Called, ...], str]:
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
            reads = _may_be_read if careless else mentions
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
        return _shifted(value)


def _shifted(text: str) -> str:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return f"{text[:-1]}{'7' if text[-1:] != '7' else '8'}" if text else "x"
    return (moment + datetime.timedelta(days=1)).isoformat(" ")[: len(text)]


# -- the checks ----------------------------------------------------------------------------------------------------


def gold(bench: DomainPlayer, task: SqlTask) -> str:
    """The gold path, and each alternative, runs without a refusal and gives 1."""
    for path in (task.actions, *task.alternatives):
        played = bench.play(path)
        if played.error:
            return f"a gold call is refused: {played.error}"
        verdict = bench.judged(task, path)
        if not verdict.value:
            return f"the gold path gives 0: {verdict}"
    return ""


def nothing(bench: DomainPlayer, task: SqlTask) -> str:
    """Doing nothing gives 0, unless the right answer is to do nothing."""
    return "doing nothing gives 1" if bench.judged(task, ()).value and not task.idle else ""


def told(bench: DomainPlayer, task: SqlTask) -> str:
    """Saying nothing gives 0 where something must be told, and what must be told is not what the user says."""
    if not task.communicate:
        return ""
    words = task.shape["user_scenario"]["instructions"]
    said = f"{words['reason_for_call']} {words.get('known_info') or ''}"
    said = " ".join([said, *(word for r in task.requests if r.first for word in (*r.first.say, *r.first.then, *r.say))])
    for info in task.communicate:
        if mentions(said, info, in_words=False) or _looks_said(said, info):  # in words it tells nothing: see grading
            return f"the user's own words hold what must be told: {info}"
    return "saying nothing gives 1" if bench.judged(task, task.actions, silent=True).value else ""


_FIGURES = re.compile(
    r"(?:(?<=\b[A-Z]{3})|(?<![\w.-]))-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?=[A-Z]{3}\b|(?!\w|\.\d))"
)


def _may_be_read(result: str, info: str) -> bool:
    """Whether an agent may take a value from a result, by chance too: a 15 that stands in 15:30 is read by somebody."""
    return mentions(result, info) or _looks_said(result, info)


def _looks_said(said: str, info: str) -> bool:
    """Whether the figures of a number stand in the words at all, such as 10 in 10:30: a grader that reads with less
    care than ours must not be pleased by them."""
    if not _FIGURES.fullmatch(info):
        return False
    wanted = float(info.replace(",", ""))
    return any(float(found.replace(",", "")) == wanted for found in _FIGURES.findall(said.replace("\u2212", "-")))


def dropped(bench: DomainPlayer, task: SqlTask) -> str:
    """Leaving out any one gold write gives 0."""
    for number, action in enumerate(task.actions):
        if bench.domain.tools[action.name].kind == "write":
            without = (*task.actions[:number], *task.actions[number + 1 :])
            if bench.judged(task, without).value:
                return f"it gives 1 without {action.name}"
    return ""


def swapped(bench: DomainPlayer, task: SqlTask) -> str:
    """Another value for any argument of a write, or of a read that cannot be left out, gives 0."""
    for number, action in enumerate(task.actions):
        before, after = task.actions[:number], task.actions[number + 1 :]
        left_out = (*before, *after)
        if bench.domain.tools[action.name].kind == "read" and bench.judged(task, left_out, careless=True).value:
            continue
        for name, other in bench.swaps(action):
            if number < task.identify and _finds_caller(bench, task, other):
                continue  # another thing of the caller's own identifies as well
            if bench.judged(task, (*before, other, *after)).value:
                return f"it gives 1 with {action.name}.{name} = {other.arguments[name]!r}"
    return ""


def _finds_caller(bench: DomainPlayer, task: SqlTask, call: GoldCall) -> bool:
    return bool(task.caller) and task.caller in touched(bench.play([call]).called)


def permuted(bench: DomainPlayer, task: SqlTask) -> str:
    """Reads between two writes in reverse order still give 1."""
    first = task.identify if "process" in bench.domain.manifest else 0  # to identify first may be a rule
    made: list[GoldCall] = list(task.actions[:first])
    reads: list[GoldCall] = []
    for action in task.actions[first:]:
        if bench.domain.tools[action.name].kind == "read":
            reads.append(action)
        else:
            made += [*reversed(reads), action]
            reads = []
    made += reversed(reads)
    return "" if bench.judged(task, made).value else "its reads in another order give 0"


def contradictory(bench: DomainPlayer, task: SqlTask) -> str:
    """No request undoes another: neither is refused because of one before it, nor do two set the same to different
    values, each standing if it comes last. Steps of one matter are no contradiction: they go through in one order only,
    or add up."""
    owned = {number for request in task.requests for number in request.actions}
    first = [action for number, action in enumerate(task.actions) if number not in owned]
    parts = [[task.actions[number] for number in request.actions] for request in task.requests]
    alone = [_updates(bench, [*first, *path]) for path in parts]
    for one, other in combinations(range(len(parts)), 2):
        mine, theirs = alone[one], alone[other]
        if mine is None or theirs is None:
            continue  # it needs what an earlier request made
        path, next_path = parts[one], parts[other]
        names = [task.requests[number].intent for number in (one, other)]
        both = _updates(bench, [*first, *path, *next_path])
        if both is None:
            return f"{names[1]} is refused because of {names[0]}, and goes through without it"
        back = {}
        if differing := [cell for cell in mine if cell in theirs and mine[cell] != theirs[cell]]:
            back = _updates(bench, [*first, *next_path, *path]) or {}
        for cell in differing:
            if both.get(cell) == theirs[cell] and back.get(cell) == mine[cell]:
                what = f"{names[0]} sets {'.'.join(map(str, cell))} to {mine[cell]!r}"
                return f"{what}, {names[1]} sets it to {theirs[cell]!r}"
    return ""


def pointless(bench: DomainPlayer, task: SqlTask) -> str:
    """No request ends what another has changed, where each could do without the other: who has a season ticket changed
    and then cancels it has one wish, not two. It is seen by the order: once ended, the thing can be changed no more."""
    owned = {number for request in task.requests for number in request.actions}
    first = [action for number, action in enumerate(task.actions) if number not in owned]
    parts = [[task.actions[number] for number in request.actions] for request in task.requests]
    with bench.session() as session:
        met = " ".join(called.text for called in bench.made(session, first)[0])
    callers = {*re.findall(r"[\w-]+", met), *(value for action in first for value in action.arguments.values())}
    things = [_written_to(bench, path) - callers for path in parts]
    for one, other in combinations(range(len(parts)), 2):
        if not things[one] & things[other]:
            continue
        path, next_path = parts[one], parts[other]
        plays = ([*path], [*next_path], [*path, *next_path])
        if any(_updates(bench, [*first, *made]) is None for made in plays):
            continue  # one needs the other: steps of one matter
        if _updates(bench, [*first, *next_path, *path]) is None:
            what = f"{', '.join(map(str, sorted(things[one] & things[other])))}"
            return f"{task.requests[other].intent} ends what {task.requests[one].intent} changed: {what}"
    return ""


def _written_to(bench: DomainPlayer, path: Sequence[GoldCall]) -> set[Any]:
    """The ids of seed rows that writes are told."""
    writes = [action for action in path if bench.domain.tools[action.name].kind == "write"]
    return {value for action in writes for value in action.arguments.values() if value in bench.database.keys}


def _updates(bench: DomainPlayer, path: Sequence[GoldCall]) -> dict[tuple[str, Any, str], Any] | None:
    """What calls change in rows that were there: by table, key and column. None where one is refused."""
    with bench.session() as session:
        if bench.made(session, path)[1]:
            return None
        cells: dict[tuple[str, Any, str], Any] = {}
        for name, before, now in session.changes():
            if before is not None and now is not None:
                table = bench.domain.tables[name]
                key = before[table.columns.index(table.key)]
                pairs = zip(table.columns, before, now, strict=True)
                cells.update({(name, key, column): new for column, old, new in pairs if new != old})
        return cells


PLAIN: dict[str, Callable[[DomainPlayer, SqlTask], str]] = {
    "contradictory": contradictory,
    "gold": gold,
    "nothing": nothing,
    "told": told,
    "dropped": dropped,
    "swapped": swapped,
    "permuted": permuted,
}
"""The checks of every task, by name; hard_checks.py has more, and the whole list."""
