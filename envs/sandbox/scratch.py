"""Folders that a program wrote in as it liked: how much is in them, and how they are removed.

It may have made them so that nobody can list them, and nested them deeper than a path can be long. Both are done by
`keep`, in a process beside the fork server's loop, so that no program's folders hold up another's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import sys

ENTRY_BYTES = 4096
"""What each entry counts, so that a million empty files count too."""
MOST_DEEP = 64
"""Folders within folders; who nests deeper has more than anybody may have."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def disk_bytes(folder: str, most: int = sys.maxsize) -> int:
    """Bytes of all files below. What cannot be counted, nested too deep or not to be listed, is more than anybody may
    have. Nothing is changed: the program still runs, and could put a link to elsewhere where a folder was. Counting
    ends with what is more than `most`; each entry counts, so that bounds how many are looked at."""
    try:
        opened = [os.open(folder, _FOLDER)]
    except OSError:
        return 0
    waiting: list[list[str]] = []
    total = 0
    try:
        while opened:
            if len(waiting) < len(opened):  # a folder that was just opened
                total, below = _listed(opened[-1], total, most)
                waiting.append(below)
            if total > most:
                return total
            if not waiting[-1]:
                waiting.pop()
                os.close(opened.pop())
            elif len(opened) > MOST_DEEP:
                return sys.maxsize
            else:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    opened.append(os.open(waiting[-1].pop(), _FOLDER, dir_fd=opened[-1]))
    except OSError:
        return sys.maxsize
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return total


def _listed(folder: int, total: int, most: int) -> tuple[int, list[str]]:
    """The bytes so far with a folder's own entries, and the names of the folders in it."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
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
    waiting, mark, numbers = [folder], secrets.token_hex(8), itertools.count()
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)
            for entry in list(os.scandir(path)):
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


def keep(link: socket.socket, most: int) -> None:
    """Be the process that counts (`?path`, answered by `bytes path`) or removes (`-path`) until the server is gone."""
    while order := link.recv(1 << 16):
        path = os.fsdecode(order[1:])
        if order[:1] == b"-":
            remove(path)
        else:
            link.send(f"{disk_bytes(path, most)} {path}".encode("utf-8", "surrogateescape"))
