"""Arguments that try to break out of a tool: every one must be refused, and must leave the database as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlTool
from toolorchestra.synth.proof.domain_player import DomainPlayer

ARGUMENTS = (
    "' OR '1'='1",
    "' OR 1=1 --",
    "'; DROP TABLE customers; --",
    '"; DELETE FROM accounts; --',
    "x'); DROP TABLE t; --",
    "' UNION SELECT * FROM sqlite_master --",
    "') UNION SELECT sql FROM sqlite_schema --",
    "1; ATTACH DATABASE 'x' AS y",
    "ATTACH DATABASE '/tmp/x.db' AS evil;",
    "'; PRAGMA writable_schema = 1; --",
    "PRAGMA foreign_keys = OFF;",
    "'; VACUUM INTO '/tmp/stolen.db'; --",
    "load_extension('x')",
    "'||load_extension('/tmp/x')||'",
    "' || randomblob(1e9) || '",
    "zeroblob(1000000000)",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT * FROM c",
    "'; WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c; --",
    "(SELECT group_concat(email) FROM customers)",
    "x' AND (SELECT count(*) FROM a, b, c, d) > 0 --",
    "%' ESCAPE '",
    "%%%%%%%%%%",
    "_' OR LIKE('%','a",
    "'; COMMIT; --",
    "'; ROLLBACK; --",
    "'; SAVEPOINT a; --",
    "'; BEGIN EXCLUSIVE; --",
    "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END",
    "'; CREATE TABLE pwned(x); --",
    "/**/OR/**/1=1",
    "--",
    "\\'; DROP TABLE users; --",
    ":now || ''",
    "?1",
    "@who = 1",
    "$x = 1",
    "{account_id.__class__}",
    "{0.__init__.__globals__}",
    "%(name)s'",
    "\x00",
    "AC-1\x00' OR 1=1",
    "AC-00001\n",
    "\r\n.schema",
    "\u202eAC-00001",
    "AC\u200b-00001",
    "\ufeffAC-00001",
    "ＡＣ－００００１",
    "AC‐00001'",
    "ﬁnance'",
    "\u02bc OR 1=1",
    "＇ OR 1=1",
    "' OR '１'='１",
    "\ud7ff'\ufffe",
    "💥; DROP TABLE x",
    "<script>alert(1)</script>",
    "../../etc/passwd'",
    "a" * 100_000,
    "'" * 10_000,
    "\u0301" * 300,
    "",
    " ",
    "now()",
    "'now'",
    '{"$gt": ""}',
    "[1, 2]",
    "null;",
    "${jndi:ldap://x}",
    "`id`",
    "$(id)",
    "| cat /etc/passwd",
)
"""Text for string parameters. JSON of other types is refused by the schema before it gets this far."""


def breaches(bench: DomainPlayer) -> Iterator[str]:
    """What got through, in words: calls that were not refused, or that changed something."""
    for tool in bench.domain.tools.values():
        base = valid(bench, tool)
        for name, part in tool.parameters["properties"].items():
            if part.get("type") != "string":
                continue
            for text in ARGUMENTS:
                seen = _tried(bench, GoldCall(tool.name, {**base, name: text}))
                if seen:
                    yield f"{tool.name}.{name} = {text!r:.60}: {seen}"


def _tried(bench: DomainPlayer, action: GoldCall) -> str:
    with bench.session() as session:
        try:
            called = bench.call(session, action)
        except ToolError:
            return "it changed rows" if session.changes() else ""
        return f"not refused, gave {called.text:.60}"


def valid(bench: DomainPlayer, tool: SqlTool) -> Mapping[str, Any]:
    """Arguments that the tool takes: those of a gold call, or values of its columns."""
    for task in bench.domain.tasks.values():
        for action in task.actions:
            if action.name == tool.name:
                return action.arguments
    return {name: _sample(bench, name, part) for name, part in tool.parameters["properties"].items()}


def _sample(bench: DomainPlayer, name: str, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    found = bench.values(name)
    if found:
        return found[0]
    return "x1" if schema["type"] == "string" else schema.get("minimum", 1)
