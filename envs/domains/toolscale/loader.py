"""Loads a domain folder and checks all of it: shapes, the tools' SQL under the authorizer, the tasks' tools."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.files import read_inside
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.domains.toolscale import domain_files
from toolorchestra.envs.domains.toolscale.bounded_functions import bound, told
from toolorchestra.envs.domains.toolscale.database import TOO_LARGE, authorize, build, limit, without_comments
from toolorchestra.envs.domains.toolscale.domain_files import FILES, content, decoded, fits, lines, parsed, wrong_with
from toolorchestra.envs.domains.toolscale.formats import FORMATS, is_moment
from toolorchestra.envs.domains.toolscale.sql_domain import (
    FirstWords,
    GoldCall,
    Request,
    SqlDomain,
    SqlTable,
    SqlTask,
    SqlTool,
    ToolStatement,
    UserFact,
    WrongWay,
)  # fmt: skip

SHIPPED = Path(__file__).parents[2] / "data" / "domains"
"""The folder of the domains that come with the package."""
NAME = re.compile(r"\w[\w-]{0,63}")
NAMED = "a word of at most 64 letters, digits, '_' and '-'"
"""A domain's name is a part of task ids, of generated code, and the name of a folder."""
_WALL_CLOCK = re.compile(r"'now'|current_(time|date|timestamp)|\b(date|time|datetime|julianday)\(\s*\)", re.IGNORECASE)
_VERBS = {"let": ("select", "with"), "do": ("insert", "update", "delete"), "returns": ("select", "with")}
_REPLACING = re.compile(r"\s*(insert|update)\s+or\s+replace\b", re.IGNORECASE)
TIMES = ("now", "today")
"""What statements name the domain's clock and its day by."""
MOST_TOOLS = 128
_MOST_STEPS = 64
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""What servers of models accept too."""


def names() -> list[str]:
    """The domains that come with the package."""
    return sorted(p.name for p in SHIPPED.iterdir() if (p / "domain.json").is_file()) if SHIPPED.is_dir() else []


def manifest(folder: Path) -> Mapping[str, Any]:
    """Reads and checks a folder's domain.json, and none of its other files."""
    path = folder / "domain.json"
    where = str(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; a domain folder holds domain.json, {', '.join(FILES)}")
    found = fits(domain_files.MANIFEST_SCHEMA, parsed(decoded(read_inside(folder, path), where), where), where)
    check_head(found, where)
    return found


def check_head(head: Mapping[str, Any], where: str) -> None:
    """Refuse a name that is no word, and a time that is written in another way or that there is not."""
    if not NAME.fullmatch(head["name"]):
        raise ConfigError(f"{where}: name is {NAMED}, got {head['name']!r:.60}")
    clock = head["clock"]
    if not (re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", clock) and is_moment(clock)):
        raise ConfigError(f"{where}: clock is written YYYY-MM-DD HH:MM:SS, got {clock!r}")


def resolve(name: str | Path) -> Path:
    """The folder of a shipped domain's name, or of a path."""
    if str(name) in names():
        return SHIPPED / str(name)
    if (Path(name) / "domain.json").is_file():
        return Path(name)
    if (Path(name) / "tools.py").is_file():
        play = f'gym.make("ToolOrchestra/Tau2-v0", reference={str(name)!r}, trust_code=True, user="scripted")'
        raise ConfigError(f"{name} is a domain of the reference, with a Python toolkit: play it by {play}")
    raise ConfigError(f"{no_such('domain', name, names())} A domain of your own is named by its folder.")


def load(name: str | Path) -> SqlDomain:
    """A domain by its name or folder; one for all who ask, until the folder is generated anew."""
    folder = resolve(name).resolve()
    return _loaded(folder, manifest(folder)["content_hash"])


@lru_cache(maxsize=32)
def _loaded(folder: Path, _content_hash: str) -> SqlDomain:
    return read(folder)


def read(folder: Path, *, verify: bool = False) -> SqlDomain:
    """A domain folder. `verify` also compares the content hash."""
    try:
        return _read(folder, verify)
    except RecursionError:
        raise ConfigError(f"{folder}: a value in one of its files is nested too deeply to be read") from None


def _read(folder: Path, verify: bool) -> SqlDomain:
    head = manifest(folder)
    parts = {name: content(folder, name) for name in FILES}
    if verify and (found := domain_files.content_hash(parts, head.get("process"))) != head["content_hash"]:
        raise ConfigError(
            f"{folder / 'domain.json'}: content_hash is {head['content_hash']}, the files' is {found};"
            " they were edited since they were generated: change the spec and generate them again"
        )
    schema = decoded(parts["schema.sql"], str(folder / "schema.sql"))
    tables = read_tables(parts["rows.jsonl.gz"], str(folder / "rows.jsonl.gz"))
    at = str(folder / "tools.json")
    tools = tools_of(domain_files.elements(parts["tools.json"], at), at)
    check_sql(schema, tables, tools, at)
    tasks = _read_tasks(parts["tasks.jsonl.gz"], str(folder / "tasks.jsonl.gz"), tools)
    return SqlDomain(
        name=head["name"],
        subject=head["subject"],
        clock=head["clock"],
        held_out=head.get("held_out", False),
        policy=decoded(parts["policy.md"], str(folder / "policy.md")),
        schema=schema,
        tables=tables,
        tools=tools,
        tasks=tasks,
        manifest=head,
        folder=folder,
    )


def read_tables(data: bytes, where: str) -> dict[str, SqlTable]:
    """rows.jsonl: a line {"table", "key", "columns"}, then a line of values for each row."""
    tables: dict[str, SqlTable] = {}
    rows: list[Any] = []
    width = 0
    for at, value in lines(data, where):
        if isinstance(value, dict):
            head = fits(domain_files.TABLE_SCHEMA, value, at)
            if head["key"] not in head["columns"]:
                raise ConfigError(f"{at}: key {no_such('column', head['key'], head['columns'])}")
            rows, width = [], len(head["columns"])
            tables[head["table"]] = SqlTable(tuple(head["columns"]), head["key"], rows)
        elif isinstance(value, list) and width and len(value) == width:
            rows.append(tuple(value))
        else:
            raise ConfigError(f"{at}: a list of {width} values expected, got {value!r:.60}")
    return tables


def tools_of(entries: Iterable[tuple[str, Any]], where: str) -> dict[str, SqlTool]:
    """The tools of a domain, by name, each of them checked; `entries` are rows of tools.json, each with its place."""
    tools: dict[str, SqlTool] = {}
    for at, value in entries:
        made = tool(fits(domain_files.TOOL_SCHEMA, value, at), at)
        if made.name in tools:
            raise ConfigError(f"{at}: a second tool {made.name!r}")
        tools[made.name] = made
        if len(tools) > MOST_TOOLS:
            break
    if not 0 < len(tools) <= MOST_TOOLS:
        raise ConfigError(f"{where}: 1 to {MOST_TOOLS} tools expected, got {len(tools)}")
    return tools


def tool(row: Mapping[str, Any], at: str) -> SqlTool:
    """Checks one entry of tools.json and makes a tool of it."""
    at = f"{at}: tool {row['name']!r:.80}"
    _check_size(row, at)
    formats: dict[str, str] = {}
    properties: dict[str, Any] = {}
    for name, part in row["parameters"].items():
        if not isinstance(part, dict):
            raise ConfigError(f"{at}: parameters.{name} is a JSON schema, got {part!r:.60}")
        properties[name] = {key: value for key, value in part.items() if key != "format"}
        if part.get("type") == "string" and "enum" not in part:
            if part.get("format") not in FORMATS:
                raise ConfigError(f"{at}: parameters.{name}.format: {no_such('format', part.get('format'), FORMATS)}")
            formats[name] = part["format"]
        elif part.get("type") not in ("string", "integer", "number", "boolean"):
            raise ConfigError(f"{at}: parameters.{name}.type is string, integer, number or boolean")
    optional = row.get("optional", [])
    if unknown := [name for name in optional if name not in properties]:
        raise ConfigError(f"{at}: optional: {no_such('parameter', unknown[0], properties)}")
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }
    Checker(parameters, at)
    if len(row["returns"]) != 1:
        raise ConfigError(f"{at}: returns has either row or rows, got {sorted(row['returns'])}")
    many = "rows" in row["returns"]
    return SqlTool(
        row["name"],
        row["kind"],
        row["description"],
        parameters,
        formats,
        tuple(_step(step, f"{at}: steps[{place}]") for place, step in enumerate(row.get("steps", []))),
        row["returns"]["rows" if many else "row"],
        many,
        row.get("transfers", False),
    )


def _check_size(row: Mapping[str, Any], at: str) -> None:
    """Names that servers of models accept, and no more steps than a call has time for."""
    for name in (row["name"], *row["parameters"]):
        if not _TOOL_NAME.fullmatch(name):
            raise ConfigError(
                f"{at}: names of tools and parameters are 1 to 64 letters, digits and '_', the first no digit, got "
                f"{name!r:.80}"
            )
    _check_times(row["parameters"], at)
    if len(row.get("steps", [])) > _MOST_STEPS:
        raise ConfigError(f"{at}: {len(row['steps'])} steps, at most {_MOST_STEPS} are allowed")


def _check_times(given: Iterable[str], at: str) -> None:
    """Refuse values that would stand in the place of the domain's own time."""
    if taken := [name for name in given if name in TIMES]:
        raise ConfigError(f"{at}: {taken[0]!r} is the domain's own time; give the parameter or column another name")


def _step(row: Mapping[str, str], at: str) -> ToolStatement:
    verbs = [verb for verb in ("let", "check", "do") if verb in row]
    if len(verbs) != 1:
        raise ConfigError(f"{at}: a step has one of let, check and do, got {sorted(row)}")
    if (verbs[0] == "do") == ("error" in row):
        raise ConfigError(f"{at}: let and check need an error that the agent can act on, do takes none")
    return ToolStatement(verbs[0], row[verbs[0]], row.get("error", ""))  # type: ignore[arg-type]


def check_sql(
    schema: str,
    tables: Mapping[str, SqlTable],
    tools: Mapping[str, SqlTool],
    where: str,
    seen: Callable[[str], None] | None = None,
) -> None:
    """Prepare every statement under the authorizer: it must compile, bind, and do no more than its tool may. `seen` is
    told which tool comes next."""
    # No cache: a statement that another tool has too is not prepared again, so the guard would not hear of it.
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.deserialize(build(schema, {n: t._replace(rows=()) for n, t in tables.items()}, where))
    writes: set[str] = set()

    def guard(action: int, first: str | None, second: str | None, _base: str | None, trigger: str | None) -> int:
        if action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE) and trigger is None:
            writes.add(str(first))
        return sqlite3.SQLITE_OK if authorize(action, first, second, trigger) else sqlite3.SQLITE_DENY

    connection.set_authorizer(guard)
    limit(connection)
    bound(connection)
    try:
        for made in tools.values():
            if seen is not None:
                seen(made.name)
            writes.clear()
            _check_tool(connection, made, f"{where}: tool {made.name!r}")
            if bool(writes) != (made.kind == "write"):
                wrote = f"it writes to {', '.join(sorted(writes)) or 'nothing'}"
                raise ConfigError(f"{where}: tool {made.name!r} is of kind {made.kind!r}, but {wrote}")
    finally:
        connection.close()


def _check_tool(connection: sqlite3.Connection, made: SqlTool, at: str) -> None:
    values: dict[str, Any] = {name: None for name in (*made.parameters["properties"], *TIMES)}
    parts = [(f"steps[{i}].{s.verb}", *s) for i, s in enumerate(made.steps)]
    for field, verb, sql, error in [*parts, ("returns", "returns", made.result, "")]:
        spot = f"{at}: {field}"
        _check_error(error, values, spot)
        if _WALL_CLOCK.search(sql):
            raise ConfigError(f"{spot}: the wall clock would break replays; use :now or :today")
        if verb == "check":
            sql = f"SELECT ({sql})"
        elif not sql.lstrip().lower().startswith(_VERBS[verb]):
            raise ConfigError(f"{spot}: starts with {' or '.join(_VERBS[verb])}, got {sql[:30]!r}")
        elif _REPLACING.match(without_comments(sql)):
            raise ConfigError(f"{spot}: OR REPLACE deletes rows unseen; say UPDATE, or ON CONFLICT (key) DO UPDATE")
        try:
            # Without rows a `let` gives no values, but its columns are known once it is prepared.
            cursor = connection.execute(f"EXPLAIN {sql}", values)
            cursor.close()
            if verb == "let":
                probe = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0", values)
                columns = [column[0] for column in probe.description]
                _check_times(columns, spot)
                values.update(dict.fromkeys(columns))
        except MemoryError:
            raise ConfigError(f"{spot}: {TOO_LARGE}; make it simpler") from None
        except (sqlite3.Error, sqlite3.Warning) as err:
            raise ConfigError(
                f"{spot}: {told(err)}; parameters here: {', '.join(values)}; the statement: {sql:.2000}"
            ) from None


def _check_error(text: str, values: Mapping[str, Any], spot: str) -> None:
    """What is filled in when a call is refused must be there then."""
    if wrong := wrong_with(text):
        raise ConfigError(f"{spot}: error {text!r:.80}: {wrong}")
    try:
        text.format_map(dict.fromkeys(values, ""))
    except (LookupError, ValueError, AttributeError, TypeError) as err:
        seen = f"no value {err}" if isinstance(err, KeyError) else err
        raise ConfigError(
            f"{spot}: error {text!r:.80}: {seen}; {{NAME}} is filled in as text, {{{{ is a brace; parameters here: "
            + ", ".join(values)
        ) from None


def _read_tasks(data: bytes, where: str, tools: Mapping[str, SqlTool]) -> dict[str, SqlTask]:
    tasks: dict[str, SqlTask] = {}
    for at, value in lines(data, where):
        made = task(fits(domain_files.TASK_SCHEMA, value, at))
        for action in (*made.actions, *(a for path in made.alternatives for a in path)):
            if action.name not in tools:
                raise ConfigError(f"{at}: evaluation_criteria.actions: {no_such('tool', action.name, tools)}")
        if made.task_id in tasks:
            raise ConfigError(f"{at}: a second task {made.task_id!r}")
        if not made.requests or not all(request.say for request in made.requests):
            raise ConfigError(f"{at}: toolscale.requests: one request at least, and a wording of each, expected")
        count, numbers = len(made.actions), [number for request in made.requests for number in request.actions]
        if (last := max(made.identify - 1, *numbers, -1)) >= count:
            raise ConfigError(f"{at}: toolscale: the task has {count} actions, numbered from 0; there is no {last}")
        tasks[made.task_id] = made
    return tasks


def task(row: Mapping[str, Any]) -> SqlTask:
    """One line of tasks.jsonl, already checked."""
    criteria, own = row["evaluation_criteria"], row["toolscale"]
    return SqlTask(
        row["id"],
        own["split"],
        own["difficulty"],
        _actions(criteria["actions"]),
        tuple(_actions(path) for path in own.get("alternatives", [])),
        tuple(own["end_states"]),
        tuple(criteria["communicate_info"]),
        _facts(own["facts"]),
        tuple(_request(r) for r in own["requests"]),
        own["identify"],
        row,
        own.get("caller", ""),
        tuple(own.get("computed", [])),
        tuple(
            WrongWay(way["kind"], way["request"], tuple(GoldCall(name, arguments) for name, arguments in way["calls"]))
            for way in own.get("wrong", [])
        ),
        own.get("hardness", {}),
    )


def _actions(rows: list[Mapping[str, Any]]) -> tuple[GoldCall, ...]:
    return tuple(GoldCall(row["name"], row["arguments"]) for row in rows)


def _facts(rows: list[Mapping[str, Any]]) -> tuple[UserFact, ...]:
    return tuple(UserFact(row["label"], tuple(row["asked"]), row.get("value", "")) for row in rows)


def _request(row: Mapping[str, Any]) -> Request:
    return Request(
        row["intent"],
        row["ending"],
        tuple(row["say"]),
        _facts(row.get("facts", [])),
        tuple(row["actions"]),
        tuple(row.get("inform", [])),
        row.get("pushback", ""),
        FirstWords(first["kind"], tuple(first["say"]), tuple(first["then"])) if (first := row.get("first")) else None,
    )
