"""Files of a run's folder that are written again: whoever reads one finds the old or the new one, never half."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside it, see it onto the disk, and put it in its place in one move."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: object) -> None:
    """The same, of JSON for people to read."""
    write_whole(path, (json.dumps(data, allow_nan=False, indent=1, default=str) + "\n").encode())
