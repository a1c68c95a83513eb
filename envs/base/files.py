"""Files and folders: written whole or by the line, read within bounds, and held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from toolorchestra.envs.base.errors import ConfigError


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


def append_line(path: Path, line: bytes, *, durable: bool = False) -> None:
    """Add a line to a file that several processes may share, in place of one that a crash cut short. With `durable` it
    is on the disk when this returns."""
    with path.open("a+b", buffering=0) as file:
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            file.seek(0)
            _end_last_line(file, file.read())
        written = file.write(line)
        if written != len(line):
            raise OSError(f"{path}: {written} of {len(line)} bytes of a line were written; is the disk full?")
        if durable:
            os.fsync(file.fileno())


def keep_lines(path: Path, keep: Callable[[Any], bool]) -> None:
    """Keep the lines of a file of JSON of which `keep` says so, in one move: a kill leaves the old file or the new one.
    A line that cannot be read, or of which `keep` cannot tell, goes."""
    if not path.is_file():
        return
    fresh = path.with_suffix(".new")
    with path.open("rb") as old, fresh.open("wb") as new:
        for line in old:
            with contextlib.suppress(ValueError, TypeError, LookupError):
                if keep(json.loads(line)):
                    new.write(line)
        new.flush()
        os.fsync(new.fileno())
    fresh.replace(path)


def _end_last_line(file: IO[bytes], data: bytes) -> None:
    """Cut off a last line that is no JSON; end one that is, as an editor leaves it."""
    start = data.rfind(b"\n") + 1
    try:
        json.loads(data[start:])
        file.write(b"\n")
    except (ValueError, RecursionError):
        file.truncate(start)


MOST_FILE_BYTES = 32 << 20
"""Limit of one file, unpacked; the largest of a shipped domain has 2 MB."""


def inside(folder: Path, path: Path) -> Path:
    """The file's path. Raises ConfigError where it leads out of the folder by a link."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{path} is a link that leads out of {folder}, and is not read; put the file itself there")
    return path


def read_inside(folder: Path, path: Path, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The bytes of a file inside a folder. A path that leads out of the folder is refused."""
    with inside(folder, path).open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ConfigError(f"{path} is larger than {most_bytes} bytes, the most that is read of a file of a folder")
    return data


def unpacked(data: bytes, where: str, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """A gzip file's content. Raises ConfigError where it is too large, zlib.error or EOFError where it is none."""
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most_bytes + 1)
    except gzip.BadGzipFile as err:
        raise zlib.error(str(err)) from None
    if len(found) > most_bytes:
        raise ConfigError(f"{where} unpacks to more than {most_bytes} bytes, the most that is read")
    return found


LOCK = ".lock"


@contextmanager
def held(folder: Path, otherwise: str, command_line: str = "") -> Iterator[None]:
    """Hold the folder, which is made where there is none, while this lasts. `otherwise` and `command_line` are what
    ConfigError says where another process holds it. The lock is the system's, so it ends with its process, whatever
    ends that."""
    from filelock import FileLock, Timeout

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
