"""Folders that a program wrote in as it liked: how much is in them, and how they are removed.

It may have made them so that nobody can list them, and nested them deeper than a path can be long.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import sys

ENTRY_BYTES = 4096
"""What each entry counts, so that a million empty files count too."""


def disk_bytes(folder: str) -> int:
    """Bytes of all files below. What cannot be counted, nested too deep or not to be listed, is more than anybody may
    have. Nothing is changed: the program still runs, and could put a link to elsewhere where a folder was."""
    total, waiting = 0, [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError as err:
            if err.errno in (errno.ENAMETOOLONG, errno.EACCES):
                return sys.maxsize
            continue
        for entry in entries:
            total += ENTRY_BYTES
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


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
