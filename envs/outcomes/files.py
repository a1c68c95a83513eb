"""JSON files that somebody else wrote: one at a time, up to a bound, with errors that name the file and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError

MOST_FILE_BYTES = 512 << 20
MOST_LINE_BYTES = 64 << 20
Row = Mapping[str, Any]


def found(folder: Path, patterns: Sequence[str], expected: str) -> list[Path]:
    """The files of a folder that fit one of the patterns, in order. Raises ConfigError where there are none."""
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if not files:
        raise ConfigError(
            f"{folder}: expected {expected}, with files {' or '.join(patterns)}; got {_what_is_at(folder)}"
        )
    return files


def _what_is_at(path: Path) -> str:
    if path.is_file():
        return "a file; name the folder"
    if not path.exists():
        return "nothing; check the path (nothing is downloaded)"
    names = sorted(one.name for one in path.iterdir())
    return f"a folder with {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}; check path and form"


def json_of(path: Path, expected: str) -> Any:
    """Reads a JSON file. Raises ConfigError, which says what was `expected`, where it cannot be read, is too large or
    no JSON."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}; expected {expected}") from None
    if len(data) > MOST_FILE_BYTES:
        raise ConfigError(
            f"{path} is larger than {MOST_FILE_BYTES >> 20} MiB, the most that is read of a file; split it"
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as err:
        raise ConfigError(_no_json(str(path), expected, err)) from None


def json_lines(
    path: Path, expected: str, needed: Sequence[str], torn: Callable[[], None] | None = None
) -> Iterator[tuple[str, Row]]:
    """Where each line is, and its object. `torn` is called in place of an error where the last line is broken off, as a
    kill leaves it."""
    try:
        file = path.open("rb")
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}; expected {expected} on each line") from None
    with file:
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > MOST_LINE_BYTES:
                raise ConfigError(
                    f"{where} is longer than {MOST_LINE_BYTES >> 20} MiB, the most that is read of a line"
                )
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as err:
                if torn is not None and not line.endswith(b"\n"):
                    torn()
                    return
                raise ConfigError(_no_json(where, expected, err)) from None
            yield where, with_keys(row, where, expected, needed)


def _no_json(where: str, expected: str, err: Exception) -> str:
    return (
        f"{where}: expected {expected} as JSON, got what is not ({err!s:.100}); it may be cut off, or a Git LFS "
        "pointer: fetch the file again"
    )


def with_keys(value: Any, where: str, expected: str, needed: Sequence[str]) -> Row:
    """The object. Raises ConfigError where it is none, or lacks a key."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected {expected}, a JSON object, got {type(value).__name__}; check the form")
    if missing := [name for name in needed if name not in value]:
        keys = ", ".join(map(str, [*value][:12])) or "none"
        raise ConfigError(
            f"{where}: expected {expected} with the keys {', '.join(needed)}; {', '.join(missing)} is missing, its "
            f"keys are: {keys}. Check the form, or give the rows as a table"
        )
    return value


def counted(value: Any, where: str) -> float | None:
    """A count of tokens or seconds, or the sum of a list of lists of them. None where any of it is unknown, or all of
    it is 0, as programs write that counted nothing."""
    parts = [*_flat(value)]
    if not parts or any(part is None for part in parts):
        return None
    if wrong := [part for part in parts if isinstance(part, bool) or not isinstance(part, int | float)]:
        raise ConfigError(f"{where}: expected numbers, got {wrong[0]!r:.40}; repair the file or leave it out")
    return sum(parts) or None


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    else:
        yield value
