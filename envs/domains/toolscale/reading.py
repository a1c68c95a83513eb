"""Reading a domain's files with errors that name file, line and field."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.files import read_inside, unpacked
from toolorchestra.envs.base.json_schema import Checker

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
        raise ConfigError(f"{path}: not a gzip file: {err}; write it with synth.generate") from None


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
