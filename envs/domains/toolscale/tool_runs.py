"""Running a tool: arguments bound, guards checked, statements in a savepoint, the result as JSON within limits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.bounded_functions import FAILED, told
from toolorchestra.envs.domains.toolscale.database import Copy, DatabaseSession, broken_off
from toolorchestra.envs.domains.toolscale.formats import check_formats
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTool, ToolStatement

_AS_JSON = json.JSONEncoder(ensure_ascii=False).encode
MOST_ROWS = 50
MOST_CHARACTERS = 20_000
MORE = f"only the first {MOST_ROWS} are shown; narrow the search"


class Called(NamedTuple):
    """A successful call, as the world remembers it."""

    name: str
    arguments: Mapping[str, Any]
    value: Any
    """The result before it became text."""
    text: str
    """The result as the agent reads it."""

    @property
    def action(self) -> GoldCall:
        """The call's name and arguments, without its result."""
        return GoldCall(self.name, self.arguments)


class Runner:
    """One tool made ready: checks that follow each other are one statement, and missing arguments are NULL."""

    __slots__ = ("_base", "_steps", "tool")

    def __init__(self, tool: SqlTool, clock: str) -> None:
        self.tool = tool
        properties = tool.parameters.get("properties", {})
        self._base = {
            **{name: part.get("default") for name, part in properties.items()},
            "now": clock,
            "today": clock[:10],
        }
        self._steps = _joined(tool.steps)

    def call(self, session: DatabaseSession, arguments: Mapping[str, Any]) -> Called:
        """Run it. Raises ToolError with what the agent can do about it, and then nothing has changed; or Outage, and
        then nothing is left of the episode's writes."""
        check_formats(self.tool.formats, arguments)
        values = {**self._base, **arguments}
        if self.tool.kind == "write":
            return Called(self.tool.name, arguments, *self._transaction(session.own(), values))
        copy = session.private
        if copy is not None:
            return Called(self.tool.name, arguments, *self._contained(copy, values))
        database = session.database
        with database.lock:
            return Called(self.tool.name, arguments, *self._contained(database.reader, values))

    def _transaction(self, copy: Copy, values: dict[str, Any]) -> tuple[Any, str]:
        execute = copy.connection.execute
        execute("SAVEPOINT tool")
        try:
            value = self._contained(copy, values)
        except BaseException as err:
            if not copy.connection.in_transaction:
                raise broken_off(self.tool.name) from err
            execute("ROLLBACK TO tool")
            execute("RELEASE tool")
            raise
        execute("RELEASE tool")
        return value

    def _contained(self, copy: Copy, values: dict[str, Any]) -> tuple[Any, str]:
        copy.ticks[:] = [0]
        name = self.tool.name
        try:
            value = self._run(copy.connection, values)
        except sqlite3.IntegrityError as err:
            raise ToolError(f"{name} would break a rule of the database: {err}. Nothing was changed") from None
        except (sqlite3.DataError, OverflowError) as err:
            raise ToolError(f"{name}: a value is too large ({err}). Nothing was changed") from None
        except sqlite3.OperationalError as err:
            if FAILED in str(err):
                raise ToolError(f"{name}: {told(err)}. Nothing was changed") from None
            if "interrupted" not in str(err):
                raise
            raise ToolError(f"{name} took too long and was stopped; ask for less. Nothing was changed") from None
        finally:
            copy.ticks.clear()
        text = _AS_JSON(value)
        if len(text) > MOST_CHARACTERS:
            raise ToolError(f"{name} found {len(text)} characters, at most {MOST_CHARACTERS} are shown; ask for less")
        return value, text

    def _run(self, connection: sqlite3.Connection, values: dict[str, Any]) -> Any:
        execute = connection.execute
        for verb, sql, errors in self._steps:
            if verb == "do":
                execute(sql, values)
                continue
            cursor = execute(sql, values)
            row = cursor.fetchone()
            if verb == "let":
                if row is None:
                    raise ToolError(_filled(errors[0], values))
                values.update(zip([column[0] for column in cursor.description], row, strict=True))
            elif row[0] is not None:
                raise ToolError(_filled(errors[row[0]], values))
        cursor = execute(self.tool.result, values)
        columns = [column[0] for column in cursor.description]
        rows = [_record(columns, row) for row in cursor.fetchmany(MOST_ROWS + 1 if self.tool.many else 1)]
        if not self.tool.many:
            return rows[0] if rows else None
        value: list[Any] = rows[:MOST_ROWS]
        if len(rows) > MOST_ROWS:
            value.append({"note": MORE})
        return value


def _joined(steps: Sequence[ToolStatement]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    made: list[tuple[str, str, tuple[str, ...]]] = []
    for are_checks, group in groupby(steps, key=lambda step: step.verb == "check"):
        listed = list(group)
        if are_checks:
            cases = (f"WHEN ({step.sql}) IS NOT TRUE THEN {place}" for place, step in enumerate(listed))
            made.append(("check", f"SELECT CASE {' '.join(cases)} END", tuple(step.error for step in listed)))
        else:
            made += [(step.verb, step.sql, (step.error,)) for step in listed]
    return tuple(made)


def _record(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """A row as JSON. A column named `legs[]` holds JSON text of a list."""
    record: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column.endswith("[]"):
            record[column[:-2]] = json.loads(value) if value else []
        else:
            record[column] = value
    return record


class _ShownValues(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def _filled(text: str, values: Mapping[str, Any]) -> str:
    return text.format_map(_ShownValues({key: str(value)[:60] for key, value in values.items()}))
