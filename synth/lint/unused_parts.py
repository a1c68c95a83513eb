"""Tools that no gold path calls, and columns that no tool shows: nobody can learn what stands in them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing

from toolorchestra.envs.domains.toolscale.bounded_functions import bound
from toolorchestra.envs.domains.toolscale.domain import SqlDomain
from toolorchestra.synth.lint.ground import Finding, Ground

_INSERT = re.compile(r"\s*INSERT\s+INTO\s+(\w+)", re.IGNORECASE)
_USING = re.compile(r"\bUSING\s*\(([^)]*)\)", re.IGNORECASE)
Cell = tuple[str, str]
"""A table and one of its columns."""


def tools(ground: Ground) -> Iterator[Finding]:
    """Tools that no gold call of an intent or of identification uses."""
    entries = ground.spec.intents
    paths = [path for entry in entries for path in (entry["actions"], *entry.get("otherwise", []))]
    paths += [way["actions"] for way in ground.spec.head["user"]["ways"]]
    used = {name for path in paths for row in path for name in row}
    for tool in ground.bench.domain.tools.values():
        if tool.name not in used:
            seen = "no intent's gold calls have it" + (": no task hands over to a person" if tool.transfers else "")
            yield Finding(
                "unused tool", "tools.yaml", f"tool {tool.name}", seen, "an intent that needs it", certain=True
            )


def columns(ground: Ground) -> Iterator[Finding]:
    """Columns that no tool's result or message shows. Worse where an intent's draw goes by one: the agent cannot."""
    domain = ground.bench.domain
    shown, guarded = _seen(domain)
    spoken, filled = _told_by_users(ground), _filled(domain)
    for name, table in domain.tables.items():
        mine = [(name.lower(), column.lower()) for column in table.columns]
        if filled.get(name):
            continue  # what the tool that hands over writes is for people
        if name in filled and not any(cell in shown for cell in mine):
            seen = "tools write rows of it, and no tool shows them"
            yield Finding("hidden column", "schema.sql", f"table {name}", seen, "a reading tool that shows its rows")
            continue
        for column, cell in zip(table.columns, mine, strict=True):
            if cell in shown or column in spoken or column == table.key:
                continue
            if seen := _hidden(ground, name, column, guarded=cell in guarded):
                expected = "a reading tool that shows it, or no such column"
                where = f"column {name}.{column}"
                yield Finding("hidden column", "schema.sql", where, seen, expected, certain=True)


def _hidden(ground: Ground, table: str, column: str, *, guarded: bool) -> str:
    """What is wrong with a column that is not shown; "" where a guard's refusal is all that depends on it."""
    by = [entry for entry in ground.spec.intents if _goes_by(entry["draw"], table, column)]
    if not guarded:
        return "no tool reads it" + (f", and the draw of intent {by[0]['intent']} goes by it" if by else "")
    refused = [entry["intent"] for entry in by if entry.get("ending", "serve") == "refuse"]
    return f"only guards of tools read it, and intent {refused[0]} is to be refused by it" if refused else ""


def _filled(domain: SqlDomain) -> dict[str, bool]:
    """Tables that tools put rows into, and whether those that hand over to a person alone do."""
    found: dict[str, bool] = {}
    for tool in domain.tools.values():
        for step in tool.steps:
            if step.verb == "do" and (match := _INSERT.match(step.sql)):
                found[match[1]] = found.get(match[1], True) and tool.transfers
    return found


def _goes_by(draw: str, table: str, column: str) -> bool:
    _, _, condition = draw.upper().partition("WHERE")
    pattern = rf"\b{re.escape(column.upper())}\b"
    return bool(re.search(rf"\b{re.escape(table)}\b", draw, re.IGNORECASE) and re.search(pattern, condition))


def _told_by_users(ground: Ground) -> set[str]:
    """Columns that callers know of themselves and say."""
    facts = [fact for way in ground.spec.head["user"]["ways"] for fact in way["facts"]]
    facts += [fact for entry in ground.spec.intents for fact in entry.get("facts", [])]
    return {name for fact in facts for name in re.findall(r"\{(\w+)\}", fact.get("value", ""))}


def _seen(domain: SqlDomain) -> tuple[set[Cell], set[Cell]]:
    """The cells that results or messages of tools show, and those that other statements of tools read."""
    shown: set[Cell] = set()
    guarded: set[Cell] = set()
    with closing(sqlite3.connect(":memory:")) as connection:
        bound(connection)
        connection.executescript(domain.schema)
        for tool in domain.tools.values():
            given = {name: None for name in (*tool.parameters.get("properties", {}), "now", "today")}
            texts = " ".join([tool.result, *(step.error for step in tool.steps)])
            for step in tool.steps:
                sql = f"SELECT ({step.sql})" if step.verb == "check" else step.sql
                read, made = _read(connection, sql, given)
                given.update(dict.fromkeys(made))
                # what a let gives is shown where a message or the result names it
                told = step.verb == "let" and any(re.search(rf"[:{{]{re.escape(name)}\b", texts) for name in made)
                (shown if told else guarded).update(read)
            shown |= _read(connection, tool.result, given)[0] | _joined(domain, tool.result)
    return shown, guarded - shown


def _joined(domain: SqlDomain, sql: str) -> set[Cell]:
    """Columns by which a result joins tables: SQLite does not say that USING reads them."""
    tables = [name for name in domain.tables if re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)]
    keys = {key.strip().lower() for names in _USING.findall(sql) for key in names.split(",")}
    return {
        (name.lower(), key) for name in tables for key in keys if key in map(str.lower, domain.tables[name].columns)
    }


def _read(connection: sqlite3.Connection, sql: str, given: Mapping[str, None]) -> tuple[set[Cell], list[str]]:
    """What a statement reads, and the columns that it gives. Run on empty tables."""
    found: set[Cell] = set()

    def seen(action: int, first: str | None, second: str | None, _base: str | None, _trigger: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first and second:
            found.add((first.lower(), second.lower()))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(seen)
    try:
        cursor = connection.execute(sql, dict(given))
        made = [column[0] for column in cursor.description or ()]
    except sqlite3.IntegrityError:  # a write of nothing breaks a rule of the tables
        made = []
    finally:
        connection.set_authorizer(None)
    return found, made
