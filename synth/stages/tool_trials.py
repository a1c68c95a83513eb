"""Tools tried on real rows: each must succeed once and refuse once, and what reads must leave everything as it was."""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlDomain, SqlTable, SqlTool
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.part_checks import Fault, Parts, partial
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton

TRIES = 400
_HOSTILE = "' OR '1'='1"
_WORDLESS = {"phone": "+00 00 00 00 00", "email": "nobody@example.com", "code": "X-0", "id": "X-0", "text": "nobody"}


class Tried(NamedTuple):
    """What calls of one tool did."""

    tool: str
    succeeded: int
    refused: int
    last_refusal: str


def attempt(bench: DomainPlayer, tool: SqlTool, rng: random.Random, tries: int = TRIES) -> Tried:
    """Call a tool with values of real rows until it has succeeded and refused; then with what must be refused."""
    succeeded = refused = 0
    last = ""
    for _ in range(tries):
        if succeeded and refused:
            break
        arguments = guess(bench, tool, rng)
        if succeeded:  # now for a refusal
            arguments = spoilt(tool, arguments)
        with bench.session() as session:
            try:
                bench.call(session, GoldCall(tool.name, arguments))
                succeeded += 1
            except ToolError as err:
                refused += 1
                last = str(err)
    return Tried(tool.name, succeeded, refused, last)


def chained(bench: DomainPlayer, tool: SqlTool, rng: random.Random, tries: int = 40) -> bool:
    """Whether a tool succeeds on what other writes have just made."""
    others = [other for other in bench.domain.tools.values() if other.kind == "write" and other is not tool]
    for _ in range(tries):
        with bench.session() as session:
            made: dict[str, Any] = {}
            for other in rng.sample(others, len(others)):
                with contextlib.suppress(ToolError):
                    arguments = guess(bench, other, rng)
                    value = bench.call(session, GoldCall(other.name, arguments)).value
                    made.update(arguments)
                    made.update(value if isinstance(value, dict) else {})
                own = {name: made[name] for name in tool.parameters["properties"] if made.get(name) is not None}
                with contextlib.suppress(ToolError):
                    bench.call(session, GoldCall(tool.name, {**guess(bench, tool, rng), **own}))
                    return True
    return False


def guess(bench: DomainPlayer, tool: SqlTool, rng: random.Random) -> dict[str, Any]:
    """Arguments that belong together: those of one random row as far as it has them."""
    properties = tool.parameters["properties"]
    tables = [table for table in bench.domain.tables.values() if table.rows and set(table.columns) & set(properties)]
    known = _row(rng.choice(tables), rng) if tables else {}
    made = {}
    for name, schema in properties.items():
        if name in known and known[name] is not None and "enum" not in schema:
            made[name] = known[name]
        elif name in tool.parameters["required"] or rng.random() < 0.5:
            made[name] = _value(bench, name, {**schema, "format": tool.formats.get(name, "")}, rng)
    return made


def _row(table: SqlTable, rng: random.Random) -> dict[str, Any]:
    return dict(zip(table.columns, rng.choice(table.rows), strict=True))


def _value(bench: DomainPlayer, name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] in ("integer", "number"):
        low = schema.get("minimum", 0)
        high = min(schema.get("maximum", low + 60), low + 60)
        return rng.randint(int(low) + (low != int(low)), max(int(low), int(high)))
    pool = _pool(bench.domain, name)
    if pool:
        return rng.choice(pool)
    day = datetime.datetime.fromisoformat(bench.domain.clock) + datetime.timedelta(days=rng.randint(-20, 60))
    text = {"date": f"{day:%Y-%m-%d}", "time": f"{day:%H:%M}", "datetime": f"{day:%Y-%m-%d %H:%M}"}
    return text.get(schema["format"], _WORDLESS.get(schema["format"], "nobody"))


def _pool(domain: SqlDomain, name: str) -> list[Any]:
    """Values of the column of this name, or of the key that the name ends with: new_slot_id takes slot ids."""
    for table in domain.tables.values():
        columns = [c for c in table.columns if c == name] or [c for c in (table.key,) if name.endswith(f"_{c}")]
        if columns:
            at = table.columns.index(columns[0])
            found = [row[at] for row in table.rows if row[at] is not None]
            if found:
                return found
    return []


def spoilt(tool: SqlTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one that no call may take."""
    bad = dict(arguments)
    for name, schema in tool.parameters["properties"].items():
        if schema["type"] == "string":
            bad[name] = _HOSTILE
            return bad
    for name in tool.parameters["properties"]:
        bad[name] = _HOSTILE
        return bad
    return {**bad, "no_such_parameter": 1}


def tools(parts: Parts, seed: int) -> list[Fault]:
    """tools.yaml: SQL that compiles under the authorizer, reads that read, guards before every write."""
    try:
        spec = partial(parts)
        domain, _ = skeleton(spec, seed)
    except ConfigError as err:
        return [Fault("tool", str(err))]
    faults = [*_named(domain, spec.head["user"]["ways"])]
    bench = DomainPlayer(domain)
    for tool in domain.tools.values():
        places.at(f"tools.yaml: tool {tool.name!r}")
        tried = attempt(bench, tool, random.Random(f"{seed}/{tool.name}"))
        if not tried.refused:
            faults.append(Fault("refusal", f"tool {tool.name} refused none of {TRIES} calls", tool.name))
        if tool.kind == "write" and not any(step.verb != "do" for step in tool.steps):
            faults.append(Fault("guard", f"tool {tool.name} writes without a let or check before it", tool.name))
    if not any(tool.kind == "write" for tool in domain.tools.values()):
        faults.append(Fault("tools", "no tool writes; tasks need tools that change something"))
    return faults


def _named(domain: SqlDomain, ways: Iterable[Mapping[str, Any]]) -> list[Fault]:
    used = [name for way in ways for action in way["actions"] for name in action]
    return [
        Fault("identification", f"domain.yaml identifies users with {name!r}; there must be a tool of that name")
        for name in dict.fromkeys(used)
        if name not in domain.tools
    ]


def idle(bench: DomainPlayer, used: Iterable[str], seed: int) -> list[Fault]:
    """Tools that no gold call uses and that no guessed call got to succeed: nobody has seen them work."""
    seen = set(used)
    faults = []
    for tool in bench.domain.tools.values():
        if tool.name in seen:
            continue
        rng = random.Random(f"{seed}/{tool.name}")
        tried = attempt(bench, tool, rng)
        if not tried.succeeded and not chained(bench, tool, rng):
            why = f"tool {tool.name} succeeded in none of {TRIES} calls and no intent uses it"
            faults.append(Fault("never works", f"{why}: {tried.last_refusal:.200}", tool.name))
    return faults
