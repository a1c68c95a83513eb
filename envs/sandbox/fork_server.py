"""The warm fork server: a process of its own that has numpy and sympy loaded and forks a locked-in child per program.

It speaks length-prefixed JSON on its stdin and stdout. When its stdin ends, so do it and all its children.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import selectors
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.sandbox.child_program import serve
from toolorchestra.envs.sandbox.confine import LOWEST_HELD, hold, lock
from toolorchestra.envs.sandbox.scratch import disk_bytes, remove

PRELOADED = tuple(
    "math cmath random itertools functools collections fractions decimal statistics datetime json re heapq bisect"
    " string operator typing dataclasses copy traceback linecache numpy sympy".split()
)
TICK_SECONDS = 0.05
LOST = "note: the session was ended since its last program, and its names and files are gone"
_CHUNK = 1 << 16


class _Child:
    """A forked child and what it has said in this run."""

    def __init__(self, pid: int, scratch: str, pipes: tuple[int, int, int, int], session: str) -> None:
        self.pid, self.scratch, self.session = pid, scratch, session
        self.out, self.err, self.orders, self.status = pipes
        self.said: dict[int, bytearray] = {}
        self.asked: Mapping[str, Any] | None = None
        self.unread = memoryview(b"")
        self.restarted = False
        self.started = self.used = time.monotonic()

    @property
    def reads(self) -> tuple[int, int, int]:
        return self.out, self.err, self.status


class ForkServer:
    """The server's loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.bounds = Bounds(**settings["bounds"])
        self.root: str = settings["scratch"]
        self.most_children: int = settings["most_children"]
        self.most_sessions: int = settings["most_sessions"]
        self.idle_seconds: float = settings["idle_seconds"]
        self.readable = hold(settings["readable"])
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, _Child] = {}
        self.sessions: dict[str, _Child] = {}
        self.ended: set[str] = set()
        """Sessions that lost their names: whoever comes back is told."""
        self.waiting: deque[Mapping[str, Any]] = deque()
        self.incoming = bytearray()
        self.made = 0

    def run(self) -> None:
        """Serve until stdin ends."""
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)
        while True:
            for key, _ in self.selector.select(TICK_SECONDS if self.children else None):
                if key.data is None:
                    if not self._take():
                        return
                elif key.data.pid in self.children:
                    if key.fd == key.data.orders:
                        self._tell(key.data)
                    else:
                        self._hear(key.data, key.fd)
            self._watch()
            self._start_waiting()

    def close(self) -> None:
        """End every child and remove every file: the process that started this one may be gone already."""
        for child in list(self.children.values()):
            self._bury(child)
        remove(self.root)

    # -- orders ----------------------------------------------------------------------------------------------------

    def _take(self) -> bool:
        try:
            data = os.read(0, _CHUNK)
        except BlockingIOError:
            return True
        self.incoming += data
        while len(self.incoming) >= 4:
            size = struct.unpack("<I", self.incoming[:4])[0]
            if len(self.incoming) < 4 + size:
                break
            order = json.loads(self.incoming[4 : 4 + size])
            del self.incoming[: 4 + size]
            self._order(order)
        return bool(data)

    def _order(self, order: Mapping[str, Any]) -> None:
        if "drop" in order:  # nobody waits for it any more
            self.waiting = deque(w for w in self.waiting if w["id"] != order["drop"])
            for child in list(self.children.values()):
                if child.asked and child.asked["id"] == order["drop"]:
                    self._bury(child)
            return
        self.waiting.append(order)

    def _start_waiting(self) -> None:
        held: list[Mapping[str, Any]] = []
        while self.waiting:
            order = self.waiting.popleft()
            child = self.sessions.get(order["session"]) if order["session"] else None
            if child is not None and child.asked is not None:
                held.append(order)  # one program of a session at a time
                continue
            if child is None and sum(c.asked is not None for c in self.children.values()) >= self.most_children:
                held.append(order)
                break
            if child is None:
                child = self._fork(order["session"])
                child.restarted = order["lost"] or order["session"] in self.ended
                self.ended.discard(order["session"])
            self._begin(child, order)
        self.waiting.extendleft(reversed(held))

    def _begin(self, child: _Child, order: Mapping[str, Any]) -> None:
        child.asked, child.started = order, time.monotonic()
        child.said = {child.out: bytearray(), child.err: bytearray()}
        code = order["code"].encode("utf-8", "replace")
        child.unread = memoryview(struct.pack("<I", len(code)) + code)
        self._tell(child)

    def _tell(self, child: _Child) -> None:
        """Write the order as far as the child reads it. One that does not is ended by the deadline."""
        try:
            while child.unread:
                child.unread = child.unread[os.write(child.orders, child.unread[:_CHUNK]) :]
        except BlockingIOError:
            if child.orders not in self.selector.get_map():
                self.selector.register(child.orders, selectors.EVENT_WRITE, child)
            return
        except BrokenPipeError:
            pass
        with contextlib.suppress(KeyError):
            self.selector.unregister(child.orders)

    # -- children --------------------------------------------------------------------------------------------------

    def _fork(self, session: str) -> _Child:
        if session and len(self.sessions) >= self.most_sessions:
            idle = [c for c in self.sessions.values() if c.asked is None]
            if idle:
                self._bury(min(idle, key=lambda c: c.used))
        self.made += 1
        scratch = os.path.join(self.root, f"run{self.made}")
        os.mkdir(scratch, 0o700)
        (out, out_w), (err, err_w), (orders_r, orders), (status, status_w) = (os.pipe() for _ in range(4))
        pid = os.fork()
        if pid == 0:
            self._become_a_child(scratch, (out_w, err_w, orders_r, status_w), bool(session))
        for theirs in (out_w, err_w, orders_r, status_w):
            os.close(theirs)
        child = _Child(pid, scratch, (out, err, orders, status), session)
        self.children[pid] = child
        if session:
            self.sessions[session] = child
        os.set_blocking(orders, False)
        for fd in child.reads:
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, child)
        return child

    def _become_a_child(self, scratch: str, pipes: tuple[int, int, int, int], lasting: bool) -> NoReturn:
        try:
            null = os.open("/dev/null", os.O_RDONLY)
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_HELD) for fd in (null, *pipes)]
            for target, fd in enumerate(high):
                os.dup2(fd, target)
            _close_all_but([0, 1, 2, 3, 4, *(fd for fd, _ in self.readable)])
            os.chdir(scratch)
            os.environ.clear()
            lock(self.readable, scratch, self.bounds, lasting)
            _close_all_but([0, 1, 2, 3, 4])
            serve(3, 4)
        except BaseException as err:  # noqa: BLE001 - whatever it is, it may not return into the server's loop
            with contextlib.suppress(BaseException):
                os.write(2, f"the sandbox could not be set up: {err}\n".encode())
        os._exit(120)

    def _hear(self, child: _Child, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if fd != child.status:
            if not data:
                self.selector.unregister(fd)
            elif fd in child.said:
                child.said[fd] += data
                if len(child.said[fd]) > self.bounds.output_bytes:
                    self._answer(child, -signal.SIGKILL, f"ended: more than {self.bounds.output_bytes} bytes of output")
            return
        if len(data) >= 4 and child.asked is not None:
            self._answer(child, struct.unpack("<i", data[:4])[0], "")
        elif not data:
            self._answer(child, None, "")

    def _watch(self) -> None:
        now = time.monotonic()
        for child in list(self.children.values()):
            if child.asked is None:
                if now - child.used > self.idle_seconds:
                    self._bury(child)
            elif now - child.started > self.bounds.seconds:
                self._answer(child, -signal.SIGKILL, f"ended: not done after {self.bounds.seconds:g} s")
            elif disk_bytes(child.scratch) > self.bounds.disk_bytes:
                self._answer(child, -signal.SIGKILL, f"ended: more than {self.bounds.disk_bytes} bytes of files")

    def _answer(self, child: _Child, status: int | None, note: str) -> None:
        """Say what came of the run. `status` None: the child is gone; with a note: it is to be ended."""
        asked, child.asked = child.asked, None
        seconds = time.monotonic() - child.started
        for fd in (child.out, child.err):
            self._drain(child, fd)
        child.used = time.monotonic()
        if status is None or note or not child.session:
            code = self._bury(child)
            status = code if status is None else status
        if asked is None:
            return
        most = self.bounds.output_bytes
        said = [bytes(child.said[fd][:most]).decode("utf-8", "replace") for fd in (child.out, child.err)]
        err = f"{said[1]}\n{note}".strip() if note else said[1]
        if child.restarted:
            err, child.restarted = f"{LOST}\n{err}".strip(), False
        _send({"id": asked["id"], "stdout": said[0], "stderr": err, "status": status, "seconds": seconds})

    def _drain(self, child: _Child, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(child.said.get(fd, b"")) <= self.bounds.output_bytes and (data := os.read(fd, _CHUNK)):
                child.said[fd] += data

    def _bury(self, child: _Child) -> int:
        """End a child, take its exit status, and remove all that is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        for fd in (*child.reads, child.orders):
            with contextlib.suppress(KeyError):
                self.selector.unregister(fd)
            os.close(fd)
        del self.children[child.pid]
        if self.sessions.get(child.session) is child:
            del self.sessions[child.session]
            self.ended.add(child.session)
        remove(child.scratch)
        return status


def _close_all_but(kept: Sequence[int]) -> None:
    low = 0
    for fd in sorted(kept):
        if fd > low:  # an empty range from 0 would close everything
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 20)


def _send(said: Mapping[str, Any]) -> None:
    data = json.dumps(said).encode()
    view = memoryview(struct.pack("<I", len(data)) + data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    """Read the settings from the command line, load what programs need, and serve."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loaded = []
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            loaded.append(name)
    gc.collect()
    gc.freeze()
    server = ForkServer(settings)
    _send({"id": 0, "loaded": loaded})
    try:
        server.run()
    finally:
        server.close()
