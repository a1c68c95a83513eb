"""A folder that one process works in at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from toolorchestra.envs.base.errors import ConfigError

LOCK = ".lock"


@contextmanager
def held(folder: Path, otherwise: str, command_line: str = "") -> Iterator[None]:
    """Hold the folder, which is made where there is none, while this lasts. `otherwise` and `command_line` are what
    ConfigError says where another process holds it. The lock is the system's, so it ends with its process, whatever
    ends that."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(otherwise, command_line=command_line) from None
    except NotImplementedError:  # a file system that has no locks
        yield
        return
    try:
        yield
    finally:
        lock.release()
