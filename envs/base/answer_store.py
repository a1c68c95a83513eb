"""Paid answers on the disk: an append-only JSONL file of rows by their keys, shared by threads and processes."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import append_line

Row = Mapping[str, Any]


def digest(*parts: Any) -> str:
    """What an answer is found by: a hash of all that it follows from."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class AnswerStore:
    """Rows by their keys; a key may have several. A last line that a crash cut short is passed over, and the next row
    takes its place."""

    what: ClassVar[str]
    """What a line is, and what to do where it is none."""
    shape: ClassVar[Mapping[str, type]]
    """The keys that every row has, with the type of each."""
    durable: ClassVar[bool] = False
    """Whether add() returns when the disk has the row, and not when the system has it."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.lock = threading.Lock()
        self.rows: dict[str, list[Row]] = {}
        data = self.path.read_bytes() if self.path is not None and self.path.is_file() else b""
        for number, line in enumerate(io.BytesIO(data), 1):  # a line ends at a newline alone
            if line.strip():
                try:
                    self._take(json.loads(line.decode()))
                except (ValueError, LookupError, TypeError, RecursionError) as err:
                    if not (isinstance(err, ValueError) and line[-1:] != b"\n"):
                        raise ConfigError(f"{path}: line {number} is not {self.what}") from None

    def check(self, row: Any) -> None:
        """Refuse a row of another shape, by any of the errors that reading JSON has."""
        if not (isinstance(row, dict) and all(isinstance(row[name], kind) for name, kind in self.shape.items())):
            raise TypeError(f"{', '.join(self.shape)} expected")

    def _take(self, row: Row) -> None:
        self.check(row)
        self.rows.setdefault(row["key"], []).append(row)

    def first(self, key: str) -> Row | None:
        """The first row of a key."""
        return self.rows[key][0] if key in self.rows else None

    def add(self, row: Row) -> None:
        """Append a row."""
        line = json.dumps(row, ensure_ascii=True, default=str)
        with self.lock:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                append_line(self.path, line.encode() + b"\n", durable=self.durable)
            self._take(json.loads(line))
