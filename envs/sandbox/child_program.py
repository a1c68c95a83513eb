"""Runs programs inside a locked-in child: one namespace, one order after the other."""

from __future__ import annotations

import linecache
import os
import random
import struct
import sys
import traceback
from typing import Any

FILE = "<program>"


def serve(orders: int, status: int) -> None:
    """Take programs from one pipe, run them, and write each one's exit status to the other."""
    _seed()
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    sys.argv = [FILE]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends with it
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    while (head := _exactly(orders, 4)) is not None:
        code = _exactly(orders, struct.unpack("<I", head)[0])
        if code is None:
            return
        done = _run(code.decode("utf-8", "replace"), names)
        os.write(status, struct.pack("<i", done))


def _seed() -> None:
    """The same program gives the same result in every child."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _exactly(fd: int, size: int) -> bytes | None:
    out = b""
    while len(out) < size:
        part = os.read(fd, size - len(out))
        if not part:
            return None
        out += part
    return out


def _run(code: str, names: dict[str, Any]) -> int:
    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
    status = 0
    try:
        exec(compile(code, FILE, "exec"), names)
    except SystemExit as err:
        status = err.code if isinstance(err.code, int) else int(err.code is not None)
        if isinstance(err.code, str):
            _say(err.code)
    except BaseException as err:  # noqa: BLE001 - anything that a program raises is its result
        status = 1
        _say(_explained(err))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            status = status or 1
    return status & 0xFF


def _explained(err: BaseException) -> str:
    """The traceback from the program's own first line on."""
    if err.__traceback__ is not None and err.__traceback__.tb_next is not None:
        err = err.with_traceback(err.__traceback__.tb_next)
    try:
        return "".join(traceback.format_exception(err, limit=20))
    except (RecursionError, MemoryError):
        return f"{type(err).__name__}\n"


def _say(text: str) -> None:
    os.write(2, f"{text.rstrip()}\n".encode("utf-8", "replace"))
