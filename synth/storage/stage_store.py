"""The work folder: what each stage made, under the inputs that it was made from, so that a run goes on where it broke.

A file is written beside its place, flushed to the disk and then renamed: a killed run leaves an old file or a new one,
never half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError

SETTINGS = "settings.json"
TAKES = "takes.json"


def key(*inputs: Any) -> str:
    """What a stage's result is found by: a hash of all that it follows from."""
    text = json.dumps(inputs, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


class StageStore:
    """A folder of results by stage."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not resume and any(folder.glob("*.json*")):
            raise ConfigError(
                f"{folder} holds an earlier run; go on with resume=True, or remove it or name another",
                command_line="--resume, or another --work",
            )

    def path(self, stage: str) -> Path:
        """Where a stage's result lies."""
        return self.folder / f"{stage}.json"

    def kept(self, stage: str, wanted: str) -> Any:
        """A stage's result if it was made from the same inputs, else None."""
        path = self.path(stage)
        if not path.is_file():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        return found["result"] if found["key"] == wanted else None

    def keep(self, stage: str, made_from: str, result: Any) -> None:
        """Writes a stage's result into the folder, with the key of the inputs that it was made from."""
        text = json.dumps({"stage": stage, "key": made_from, "result": result}, ensure_ascii=False, indent=1)
        replace(self.path(stage), text.encode())

    def takes(self) -> dict[str, int]:
        """How often each stage was made anew on request."""
        path = self.folder / TAKES
        found: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found

    def take(self, stage: str) -> int:
        """Make a stage anew: a new take, which a run that is resumed keeps. Later stages follow where it differs."""
        taken = self.takes()
        taken[stage] = taken.get(stage, 0) + 1
        replace(self.folder / TAKES, json.dumps(taken).encode())
        return taken[stage]

    def agree(self, settings: Any) -> None:
        """Refuse to go on with other settings than the run began with."""
        path = self.folder / SETTINGS
        text = json.dumps(settings, indent=1, sort_keys=True)
        if path.is_file() and (began := path.read_text(encoding="utf-8")) != text:
            here, there = json.loads(text), json.loads(began)
            differ = ", ".join(f"{k}: {there.get(k)!r} then, {v!r} now" for k, v in here.items() if there.get(k) != v)
            raise ConfigError(
                f"{self.folder} was begun with other settings ({differ}); use those, or another folder",
                command_line="another --work",
            )
        replace(path, text.encode())
