"""A run's folder: one process works in it at a time, and knows before it begins that it can write there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError

LOCK = ".lock"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder while this lasts. The lock is the system's, so it ends with its process, whatever ends that."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        for name in ("checkpoints", "report"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"another process is training in {folder}; wait until it has ended, or name another folder with --out"
        ) from None
    except OSError as err:
        raise ConfigError(f"the run's folder cannot be written: {err}; name another with --out") from None
    try:
        yield
    finally:
        lock.release()
