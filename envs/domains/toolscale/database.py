"""SQLite in memory, fenced in: one reader a domain, and a pool of private copies for episodes that write.

An episode reads from the domain's shared, never changing copy until its first write; then it takes a private copy and
opens one transaction that is never committed. Rolling it back is the whole reset. What was changed is logged by
triggers, so that the end state is known by its difference from the seed rows.

Not covered: SQLite's own bugs. Statements come from a domain's tools.json, arguments are always bound.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.domains.toolscale.bounded_functions import MOST_LENGTH, bound, told
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTable, Value

LOG = "_changes"
Change = tuple[str, tuple[Value, ...] | None, tuple[Value, ...] | None]
"""A row that is not as it was: its table, the seed row and the row now (None: there is none)."""
OPERATIONS_A_TICK = 20_000
MOST_TICKS = 100
"""A call may take two million steps of SQLite's machine: tens of milliseconds, the same number on every machine."""
MOST_SECONDS = 10.0
"""Limit of a statement's time: no longer than this, which only SQL that works on very long texts takes."""
MOST_OPERATIONS = 25_000
"""Limit of one statement, written down for SQLite's machine: columns that are computed from computed columns double
them."""
TOO_LARGE = f"a statement takes more than {MOST_OPERATIONS} operations of SQLite's machine, or more than the memory"
MOST_IDLE = 64
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MOST_LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: MOST_OPERATIONS,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
FUNCTIONS = frozenset(
    "abs avg cast ceil ceiling changes coalesce count date datetime floor group_concat iif ifnull instr "
    "json_array json_array_length json_each json_extract json_group_array json_group_object json_object julianday "
    "last_insert_rowid length like lower ltrim max min nullif printf format replace round rtrim strftime substr "
    "substring sum time total trim typeof unicode upper row_number rank".split()
)
"""What tools may compute with. Nothing random, nothing that reads files. Those that could take long, allocate by a
number or read the clock are not SQLite's own: see bounded_functions.py."""
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_WRITING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_OURS = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT})


def authorize(action: int, first: str | None, second: str | None, trigger: str | None) -> bool:
    """Whether a tool's statement may do this."""
    if trigger is not None and trigger.startswith("_log_"):
        return True
    if action == sqlite3.SQLITE_FUNCTION:
        return (second or "").lower() in FUNCTIONS
    if action in _WRITING or action == sqlite3.SQLITE_READ:
        return first is not None and not first.startswith(("_", "sqlite_"))
    return action in _READING


def _fence(connection: sqlite3.Connection) -> list[int]:
    """Set limits, authorizer and deadline. Gives the counter of the call that runs: empty between calls."""
    limit(connection)
    connection.execute("PRAGMA foreign_keys = ON")
    # A CHECK may use bounded functions, which SQLite takes for strangers' ones. The schema's were looked at when built.
    connection.execute("PRAGMA trusted_schema = ON")
    bound(connection)

    def guard(action: int, first: str | None, second: str | None, _base: str | None, trigger: str | None) -> int:
        allowed = action in _OURS or first == LOG or authorize(action, first, second, trigger)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    ticks: list[int] = []
    until = 0.0

    def tick() -> bool:
        nonlocal until
        if not ticks:  # what is read of an episode's changes belongs to no call
            return False
        ticks[0] += 1
        if ticks[0] == 1:
            until = time.monotonic() + MOST_SECONDS
        return ticks[0] > MOST_TICKS or time.monotonic() > until

    connection.set_authorizer(guard)
    connection.set_progress_handler(tick, OPERATIONS_A_TICK)
    return ticks


_COMMENT_OR_TEXT = re.compile(
    r"""(--[^\n]*|/\*.*?(?:\*/|\Z))|'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)""", re.DOTALL
)
"""One pass over a statement, however its comments and texts stand in each other."""
_REPLACING = re.compile(r"\bon\s+conflict\s+replace\b", re.IGNORECASE)
_DEFINING = frozenset({sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_REINDEX})
_MOST_BUILDING_TICKS = 3_000
_BUILDING_OPERATIONS_A_TICK = 100_000


MOST_DEFINED = 256
"""Tables and indexes of a schema, those that SQLite makes for UNIQUE columns among them. Each costs every row."""


def without_comments(sql: str) -> str:
    """SQL with a blank in place of each comment; texts stay as they are."""
    return _COMMENT_OR_TEXT.sub(lambda found: " " if found[1] else found[0], sql)


def limit(connection: sqlite3.Connection) -> None:
    """How large a tool's statement may be, and what it may hold."""
    for name, most in _LIMITS.items():
        connection.setlimit(name, most)


def too_much_defined(connection: sqlite3.Connection) -> str:
    """Why a schema is too large; "" where it is not."""
    (count,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return f"{count} tables and indexes, at most {MOST_DEFINED} are allowed" if count > MOST_DEFINED else ""


def defines(action: int, first: str | None, second: str | None) -> bool:
    """Whether a statement of schema.sql may do this: tables and indexes are defined, and nothing is read or written but
    SQLite's own list of them."""
    if action == sqlite3.SQLITE_FUNCTION:
        return (second or "").lower() in FUNCTIONS
    if action in _WRITING or action == sqlite3.SQLITE_READ:
        # An index reads its own columns, which no statement can do without SELECT.
        return action == sqlite3.SQLITE_READ or (first or "").startswith("sqlite_")
    return action in _DEFINING or action in _OURS


def _fence_building(connection: sqlite3.Connection) -> Callable[[], None]:
    """Fence a folder's own schema and rows: first tables and indexes are defined; then, when what is given back was
    called, rows are filled in. No file, no pragma, no end."""
    ticks = 0
    filling = False

    def guard(action: int, first: str | None, second: str | None, _base: str | None, _trigger: str | None) -> int:
        allowed = defines(action, first, second) or (filling and action in _READING | _WRITING)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks > _MOST_BUILDING_TICKS

    def fill() -> None:
        nonlocal filling
        filling = True

    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, MOST_OPERATIONS)
    connection.set_authorizer(guard)
    connection.set_progress_handler(tick, _BUILDING_OPERATIONS_A_TICK)
    bound(connection)
    return fill


def build(schema: str, tables: Mapping[str, SqlTable], where: str) -> bytes:
    """The snapshot: schema, rows and change log, checked for broken references."""
    if _REPLACING.search(without_comments(schema)):
        raise ConfigError(f"{where}: schema.sql: ON CONFLICT REPLACE deletes rows unseen; leave the clause out")
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        fill = _fence_building(connection)
        try:
            connection.executescript(schema)
        except sqlite3.Error as err:
            raise ConfigError(
                f"{where}: schema.sql: {told(err)}; it defines tables and indexes, and nothing else"
            ) from err
        fill()
        if seen := too_much_defined(connection):
            raise ConfigError(f"{where}: schema.sql: {seen}")
        connection.execute("BEGIN")
        for name, table in tables.items():
            marks = ", ".join("?" * len(table.columns))
            columns = ", ".join(table.columns)
            connection.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", table.rows)
        connection.execute("COMMIT")
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken:
            raise ConfigError(f"{where}: row {broken[1]} of {broken[0]} refers to a missing row of {broken[2]}")
        _check_tables(connection, tables, where)
        _check_places(connection, tables, where)
        connection.execute(
            f"CREATE TABLE {LOG} (tab TEXT, rid INTEGER, made INTEGER, PRIMARY KEY (tab, rid)) WITHOUT ROWID"
        )
        for name in tables:
            # ON CONFLICT, for INSERT OR IGNORE would give way to the OR of a tool's own statement.
            for event, row, made, seen in (
                ("INSERT", "NEW", 1, "UPDATE SET made = 1"),
                ("UPDATE", "OLD", 0, "NOTHING"),
                ("UPDATE", "NEW", 0, "NOTHING"),
                ("DELETE", "OLD", 0, "NOTHING"),
            ):
                connection.execute(
                    f"CREATE TRIGGER _log_{name}_{event}_{row} AFTER {event} ON {name} BEGIN"
                    f" INSERT INTO {LOG} VALUES ('{name}', {row}.rowid, {made}) ON CONFLICT (tab, rid) DO {seen}; END"
                )
        return connection.serialize()
    except sqlite3.Error as err:
        raise ConfigError(f"{where}: {told(err)}; the rows must fit schema.sql") from err
    except MemoryError:
        raise ConfigError(f"{where}: schema.sql: {TOO_LARGE}") from None
    finally:
        connection.close()


def _check_tables(connection: sqlite3.Connection, tables: Mapping[str, SqlTable], where: str) -> None:
    """The log follows the tables that are listed: what is written to another would be no part of a state."""
    listed = {name.lower() for name in tables}
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    ):
        if name.lower() not in listed:
            raise ConfigError(f"{where}: schema.sql has a table {name!r} that the rows do not list; list it or drop it")


def _check_places(connection: sqlite3.Connection, tables: Mapping[str, SqlTable], where: str) -> None:
    """A seed row is known again by its rowid, its place among the rows."""
    for name, table in tables.items():
        at = table.columns.index(table.key)
        wanted = [(place, str(row[at])) for place, row in enumerate(table.rows, 1)]
        found = connection.execute(f"SELECT rowid, {table.key} FROM {name} ORDER BY rowid")
        if wanted != [(rowid, str(key)) for rowid, key in found]:
            raise ConfigError(
                f"{where}: the rowids of {name} must count its rows from 1; leave them to SQLite: schema.sql with no"
                " INTEGER PRIMARY KEY, no column named rowid and no INSERT"
            )


def broken_off(name: str) -> Outage:
    """SQLite ends the whole transaction, not the call alone, where it stops a statement that writes."""
    return Outage(f"{name} broke off in a write, which undid all that the episode wrote; give it cheaper statements")


class Copy:
    """A connection to a copy of its own, with its deadline's counter."""

    __slots__ = ("connection", "reusable", "ticks")

    def __init__(self, snapshot: bytes) -> None:
        self.reusable = True
        """Whether a rollback gives the seed rows; not of one that began with what another episode had written."""
        # Calls may run on another thread than the one that made the copy, never on two at once.
        self.connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=512
        )
        self.connection.deserialize(snapshot)
        self.ticks = _fence(self.connection)


class Written(NamedTuple):
    """All that an episode has written, as data: what another copy needs to go on from there."""

    tables: Mapping[str, tuple[Sequence[str], Sequence[tuple[Value, ...]]]]
    """Columns and rows of each table with logged rows: its columns, the rowid first, and those of the rows that are
    there."""
    log: Sequence[tuple[Any, ...]]
    last_rowid: int
    """What last_insert_rowid() says."""
    whole: bool
    """False where a call broke off, which undid everything."""


class SqlDatabase:
    """A domain's copies. Serves any number of sessions, from several threads."""

    def __init__(self, domain: SqlDomain) -> None:
        self.domain = domain
        self.lock = threading.Lock()
        self._snapshot = build(domain.schema, domain.tables, str(domain.folder))
        self.reader = Copy(self._snapshot)
        self._idle: deque[Copy] = deque()
        self.keys = frozenset(
            row[table.columns.index(table.key)] for table in domain.tables.values() for row in table.rows
        )
        """The ids of all seed rows."""

    def take(self) -> Copy:
        """A private copy inside its transaction."""
        try:
            copy = self._idle.pop()
        except IndexError:
            copy = Copy(self._snapshot)
        copy.connection.execute("BEGIN")
        return copy

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table that can be written: more than its rows list, where the schema has defaults."""
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(self._snapshot)
            return {
                name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
                for name in self.domain.tables
            }

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def with_written(self, written: Written) -> Copy:
        """A private copy with what an episode has written, inside its transaction."""
        copy = Copy(self._snapshot)
        copy.reusable = False
        connection = copy.connection
        connection.set_authorizer(None)
        connection.execute("PRAGMA foreign_keys = OFF")  # the rows fit together when all are there
        connection.execute("BEGIN")
        for name, rowid, _ in written.log:
            connection.execute(f"DELETE FROM {name} WHERE rowid = ?", (rowid,))
        for name, (columns, rows) in written.tables.items():
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
        connection.execute(f"DELETE FROM {LOG}")
        connection.executemany(f"INSERT INTO {LOG} VALUES (?, ?, ?)", written.log)
        connection.execute("COMMIT")
        if written.last_rowid:
            connection.execute("CREATE TEMP TABLE _last (x)")
            connection.execute("INSERT INTO _last (rowid, x) VALUES (?, 0)", (written.last_rowid,))
            connection.execute("DROP TABLE _last")
        copy.ticks = _fence(connection)
        if written.whole:
            connection.execute("BEGIN")
        return copy

    def give_back(self, copy: Copy) -> None:
        """Undo all that was done to a copy and keep it for the next episode, unless enough are kept. One that fell out
        of its transaction may hold what no rollback undoes, and is thrown away."""
        whole = copy.connection.in_transaction
        with contextlib.suppress(sqlite3.Error):
            copy.connection.execute("ROLLBACK")
        if whole and copy.reusable and len(self._idle) < MOST_IDLE and not copy.connection.in_transaction:
            self._idle.append(copy)
        else:
            copy.connection.close()


class DatabaseSession:
    """One episode's view of the database. Not thread-safe. Gives its copy back when it is closed or forgotten."""

    __slots__ = ("_copy", "database")

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self._copy: Copy | None = None

    @property
    def private(self) -> Copy | None:
        """The private copy, once something was written. Raises Outage where it is out of its transaction."""
        copy = self._copy
        if copy is not None and not copy.connection.in_transaction:
            raise broken_off("an earlier call")
        return copy

    def own(self) -> Copy:
        """The private copy, taken now if need be."""
        copy = self.private
        if copy is None:
            copy = self._copy = self.database.take()
        return copy

    def changes(self) -> list[Change]:
        """Every row that is not as it was."""
        if self._copy is None:
            return []
        execute = self._copy.connection.execute
        found: list[Change] = []
        for name, rowid, made in execute(f"SELECT * FROM {LOG}").fetchall():
            columns = ", ".join(self.database.domain.tables[name].columns)
            now = execute(f"SELECT {columns} FROM {name} WHERE rowid = ?", (rowid,)).fetchone()
            rows = self.database.domain.tables[name].rows  # numbered from 1 in their order
            before = rows[rowid - 1] if 1 <= rowid <= len(rows) else None
            if now != before:
                # A row that is made may get the place of a seed row that is gone.
                both = made and before is not None and now is not None
                found += [(name, before, None), (name, None, now)] if both else [(name, before, now)]
        return found

    def written(self) -> Written | None:
        """What was written; None before the first write."""
        if self._copy is None:
            return None
        connection = self._copy.connection
        log = connection.execute(f"SELECT * FROM {LOG}").fetchall()
        tables = {}
        for name in dict.fromkeys(row[0] for row in log):
            columns = ("rowid", *self.database.columns[name])
            rows = connection.execute(
                f"SELECT {', '.join(columns)} FROM {name} WHERE rowid IN (SELECT rid FROM {LOG} WHERE tab = ?)", (name,)
            ).fetchall()
            tables[name] = columns, rows
        (last,) = connection.execute("SELECT last_insert_rowid()").fetchone()
        return Written(tables, log, last, connection.in_transaction)

    def __reduce__(self) -> tuple[Any, ...]:
        return _session_again, (self.database, self.written())

    def close(self) -> None:
        """Undoes everything that the episode changed, and gives its copy of the database back."""
        copy, self._copy = self._copy, None
        if copy is not None:
            self.database.give_back(copy)

    def __del__(self) -> None:
        self.close()


def _session_again(database: SqlDatabase, written: Written | None) -> DatabaseSession:
    session = DatabaseSession(database)
    if written is not None:
        session._copy = database.with_written(written)
    return session
