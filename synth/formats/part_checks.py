"""What the first parts of a spec must be before the next is written: who it is about, its schema, its rows."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.domains.toolscale.database import build
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTable
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.allowed_sql import Fenced, holding
from toolorchestra.synth.formats.seed_rows import Maker, bounds

Parts = Mapping[str, str]
"""The texts of a spec so far, by file name."""
MOST_ROWS = 20_000
LEAST_PEOPLE = 10
MOST_ALIKE_SHARE = 0.3
"""Share of a table's rows that may be the same but for their ids."""
MOST_TEXT = 500
_REFERENCE = re.compile(r"\bREFERENCES\s+\"?(\w+)", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?|\d\d:\d\d")
_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[a-z]+")
_DATED = ("_at", "_on", "_until", "_date", "_day")
_TELLING = 3
"""Values that a row has besides its id, for it to be told from others: free places of one kind may be alike."""
_NEVER_NEGATIVE = ("price", "fee", "cost", "fare")
_STUBS = {
    "schema.sql": "",
    "rows.yaml": "tables: []\n",
    "tools.yaml": "- {name: none}\n",
    "policy.md": "",
    "intents.yaml": "- {intent: none, draw: '', say: [''], actions: []}\n",
}


class Fault(NamedTuple):
    """What a check found, in words that its author can act on."""

    reason: str
    """A short name, for counting."""
    seen: str
    entry: str = ""
    """The tool or intent that it is about, where it is about one."""


Check = Callable[[Parts, int], list[Fault]]


def partial(parts: Parts) -> specs.Spec:
    """The spec as far as it goes, with nothing in the parts that are still to come. Raises ConfigError."""
    return specs.read({**_STUBS, **parts}, Path("spec"), whole="intents.yaml" in parts)


def subjects(parts: Parts, _seed: int) -> list[Fault]:
    """domain.yaml: a usable name and clock, people who can be identified."""
    return [
        Fault("identification", f"user.ways[{number}] needs a fact with a value and an action")
        for number, way in enumerate(partial(parts).head["user"]["ways"])
        if not way["actions"] or not any("value" in fact for fact in way["facts"])
    ]


def schema(parts: Parts, _seed: int) -> list[Fault]:
    """schema.sql compiles behind the fence, its tables have keys and constraints, and users can be drawn from it."""
    database = Fenced()
    places.at("schema.sql")
    try:
        database.script(parts["schema.sql"])
        _, tables = database.found("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        faults = _tables({name: sql or "" for name, sql in tables})
        if not faults:
            spec = partial(parts)
            faults = _draw(database, spec) or _own(database, spec, [name for name, _ in tables])
    except (sqlite3.Error, sqlite3.Warning, ValueError) as err:
        return [Fault("SQL", f"schema.sql: {err}; only CREATE TABLE and CREATE INDEX are allowed")]
    finally:
        database.close()
    return faults


def _tables(tables: Mapping[str, str]) -> list[Fault]:
    faults = []
    if len(tables) < 2:
        faults.append(Fault("tables", f"two tables or more expected, got {len(tables)}"))
    for name, sql in tables.items():
        if not re.search(r"\bTEXT\b[^,]*\b(UNIQUE|PRIMARY KEY)", sql, re.IGNORECASE):
            faults.append(Fault("key", f"table {name} needs a key column `..._id TEXT NOT NULL UNIQUE`"))
        if re.search(r"WITHOUT\s+ROWID", sql, re.IGNORECASE):
            faults.append(Fault("key", f"table {name} must have a rowid; take WITHOUT ROWID out"))
        missing = [parent for parent in _REFERENCE.findall(sql) if parent not in tables]
        faults += [Fault("reference", f"table {name} refers to {parent}, which is no table") for parent in missing]
    together = " ".join(tables.values()).upper()
    for word in ("REFERENCES", "CHECK", "NOT NULL"):
        if word not in together and tables:
            faults.append(Fault("constraints", f"no {word} in the whole schema; rules of every row belong there"))
    return faults


def _draw(database: Fenced, spec: specs.Spec) -> list[Fault]:
    user = spec.head["user"]
    places.at("domain.yaml: user.draw")
    try:
        columns, _ = database.found(user["draw"], spec.times)
    except sqlite3.Error as err:
        return [Fault("user.draw", f"domain.yaml's user.draw does not run on these tables: {err}: {user['draw']}")]
    if user["key"] not in columns:
        return [Fault("user.draw", f"domain.yaml's user.draw gives no column {user['key']!r}; it gives {columns}")]
    return []


def _own(database: Fenced, spec: specs.Spec, tables: Sequence[str]) -> list[Fault]:
    """The rules of process name tables and columns that exist."""
    faults = []
    for table, column in spec.head.get("process", {"own": {}})["own"].items():
        columns = database.found(f'SELECT * FROM "{table}" LIMIT 0')[0] if table in tables else []
        if column not in columns:
            there = ", ".join(columns) or "none: there is no such table"
            seen = f"domain.yaml's process.own names column {column!r} of table {table!r}, which has {there}"
            faults.append(Fault("process.own", seen))
    return faults


def rows(parts: Parts, seed: int) -> list[Fault]:
    """rows.yaml makes rows that fit the schema, refer to each other, differ from each other, and are plausible."""
    spec = partial(parts)
    most: dict[str, int] = {}
    for one in spec.tables:
        _, high = bounds(one.get("per", (1, 1)), f"rows.yaml: table {one['table']!r}")
        most[one["table"]] = most.get(one["each"], 0) * high if "each" in one else one.get("count", 0)
    if (size := sum(most.values())) > MOST_ROWS:
        return [Fault("size", f"up to {size} rows; at most {MOST_ROWS} are allowed in all tables together")]
    tables = Maker(spec, seed).tables()
    build(spec.schema, tables, "rows.yaml")
    empty = [name for name, table in tables.items() if not table.rows]
    faults = [Fault("empty", f"table {name} has no row; every table needs one") for name in empty]
    for name, table in tables.items():
        faults += _odd_rows(name, table, spec.head["clock"])
    return [*faults, *_keys(tables), *_people(spec, tables)][:20]


def _odd_rows(name: str, table: SqlTable, clock: str) -> Iterator[Fault]:
    """Rows that repeat another, and values that are none of what their column is named after."""
    key = table.columns.index(table.key)
    others = [(*row[:key], *row[key + 1 :]) for row in table.rows]
    told = [row for row in others if sum(value is not None for value in row) >= _TELLING]
    if (same := len(told) - len(set(told))) > MOST_ALIKE_SHARE * len(table.rows):
        yield Fault("duplicates", f"table {name}: {same} of {len(table.rows)} rows repeat another but for {table.key}")
    for at, column in enumerate(table.columns):
        found = [row[at] for row in table.rows if row[at] is not None]
        odd = next((value for value in found if not believable(column, value, clock)), None)
        if odd is not None:
            yield Fault("plausibility", f"table {name}: {column} holds {odd!r:.80}, which is no such value")


def believable(column: str, value: Any, clock: str) -> bool:
    """Whether a column of this name may hold a value."""
    if isinstance(value, str):
        if len(value) > MOST_TEXT or "{" in value:
            return False
        if column == "email":
            return _MAIL.fullmatch(value) is not None
        return not column.endswith(_DATED) or _DAY.fullmatch(value) is not None
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if column == "birth_year":
        return bool(1900 <= value <= int(clock[:4]))
    return not (column.endswith(_NEVER_NEGATIVE) and float(value) < 0)


def _keys(tables: Mapping[str, SqlTable]) -> list[Fault]:
    owner: dict[Any, str] = {}
    for name, table in tables.items():
        for row in table.rows:
            key = row[table.columns.index(table.key)]
            if owner.setdefault(key, name) != name:
                both = f"{owner[key]} and in {name}"
                return [Fault("ids", f"{key!r:.40} is an id in {both}; keep their prefixes distinct")]
    return []


def _people(spec: specs.Spec, tables: Mapping[str, SqlTable]) -> list[Fault]:
    user = spec.head["user"]
    places.at("domain.yaml: user.draw")
    try:
        with closing(holding(spec.schema, tables)) as database:
            columns, found = database.found(user["draw"], spec.times)
    except sqlite3.Error as err:
        return [Fault("user.draw", f"domain.yaml's user.draw: {err}")]
    keys = {row[columns.index(user["key"])] for row in found}
    if len(keys) < LEAST_PEOPLE:
        return [Fault("people", f"user.draw finds {len(keys)} people, at least {LEAST_PEOPLE} expected")]
    return []
