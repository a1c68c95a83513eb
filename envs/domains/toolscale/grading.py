"""The parts of the outcome: right end state, needed information told, entities of the gold path touched, and the rules
of process kept where the domain's verdict has some: identify first, confirm before a change, and leave the data of
others alone.

A domain has rules of process where its manifest says so (`process`). They are judged by what was done: a call that was
refused showed and changed nothing, so it breaks no rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base import values
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale.database import DatabaseSession
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called

_ID = "_id"


def entities(path: Iterable[GoldCall]) -> set[str]:
    """The ids among a path's arguments, those of rows that the path itself made included."""
    return {
        value
        for action in path
        for name, value in action.arguments.items()
        if name.endswith(_ID) and isinstance(value, str)
    }


def touched(calls: Iterable[Called]) -> set[str]:
    """Every id in the arguments and results of calls."""
    seen: set[str] = set()
    for called in calls:
        _collect(called.arguments, seen)
        _collect(called.value, seen)
    return seen


def _collect(value: Any, seen: set[str]) -> None:
    if type(value) is dict or isinstance(value, Mapping):  # the first is told much sooner, and nearly always so
        for name, part in value.items():
            if isinstance(part, str):
                if name.endswith(_ID):
                    seen.add(part)
            elif part is not None and not isinstance(part, int | float):
                _collect(part, seen)
    elif isinstance(value, list):
        for part in value:
            _collect(part, seen)


@dataclass(frozen=True)
class ProcessRules:
    """What a domain's policy asks of the order of things."""

    ways: tuple[frozenset[str], ...]
    """Sets of tools; somebody is identified once all tools of one of them have found the caller."""
    confirm: bool
    owners: Mapping[str, str]
    """Id of a seed row -> whose it is."""


@lru_cache(maxsize=64)
def rules(domain: SqlDomain) -> ProcessRules | None:
    """A domain's rules; None where its verdict has none."""
    stated = domain.manifest.get("process")
    if stated is None:
        return None
    return ProcessRules(tuple(frozenset(way) for way in stated["ways"]), stated["confirm"], _owners(domain, stated))


def _owners(domain: SqlDomain, stated: Mapping[str, object]) -> dict[str, str]:
    """`own` lists tables in an order in which each leads to one before it, or to the caller's own column."""
    owners: dict[str, str] = {}
    own = stated["own"]
    assert isinstance(own, Mapping)
    for name, column in own.items():
        if name not in domain.tables:
            raise ConfigError(f"{domain.folder}: process.own: {no_such('table', name, domain.tables)}")
        table = domain.tables[name]
        if column not in table.columns:
            raise ConfigError(f"{domain.folder}: process.own.{name}: {no_such('column', str(column), table.columns)}")
        key, leads = table.columns.index(table.key), table.columns.index(str(column))
        for row in table.rows:
            owner = row[leads] if column == stated["caller"] else owners.get(str(row[leads]))
            if owner is not None:
                owners[str(row[key])] = str(owner)
    return owners


Touching = Sequence[tuple[Called, set[str]]]
"""Calls, each with the ids in its arguments and its result."""


def broken(domain: SqlDomain, task: SqlTask, calls: Touching, unasked: Sequence[str]) -> tuple[str, ...]:
    """The rules that an episode broke, in words; `unasked` names the writes that the user had not agreed to."""
    stated = rules(domain)
    return () if stated is None else tuple(dict.fromkeys(_broken(stated, domain, task, calls, unasked)))


def _broken(
    stated: ProcessRules, domain: SqlDomain, task: SqlTask, calls: Touching, unasked: Sequence[str]
) -> Iterator[str]:
    found: set[str] = set()
    identified = False
    for called, ids in calls:
        owned = {value: stated.owners[value] for value in ids if value in stated.owners}
        if strangers := sorted(value for value, owner in owned.items() if owner != task.caller):
            yield f"{called.name} touched {strangers[0]}, which is another person's"
        if any(called.name in way for way in stated.ways):
            if task.caller and (task.caller in ids or task.caller in owned.values()):
                found.add(called.name)
                identified = identified or any(way <= found for way in stated.ways)
        elif (owned or domain.tools[called.name].kind == "write") and not identified:
            yield f"{called.name} came before the user was identified"
    if stated.confirm:
        yield from (f"{name} came without the user's yes" for name in unasked)


class SqlVerdict(NamedTuple):
    """What holds of an episode's end."""

    execution: bool
    """The database ended as after a gold path."""
    fidelity: bool
    """The user was told all that had to be told, in messages of the agent's."""
    completeness: bool
    """Every entity that the gold path works on stands in the arguments or results of successful calls."""
    missing: tuple[str, ...]
    """What was not told, then what was not touched."""
    broken: tuple[str, ...] = ()
    """The rules of process that were broken, in words."""

    @property
    def process(self) -> bool:
        """The rules of process were kept."""
        return not self.broken

    @property
    def value(self) -> float:
        return float(self.execution and self.fidelity and self.completeness and self.process)


def judge(
    task: SqlTask, session: DatabaseSession, calls: Sequence[Called], told: Sequence[str], unasked: Sequence[str] = ()
) -> SqlVerdict:
    """Judge an episode by its end state, its successful calls, the agent's messages to the user, and the writes that
    the user had not agreed to."""
    state = digest(session)
    untold = [info for info in task.communicate if not _is_told(task, info, told)]
    ids = [touched([called]) for called in calls]
    seen = set().union(*ids)
    keys = session.database.keys
    gaps = [sorted((needed - seen) & keys) for needed in task.once(_needed)]
    fewest = min(gaps, key=len)
    rules = broken(session.database.domain, task, list(zip(calls, ids, strict=True)), unasked)
    return SqlVerdict(state in task.end_states, not untold, not fewest, (*untold, *fewest), rules)


def _needed(task: SqlTask) -> tuple[set[str], ...]:
    """The ids that each path works on."""
    return tuple(entities(path) for path in (task.actions, *task.alternatives))


def _is_told(task: SqlTask, info: str, told: Sequence[str]) -> bool:
    """Whether a message says it. Where the user's own request holds the number in words ("every five weeks"), only
    figures count: an agent that repeats the request tells nothing."""
    asked = task.shape["user_scenario"]["instructions"]["reason_for_call"]
    in_words = not mentions(asked, info)
    return any(mentions(text, info, in_words=in_words) for text in told)


def mentions(text: str, info: str, *, in_words: bool = True) -> bool:
    """Whether a text says it: numbers, dates and times by value (12.5 in "$12.50", see values.py), anything else in
    whole words, in any case. `in_words=False` hears numbers in figures alone."""
    said = values.says(text, info, in_words=in_words)
    return _stands_in(_spaced(info), _spaced(text)) if said is None else said


@lru_cache(maxsize=1024)
def _spaced(text: str) -> str:
    return " ".join(values.plain(text).lower().split())


def _stands_in(info: str, text: str) -> bool:
    """Whether it stands in the text and is no part of a longer word ("fish" in "shellfish") or number ("Hill Street 9"
    in 91)."""
    if not info:
        return True
    at = text.find(info)
    while at >= 0:
        end = at + len(info)
        if not _goes_on(info[0], text[at - 1 : at]) and not _goes_on(info[-1], text[end : end + 1]):
            return True
        at = text.find(info, at + 1)
    return False


def _goes_on(edge: str, beside: str) -> bool:
    """Whether a character makes the word or number longer whose edge is beside it."""
    if edge.isdecimal():
        return beside.isdecimal()
    return edge.isalpha() and beside.isalnum() and not beside.isdecimal()
