"""A run's folder: one process works in it at a time, and knows before it begins that it can write there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolorchestra.envs.base.errors import ConfigError

LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder while this lasts. The lock is the kernel's, so it ends with its process, whatever ends that."""
    with _opened(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process is training in {folder}; wait until it has ended, or name another folder with --out"
            ) from None
        yield


def _opened(folder: Path) -> IO[str]:
    try:
        for name in ("checkpoints", "report"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        return (folder / LOCK).open("a")
    except OSError as err:
        raise ConfigError(f"the run's folder cannot be written: {err}; name another with --out") from None
