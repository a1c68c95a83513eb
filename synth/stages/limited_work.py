"""Work on what an author wrote, in a process of its own with limits of memory and time.

A spec's SQL, recipes and wordings are run to be checked. Each step of that has bounds, but many steps within bounds can
still fill the memory or take for ever. So they run in a second process: it is ended when it takes too long, and what it
may allocate is bounded by the operating system (on Linux; on other systems time alone is bounded). What is at fault is
the last place that it said it works on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats import places

MEMORY_BYTES = 512 << 20
"""Memory beyond what the process has when it starts."""
MOST_FILE_BYTES = 16 << 20
"""Limit of a file. The process writes no file itself; SQLite sorts what is large in one."""
MOST_ANSWER_BYTES = 64 << 20
START_SECONDS = 60.0
"""How long the process may take to start."""
Seen = Callable[[int, int], None]


class TooMuch(ConfigError):
    """A part of a spec takes more memory or time than it may."""


_Reply = tuple[str, Any]
"""What is told of the work: started, place, seen, done, failed, or memory; and the value of it."""


class LimitedProcess:
    """A process that works for this one, and is made anew after it was ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._place = ""
        self._owner = 0

    def run(self, work: Callable[..., Any], *given: Any, seconds: float, seen: Seen | None = None) -> Any:
        """What a function of a module gives for these values. Raises what it raises, or TooMuch. With `seen` it is told
        how far the work is: the function takes `seen` as a keyword then."""
        try:
            pipe = self._started()
            self._place = ""
            until = time.monotonic() + seconds
            pipe.send_bytes(pickle.dumps((work, given, seen is not None)))
            while (reply := self._reply(pipe, until, seconds))[0] in ("place", "seen"):
                if reply[0] == "place":
                    self._place = reply[1]
                elif seen is not None:
                    seen(*reply[1])
        except BaseException:
            self.end()  # it may be in the midst of it
            raise
        kind, value = reply
        if kind == "memory":
            self.end()
            most = MEMORY_BYTES >> 20
            raise TooMuch(f"{self.place} takes more than {most} MiB of memory; make its rows, results or texts fewer")
        if kind == "failed":
            raise value
        return value

    def _started(self) -> Connection:
        """The pipe to the process, which is started where there is none."""
        if self._process is not None and (self._owner != os.getpid() or self._process.poll() is not None):
            self._process = None
        if self._process is None or self._pipe is None:
            self._pipe, theirs = Pipe()
            paths, number = json.dumps(sys.path), theirs.fileno()
            code = f"import sys; sys.path[:] = {paths}; import {__name__} as work; work.serve({number})"
            self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=(number,))
            self._owner = os.getpid()
            theirs.close()
            if self._reply(self._pipe, time.monotonic() + START_SECONDS, START_SECONDS)[0] != "started":
                raise RuntimeError("the process that checks specs did not start; its reason stands above")
        return self._pipe

    def _reply(self, pipe: Connection, until: float, seconds: float) -> _Reply:
        try:
            if pipe.poll(max(0.0, until - time.monotonic())):
                reply: _Reply = pickle.loads(pipe.recv_bytes(2 * MOST_ANSWER_BYTES))
                return reply
        except (EOFError, OSError):  # it was ended from outside, which systems do where memory is short
            if self._process is not None and self._process.wait(10) == -signal.SIGXCPU:
                raise TooMuch(f"{self.place} takes all the processor time that there is; make it cheaper") from None
            return "memory", None
        raise TooMuch(f"{self.place} takes longer than {seconds:g} s; make it cheaper")

    @property
    def place(self) -> str:
        """What it works on, or was working on last."""
        return self._place or "the spec"

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait(10)
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


SHARED = LimitedProcess()
"""The one of this process: stages come one after the other."""
atexit.register(SHARED.end)


def serve(number: int) -> None:
    """Do what is asked through this descriptor, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    pipe = Connection(number)
    places.told(lambda place: _send(pipe, "place", place))
    from toolorchestra.synth.stages import pipeline  # noqa: F401 - loaded before the memory is counted

    _limit_memory()
    _send(pipe, "started")
    with contextlib.suppress(EOFError, OSError):
        while True:
            work, given, wants = pickle.loads(pipe.recv_bytes())
            more = {"seen": lambda done, of: _send(pipe, "seen", (done, of))} if wants else {}
            try:
                _send(pipe, "done", work(*given, **more))
            except MemoryError:
                _send(pipe, "memory")
            except Exception as err:  # noqa: BLE001 - whatever it is, it is raised where it was asked for
                try:
                    pickle.loads(pickle.dumps(err))
                except Exception:  # noqa: BLE001 - an error's class may not be made again from its arguments
                    err = RuntimeError(f"{type(err).__name__}: {err}")
                _send(pipe, "failed", err)


def _send(pipe: Connection, kind: str, value: Any = None) -> None:
    data = pickle.dumps((kind, value))
    pipe.send_bytes(data if len(data) <= MOST_ANSWER_BYTES else pickle.dumps(("memory", None)))


def _limit_memory() -> None:
    """Bound what this process may allocate. Only Linux says how much it has, and keeps such a bound."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, now + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    except (ImportError, OSError, ValueError):
        return
