"""Which processes a test's marked process started and left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK = "TOOLORCHESTRA_TEST_MARK"


def marked(mark: str) -> list[int]:
    """Processes that inherited the mark, zombies not counted."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes() and state(int(folder.name)) != "Z":
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found


def children() -> dict[int, str]:
    """State and name of this process's own children, zombies too."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(") ")
        except OSError:
            continue
        now, parent, *_ = rest.split()
        if int(parent) == os.getpid():
            found[int(folder.name)] = f"{now} {name.partition('(')[2]}"
    return found


def state(pid: int) -> str:
    """R, S, Z and so on."""
    return Path(f"/proc/{pid}/stat").read_text().partition(") ")[2][0]


def gone(mark: str, seconds: float) -> list[int]:
    """What is left of the marked processes after they had this long to end."""
    end = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    return left
