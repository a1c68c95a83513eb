"""Rules of process that a policy states and the verdict takes in: identify first, confirm before a change, and leave
the data of others alone.

A domain has them where its manifest says so (`process`). They are judged by what was done: a call that was refused
showed and changed nothing, so it breaks no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.tool_runs import Called


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
