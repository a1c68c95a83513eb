"""Runs programs inside a locked-in child: one namespace, one order after the other.

The modules that stand here before a program does are those that programs import. What the interpreter remembers of how
this process came to be is cleared first (`forget`), once, in the seed that children are forked from.
"""

from __future__ import annotations

import gc
import linecache
import os
import random
import struct
import sys
import traceback
import types
from collections.abc import Sequence
from typing import Any, NoReturn

FILE = "<program>"
READY = struct.pack("<i", 0)
"""What a child writes to its status pipe when it is locked in."""


def forget(readable: Sequence[str]) -> None:
    """Clear what the interpreter holds of how it was started: arguments, environment, paths, modules, cached lines."""
    os.environ.clear()
    sys.argv, sys.orig_argv = [FILE], [FILE]
    folders = [os.path.realpath(folder) + os.sep for folder in readable]
    sys.path[:] = [p for p in sys.path if (os.path.realpath(p) + os.sep).startswith(tuple(folders))]
    for path in set(sys.path_importer_cache).difference(sys.path):
        if not path.startswith(tuple(folders)):
            del sys.path_importer_cache[path]
    for name in [n for n in sys.modules if n.partition(".")[0] in ("toolorchestra", "__mp_main__")]:
        del sys.modules[name]
    linecache.clearcache()
    for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"):
        setattr(sys, name, None)
    gc.collect()
    gc.freeze()


def serve(orders: int, status: int) -> NoReturn:
    """Take programs from one pipe, run them, and write each one's exit status to the other."""
    try:
        names = _become_main()
        _run("pass", {"__builtins__": __builtins__})  # copies here, before a program waits, what every program touches
        _seed()
        os.write(status, READY)
        while (head := _exactly(orders, 4)) is not None:
            code = _exactly(orders, struct.unpack("<I", head)[0])
            if code is None:
                break
            done = _run(code.decode("utf-8", "replace"), names)
            os.write(status, struct.pack("<i", done))
    except BaseException as err:  # noqa: BLE001 - whatever it is, this process ends here
        _say(f"the sandbox's child ended: {type(err).__name__}: {err}")
    os._exit(120)


def _become_main() -> dict[str, Any]:
    """A fresh `__main__` and fresh streams; nothing is left of the code that started this process."""
    sys._getframe(2).f_globals.clear()
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__dict__["__builtins__"] = __builtins__
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends with it
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    return program.__dict__


def _seed() -> None:
    """The same program gives the same result in every child."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _exactly(fd: int, size: int) -> bytes | None:
    out = b""
    while len(out) < size:
        try:
            part = os.read(fd, size - len(out))
        except BlockingIOError:  # a program of this session changed its pipe
            os.set_blocking(fd, True)
            continue
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
    if err.__traceback__ is not None:  # of a program that does not compile no line was run: nothing is left
        err = err.with_traceback(err.__traceback__.tb_next)
    try:
        return "".join(traceback.format_exception(err, limit=20))
    except (RecursionError, MemoryError):
        return f"{type(err).__name__}\n"


def _say(text: str) -> None:
    os.write(2, f"{text.rstrip()}\n".encode("utf-8", "replace"))
