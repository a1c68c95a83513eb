"""The fence around a spec's own SQL: it may define tables and work on them, within limits, and do nothing else.

A domain's tools run under the stricter authorizer of `envs/domains/toolscale/database.py`. A spec's schema, its row
recipes and its draws need more than that (they create tables, and join freely), but no file, no pragma, no trigger, no
chance.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.domains.toolscale.database import MOST_LENGTH

OPERATIONS_A_TICK = 100_000
MOST_TICKS = 3_000
"""A statement may take 300 million steps of SQLite's machine: some seconds, the same number on every machine."""
MOST_FOUND = 200_000
"""Rows that one statement may give."""
FORBIDDEN = frozenset("load_extension random randomblob zeroblob readfile writefile edit fts3_tokenizer".split())
_ALLOWED = frozenset(
    {
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
    }
)


class Fenced:
    """A database in memory behind the fence. Raises sqlite3.Error for what is not allowed or takes too long."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._ticks = 0
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_LENGTH)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.set_authorizer(_judged)
        self._connection.set_progress_handler(self._tick, OPERATIONS_A_TICK)

    def _tick(self) -> bool:
        self._ticks += 1
        return self._ticks > MOST_TICKS

    def script(self, sql: str) -> None:
        """Several statements: a schema."""
        self._ticks = 0
        self._connection.executescript(sql)

    def run(self, sql: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> sqlite3.Cursor:
        """One statement."""
        self._ticks = 0
        return self._connection.execute(sql, values)

    def found(self, sql: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> tuple[list[str], list[Any]]:
        """A query's columns and all of its rows."""
        cursor = self.run(sql, values)
        rows = cursor.fetchmany(MOST_FOUND + 1)
        if len(rows) > MOST_FOUND:
            raise sqlite3.DataError(f"more than {MOST_FOUND} rows; narrow the query")
        return [column[0] for column in cursor.description or ()], rows

    def close(self) -> None:
        """Forget the database."""
        self._connection.close()


def _judged(action: int, first: str | None, second: str | None, _base: str | None, _trigger: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in FORBIDDEN else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
