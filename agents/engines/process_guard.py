"""Ends other processes when this one is gone, however it went: no handler runs after a SIGKILL."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

MARK = "TOOLORCHESTRA_GUARDED"
_STRIKE = """read -r word
for again in 1 2 3; do
    for place in /proc/[0-9]*; do
        if grep -qas "$1" "$place/environ"; then kill -9 "${place#/proc/}" 2>/dev/null; fi
    done
done
shift
[ -n "$word" ] || rm -rf -- "$@"
"""


class ProcessGuard:
    """A shell that reads from a pipe which only this process holds, and kills what bears the mark when the pipe ends.

    Whatever is started with `environment` bears it, and all that it starts in turn, at whatever time. Folders are
    removed with it, but not by strike(). Linux only.
    """

    def __init__(self, *folders: Path) -> None:
        mark = uuid.uuid4().hex
        self.environment = {MARK: mark}
        plain = {name: value for name, value in os.environ.items() if name != MARK}
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _STRIKE, "guard", f"{MARK}={mark}", *map(str, folders)],
            stdin=subprocess.PIPE,
            env=plain,
            start_new_session=True,
        )

    def strike(self) -> None:
        """Kill what still bears the mark, now."""
        self._shell.communicate(b"now\n")
