"""The fence around a spec's own SQL: it may define tables, then work on them, then read, and do nothing else.

A domain's tools run under the stricter authorizer of `envs/domains/toolscale/database.py`. A spec's rows are put right
by any statement that writes, and its draws may be long; but no file, no pragma, no trigger, no chance and no clock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from toolorchestra.envs.domains.toolscale.bounded_functions import FAILED, MOST_LENGTH, bound, told
from toolorchestra.envs.domains.toolscale.database import (
    FUNCTIONS,
    MOST_OPERATIONS,
    TOO_LARGE,
    defines,
    too_much_defined,
)
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTable

OPERATIONS_A_TICK = 100_000
MOST_TICKS = 500
"""A statement may take 50 million steps of SQLite's machine: a second or so, the same number on every machine."""
MOST_FOUND = 200_000
"""Rows that one statement may give."""
MOST_SQL = 100_000
"""Characters of one statement, or of a schema."""
Phase = Literal["define", "fill", "read"]
"""schema.sql defines; rows and `finish` fill; draws read."""
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION})
_FILLING = _READING | {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_SAVEPOINT}


class Fenced:
    """A database in memory behind the fence. Raises sqlite3.Error for what is not allowed or takes too long."""

    def __init__(self) -> None:
        # No cache: a statement that was prepared while rows were filled must not run again while draws only read.
        self._connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        self._ticks = 0
        self._phase: Phase = "fill"
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_LENGTH)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_SQL)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, MOST_OPERATIONS)
        self._connection.set_authorizer(self._judged)
        self._connection.set_progress_handler(self._tick, OPERATIONS_A_TICK)
        bound(self._connection)

    def _judged(
        self, action: int, first: str | None, second: str | None, _base: str | None, _trigger: str | None
    ) -> int:  # fmt: skip
        if self._phase == "define":
            allowed = defines(action, first, second)
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() in FUNCTIONS
        else:
            allowed = action in (_READING if self._phase == "read" else _FILLING)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    def _tick(self) -> bool:
        self._ticks += 1
        return self._ticks > MOST_TICKS

    def script(self, sql: str) -> None:
        """Several statements: a schema. It defines tables and indexes, and nothing else."""
        self._phase, self._ticks = "define", 0
        try:
            self._connection.executescript(sql)
        except sqlite3.OperationalError as err:
            raise _with_reason(err) from None
        finally:
            self._phase = "fill"
        if seen := too_much_defined(self._connection):
            raise sqlite3.DataError(seen)

    def fill(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Put rows into a table."""
        marks = ", ".join("?" * len(columns))
        for row in rows:
            self.run(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", row)

    def run(self, sql: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> sqlite3.Cursor:
        """One statement, which may write."""
        self._ticks = 0
        try:
            return self._connection.execute(sql, values)
        except sqlite3.OperationalError as err:
            raise _with_reason(err) from None
        except MemoryError:
            raise sqlite3.DataError(TOO_LARGE) from None

    def found(self, sql: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> tuple[list[str], list[Any]]:
        """A query's columns and all of its rows. It may not write."""
        before, self._phase = self._phase, "read"
        try:
            cursor = self.run(sql, values)
            rows = cursor.fetchmany(MOST_FOUND + 1)
        except sqlite3.OperationalError as err:
            raise _with_reason(err) from None
        except MemoryError:
            raise sqlite3.DataError(TOO_LARGE) from None
        except sqlite3.DatabaseError as err:
            if "not authorized" in str(err):
                raise sqlite3.DatabaseError(
                    f"{err}: a draw may only read, with the functions that tools have"
                ) from None
            raise
        finally:
            self._phase = before
        if len(rows) > MOST_FOUND:
            raise sqlite3.DataError(f"more than {MOST_FOUND} rows; narrow the query")
        return [column[0] for column in cursor.description or ()], rows

    def close(self) -> None:
        """Closes the database. It was in memory, so its rows are gone."""
        self._connection.close()


def holding(schema: str, tables: Mapping[str, SqlTable]) -> Fenced:
    """A fenced database with these rows."""
    made = Fenced()
    made.script(schema)
    for name, table in tables.items():
        made.fill(name, table.columns, table.rows)
    return made


def _with_reason(err: sqlite3.OperationalError) -> sqlite3.OperationalError:
    if str(err) == "interrupted":
        steps = OPERATIONS_A_TICK * MOST_TICKS
        return sqlite3.OperationalError(f"took more than {steps} steps of SQLite's machine and was stopped")
    if str(err) in ("disk I/O error", "database or disk is full"):  # the process may write no large files
        return sqlite3.OperationalError(f"{err}: what it sorts or keeps is too large; give it fewer or shorter values")
    return sqlite3.OperationalError(told(err)) if FAILED in str(err) else err
