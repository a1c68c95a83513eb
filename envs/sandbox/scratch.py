"""Folders that a program wrote in as it liked: how much is in them, and how they are removed.

It may have made them so that nobody can list them, and nested them deeper than a path can be long. Both are done by
`keep`, in processes beside the fork server's loop, so that no program's folders hold up another's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator

ENTRY_BYTES = 4096
"""What each entry counts, so that a million empty files count too."""
MOST_DEEP = 64
"""Folders within folders; who nests deeper has more than anybody may have."""
TURN_SECONDS = 0.004
"""How long one folder is worked on until it is the others' turn."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def counting(folder: str, most: int) -> Iterator[int]:
    """Count the bytes of all files below, a little at a time: gives what was found so far, and last the whole. What
    cannot be counted, nested too deep or not to be listed, is more than anybody may have. Nothing is changed: the
    program still runs, and could put a link to elsewhere where a folder was. Counting ends with what is more than
    `most`; each entry counts, so that bounds how many are looked at."""
    try:
        opened = [os.open(folder, _FOLDER)]
    except OSError:
        yield 0
        return
    waiting: list[list[str]] = []
    total = 0
    try:
        while opened:
            if len(waiting) < len(opened):  # a folder that was just opened
                total, below = yield from _listed(opened[-1], total, most)
                waiting.append(below)
                yield total
            if total > most:
                return
            if not waiting[-1]:
                waiting.pop()
                os.close(opened.pop())
            elif len(opened) > MOST_DEEP:
                yield sys.maxsize
                return
            else:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    opened.append(os.open(waiting[-1].pop(), _FOLDER, dir_fd=opened[-1]))
    except OSError:
        yield sys.maxsize
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _listed(folder: int, total: int, most: int) -> Generator[int, None, tuple[int, list[str]]]:
    """The bytes so far with a folder's own entries, and the names of the folders in it."""
    below = []
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number % 100 == 99:
                yield total
            total += ENTRY_BYTES
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
            if total > most:
                break
    return total, below


def remove(folder: str) -> None:
    """Remove a folder with all that is below, once nobody works in it any more."""
    deque(removing(folder), maxlen=0)


def removing(folder: str) -> Iterator[int]:
    """Do the same, a little at a time."""
    waiting, mark, numbers = [folder], secrets.token_hex(8), itertools.count()
    while waiting:
        path = waiting.pop()
        yield 0
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)
            for entry in list(os.scandir(path)):
                yield 0
                if entry.is_dir(follow_symlinks=False):
                    up = os.path.join(folder, f"{mark}{next(numbers)}")
                    os.chmod(entry.path, 0o700)  # who moves a folder has to be allowed to write in it
                    os.rename(entry.path, up)
                    waiting.append(up)
                else:
                    os.unlink(entry.path)
            if path != folder:
                os.rmdir(path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    yield 0


def keep(link: socket.socket, work: Callable[[str], Iterator[int]]) -> None:
    """Be the process that counts or removes until the server is gone: each path is answered by `number path`. All are
    worked on in turns, so that what takes long makes none of the others late."""
    going: deque[tuple[bytes, Iterator[int]]] = deque()
    while True:
        with contextlib.suppress(BlockingIOError):
            while path := link.recv(1 << 16, socket.MSG_DONTWAIT if going else 0):
                going.append((path, work(os.fsdecode(path))))
            return
        path, steps = going.popleft()
        until = time.monotonic() + TURN_SECONDS
        for said in steps:  # noqa: B007 - the last one is told
            if time.monotonic() > until:
                going.append((path, steps))
                break
        else:
            link.send(b"%d %b" % (said, path))
