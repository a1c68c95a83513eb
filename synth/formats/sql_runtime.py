"""The tools of an exported domain, over copies of the modules that the domain's own environment runs on. Nothing but
Python and its SQLite is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale import state_digest
from toolorchestra.envs.domains.toolscale.database import DatabaseSession, SqlDatabase
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTable, SqlTool, ToolStatement
from toolorchestra.envs.domains.toolscale.tool_runs import Runner

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class SqlRuntime:
    """One episode's database, and its tools by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        tables = {
            name: SqlTable(tuple(table["columns"]), table["key"], [tuple(row) for row in table["rows"]])
            for name, table in data["tables"].items()
        }
        rows = ({**row, "steps": tuple(ToolStatement(*step) for step in row["steps"])} for row in data["tools"])
        tools = {row["name"]: SqlTool(**row) for row in rows}
        domain = SqlDomain(
            name="", subject="", clock=data["clock"], held_out=False, policy="", schema=data["schema_sql"],
            tables=tables, tools=tools, tasks={}, manifest={}, folder=Path(),
        )  # fmt: skip
        self.session = DatabaseSession(SqlDatabase(domain))
        self.runners = {name: Runner(tool, domain.clock) for name, tool in tools.items()}

    def call(self, name: str, /, **given: Any) -> str:
        """A tool's result as JSON text. Raises ToolError with what the agent can do about it."""
        arguments = {key: value for key, value in given.items() if value is not None}
        _check(self.runners[name].tool, arguments)
        return self.runners[name].call(self.session, arguments).text

    def digest(self) -> str:
        """A name for the state, by its content."""
        return state_digest.digest(self.session)


def _check(tool: SqlTool, arguments: Mapping[str, Any]) -> None:
    if missing := [key for key in tool.parameters["required"] if key not in arguments]:
        raise ToolError(f"{tool.name}: {missing[0]} is missing")
    for key, value in arguments.items():
        part = tool.parameters["properties"][key]
        fits = isinstance(value, _TYPES[part["type"]]) and isinstance(value, bool) == (part["type"] == "boolean")
        if not fits or value not in part.get("enum", (value,)):
            raise ToolError(f"{tool.name}: {key} must be {part.get('enum') or part['type']}, got {value!r:.60}")
        if value < part.get("minimum", value) or value > part.get("maximum", value):
            raise ToolError(f"{tool.name}: {key} is out of its bounds, got {value!r:.60}")
