"""Tools of guarded SQL on a SQLite database in memory: what an exported domain runs on. Nothing but Python is needed.

It does what the domain's own environment does: arguments are checked and bound, guards are checked, a refused call
changes nothing, and the clock stands still. States are compared by content, so ids that were made meanwhile may differ.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.formats import check_formats
from toolorchestra.envs.domains.toolscale.state_digest import digest

MOST_ROWS = 50
MORE = f"only the first {MOST_ROWS} are shown; narrow the search"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class SqlRuntime:
    """One episode's database, and its tools by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.clock: str = data["clock"]
        self.tables: Mapping[str, Any] = data["tables"]
        self.tools = {tool["name"]: tool for tool in data["tools"]}
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(data["schema_sql"])
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("BEGIN")
        self._deferred(data)
        self.connection.execute("COMMIT")

    def _deferred(self, data: Mapping[str, Any]) -> None:
        self.connection.execute("PRAGMA defer_foreign_keys = ON")  # rows may name rows that come later
        for name, table in data["tables"].items():
            marks, columns = ", ".join("?" * len(table["columns"])), ", ".join(table["columns"])
            self.connection.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", table["rows"])

    def call(self, name: str, **given: Any) -> str:
        """A tool's result as JSON text. Raises ToolError with what the agent can do about it."""
        tool = self.tools[name]
        arguments = {key: value for key, value in given.items() if value is not None}
        _check(tool, arguments)
        known = {key: part.get("default") for key, part in tool["parameters"].items()}
        values = {**known, **arguments, "now": self.clock, "today": self.clock[:10]}
        self.connection.execute("SAVEPOINT tool")
        try:
            value = self._run(tool, values)
        except sqlite3.IntegrityError as err:
            self._undo()
            raise ToolError(f"{name} would break a rule of the database: {err}. Nothing was changed") from None
        except BaseException:
            self._undo()
            raise
        self.connection.execute("RELEASE tool")
        return json.dumps(value, ensure_ascii=False)

    def _undo(self) -> None:
        self.connection.execute("ROLLBACK TO tool")
        self.connection.execute("RELEASE tool")

    def _run(self, tool: Mapping[str, Any], values: dict[str, Any]) -> Any:
        execute = self.connection.execute
        for step in tool.get("steps") or []:
            if "do" in step:
                execute(step["do"], values)
            elif "let" in step:
                cursor = execute(step["let"], values)
                row = cursor.fetchone()
                if row is None:
                    raise ToolError(_filled(step.get("error", ""), values))
                values.update(zip([column[0] for column in cursor.description], row, strict=True))
            elif execute(f"SELECT ({step['check']}) IS NOT TRUE", values).fetchone()[0]:
                raise ToolError(_filled(step.get("error", ""), values))
        many = "rows" in tool["returns"]
        cursor = execute(tool["returns"]["rows" if many else "row"], values)
        columns = [column[0] for column in cursor.description]
        rows: list[Any] = [_record(columns, row) for row in cursor.fetchmany(MOST_ROWS + 1 if many else 1)]
        if not many:
            return rows[0] if rows else None
        return [*rows[:MOST_ROWS], {"note": MORE}] if len(rows) > MOST_ROWS else rows

    def changes(self) -> list[tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]]:
        """Every row that is not as it was: its table, what it was and what it is."""
        found: list[tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]] = []
        for name, table in self.tables.items():
            columns = ", ".join(table["columns"])
            key = table["columns"].index(table["key"])
            now = {row[0]: row[1:] for row in self.connection.execute(f"SELECT rowid, {columns} FROM {name}")}
            before = dict(enumerate(map(tuple, table["rows"]), 1))
            for rowid in sorted(before.keys() | now.keys()):
                old, new = before.get(rowid), now.get(rowid)
                if old == new:
                    continue
                if old is not None and new is not None and old[key] != new[key]:
                    found += [(name, old, None), (name, None, new)]
                else:
                    found.append((name, old, new))
        return found

    def digest(self) -> str:
        """A name for the state, by its content."""
        tables = {name: SimpleNamespace(columns=tuple(t["columns"]), key=t["key"]) for name, t in self.tables.items()}
        database = SimpleNamespace(domain=SimpleNamespace(tables=tables))
        return digest(SimpleNamespace(changes=self.changes, database=database))  # type: ignore[arg-type]


def _check(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    parameters = tool["parameters"]
    missing = [key for key in parameters if key not in arguments and key not in (tool.get("optional") or [])]
    if missing:
        raise ToolError(f"{tool['name']}: {missing[0]} is missing")
    for key, value in arguments.items():
        part = parameters[key]
        wrong_kind = not isinstance(value, _TYPES[part["type"]]) or (
            isinstance(value, bool) != (part["type"] == "boolean")
        )
        if wrong_kind or ("enum" in part and value not in part["enum"]):
            raise ToolError(f"{tool['name']}: {key} must be {part.get('enum') or part['type']}, got {value!r:.60}")
        if value < part.get("minimum", value) or value > part.get("maximum", value):
            raise ToolError(f"{tool['name']}: {key} is out of its bounds, got {value!r:.60}")
    formats = {key: part["format"] for key, part in parameters.items() if part.get("format")}
    check_formats(formats, arguments)


def _record(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column.endswith("[]"):
            record[column[:-2]] = json.loads(value) if value else []
        else:
            record[column] = value
    return record


class _Shown(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def _filled(text: str, values: Mapping[str, Any]) -> str:
    return text.format_map(_Shown({key: str(value)[:60] for key, value in values.items()}))
