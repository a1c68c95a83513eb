"""A domain's files: their JSON schemas, the templates of their texts, and reading them with errors that name file, line
and field. What no schema names is refused."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.files import read_inside, unpacked
from toolorchestra.envs.base.json_schema import Checker

MOST_TEMPLATE = 4_000
"""Characters of a template."""
MOST_WIDTH = 60
"""Limit of the width of a value in it: `{title:>20}` has the width 20."""
_NUMBER = re.compile(r"\d+")


@lru_cache(maxsize=16_384)
def wrong_with(template: str) -> str:
    """Why a template may not be filled; "" where it may."""
    if len(template) > MOST_TEMPLATE:
        return f"a text of {len(template)} characters, at most {MOST_TEMPLATE} are allowed"
    try:
        for _, name, form, _ in Formatter().parse(template):
            if name is not None and not re.fullmatch(r"\w*", name):
                return f"{{{name}}}: a template names a value, as in {{title}}"
            if "{" in (form or "") or any(int(n[:9]) > MOST_WIDTH for n in _NUMBER.findall(form or "")):
                return f"{{{name}:{form}}}: a width of at most {MOST_WIDTH} is allowed"
    except ValueError as err:
        return str(err)
    return ""


def object_of(required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object, with the names of the keys that it must have."""
    return {"type": "object", "properties": properties, "required": required.split()}


def list_of(items: Any) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": items}


TEXT: dict[str, Any] = {"type": "string"}
MAYBE: dict[str, Any] = {"type": ["string", "null"]}
WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
FREE: dict[str, Any] = {"type": "object", "additionalProperties": True}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
TEXTS = list_of(TEXT)

MANIFEST_SCHEMA = object_of(
    "name subject clock content_hash generator counts",
    name=TEXT,
    subject=TEXT,
    clock=TEXT,
    held_out=BOOLEAN,
    content_hash=TEXT,
    generator=object_of("seed spec_hash", seed={"type": "integer"}, spec_hash=TEXT),
    process=object_of("ways confirm caller own", ways=list_of(TEXTS), confirm=BOOLEAN, caller=TEXT, own=FREE),
    counts=FREE,
)

TABLE_SCHEMA = object_of("table key columns", table=TEXT, key=TEXT, columns=TEXTS)

TOOL_SCHEMA = object_of(
    "name kind description parameters returns",
    name=TEXT,
    kind={"type": "string", "enum": ["read", "write"]},
    description=TEXT,
    parameters=FREE,
    optional=TEXTS,
    steps=list_of(object_of("", let=TEXT, check=TEXT, do=TEXT, error=TEXT)),
    returns=object_of("", row=TEXT, rows=TEXT),
    transfers=BOOLEAN,
)

FACT = object_of("label asked", label=TEXT, asked=TEXTS, value=TEXT)
FIRST = {"kind": {"type": "string", "enum": ["corrects", "changes_mind", "negotiates"]}, "say": TEXTS, "then": TEXTS}
ENDING = {"type": "string", "enum": ["serve", "refuse", "transfer"]}
_ACTION = object_of(
    "action_id requestor name arguments",
    action_id=TEXT,
    requestor={"type": "string", "enum": ["assistant"]},
    name=TEXT,
    arguments=FREE,
    info=MAYBE,
    compare_args={"type": ["array", "null"]},
)
_REQUEST = object_of(
    "intent ending say actions",
    intent=TEXT,
    ending=ENDING,
    say=TEXTS,
    facts=list_of(FACT),
    actions=list_of(WHOLE),
    inform=TEXTS,
    pushback=TEXT,
    first=object_of("kind say then", **FIRST),
    branch=TEXT,
)
_WRONG = object_of(
    "kind request calls",
    kind={"type": "string", "enum": ["candidate", "uncomputed", "branch", "first_said"]},
    request=WHOLE,
    calls=list_of({"type": "array"}),
)
_INSTRUCTIONS = object_of(
    "domain reason_for_call known_info task_instructions",
    domain=TEXT,
    reason_for_call=TEXT,
    known_info=MAYBE,
    unknown_info=MAYBE,
    task_instructions=TEXT,
)

TASK_SCHEMA = object_of(
    "id user_scenario evaluation_criteria toolscale",
    id=TEXT,
    description=object_of("", purpose=MAYBE, relevant_policies=MAYBE, notes=MAYBE),
    user_scenario=object_of("instructions", persona=MAYBE, instructions=_INSTRUCTIONS),
    ticket=MAYBE,
    initial_state={"type": "null"},
    evaluation_criteria=object_of(
        "actions communicate_info reward_basis",
        actions=list_of(_ACTION),
        env_assertions={"type": ["array", "null"]},
        communicate_info=TEXTS,
        nl_assertions={"type": ["array", "null"]},
        reward_basis=TEXTS,
    ),
    toolscale=object_of(
        "split difficulty end_states facts requests identify",
        split={"type": "string", "enum": ["train", "validation", "test", "heldout"]},
        difficulty={"type": "integer", "minimum": 1, "maximum": 5},
        end_states=TEXTS,
        alternatives=list_of(list_of(_ACTION)),
        facts=list_of(FACT),
        requests=list_of(_REQUEST),
        identify=WHOLE,
        cost=FREE,
        caller=TEXT,
        computed=TEXTS,
        wrong=list_of(_WRONG),
        hardness=FREE,
    ),
)
"""tau2's Task, and under "toolscale" what the scripted user, the splits and the proof need."""


FILES = ("schema.sql", "rows.jsonl.gz", "tools.json", "policy.md", "tasks.jsonl.gz")
"""What a domain folder holds beside domain.json. The content hash runs over their uncompressed bytes, in this order."""


def content(folder: Path, name: str) -> bytes:
    """The bytes of one file of a domain folder, uncompressed where its name ends in .gz."""
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; a domain folder holds domain.json, {', '.join(FILES)}")
    data = read_inside(folder, path)
    if not name.endswith(".gz"):
        return data
    try:
        return unpacked(data, str(path))
    except (EOFError, zlib.error) as err:
        raise ConfigError(f"{path}: not a gzip file: {err}; write it with synth make") from None


def decoded(data: bytes, where: str) -> str:
    """Decodes a file's bytes as UTF-8. Raises ConfigError, with `where` in its text, where they are something else."""
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise ConfigError(f"{where}: not UTF-8 text: {err}; save it as UTF-8") from None


def content_hash(parts: Mapping[str, bytes], process: Mapping[str, Any] | None = None) -> str:
    """The manifest's content_hash: of the files, and of the rules of process where the domain has some."""
    made = hashlib.blake2b(digest_size=16)
    for name in FILES:
        made.update(f"{name} {len(parts[name])}\n".encode())
        made.update(parts[name])
    if process is not None:
        made.update(json.dumps(process, sort_keys=True).encode())
    return made.hexdigest()


def lines(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """The values of a JSONL file, each with "file:line". A line ends at a newline alone: U+2028 and its like stand in
    JSON text as they are."""
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.isspace():
            at = f"{where}:{number}"
            yield at, parsed(decoded(line, at), at)


def elements(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """The elements of a JSON file that is one list, each with the line it starts on."""
    text = decoded(data, where)
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise ConfigError(f"{where}:1: a JSON list expected, got {text[:20]!r}")
    at = _skip(text, at + 1)
    while text[at : at + 1] not in ("]", ""):
        line = text.count("\n", 0, at) + 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{where}:{getattr(err, 'lineno', line)}: not valid JSON: {err}") from None
        yield f"{where}:{line}", value
        at = _skip(text, at)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def parsed(text: str, where: str) -> Any:
    """JSON, or an error that says where."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{where}: not valid JSON: {err}") from None


def fits(schema: Mapping[str, Any], value: object, where: str) -> Mapping[str, Any]:
    """The value, which must be an object that fits."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: an object expected, got {value!r:.60}")
    try:
        Checker(schema).check(value, "the object")
    except ToolError as err:
        raise ConfigError(f"{where}: {err}") from None
    return value
