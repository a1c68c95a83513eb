"""The fork server: a process of its own that hands programs to locked-in children, and bounds what they use.

It speaks length-prefixed JSON on its stdin and stdout; the outputs stand behind an answer as they are. When its stdin
ends, so do it and all its children. Children are forked by the seed (`process_seed.py`), which holds nothing; some
always wait locked in, each for one program or one session. What takes long, counting and removing what programs left,
is done by two processes beside the loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.sandbox.children import CHUNK, Child, ChildPool
from toolorchestra.envs.sandbox.process_seed import LOADED, MOST_BYTES, Begin, grow
from toolorchestra.envs.sandbox.scratch import counting, keep, remove, removing

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 5.0
LOST = "note: the session was ended since its last program, and its names and files are gone"

STALE_SECONDS = 0.2
"""A program whose files were counted longer ago stands still until they are again."""
OVER = "ended: its episode is over"


class ForkServer:
    """The fork server's loop: takes orders, hands programs to children, and answers with what they did."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        seeds: Sequence[socket.socket],
        counter: socket.socket,
        remover: socket.socket,
    ) -> None:
        self.bounds = Bounds(**settings["bounds"])
        self.most_children: int = settings["most_children"]
        self.most_sessions: int = settings["most_sessions"]
        self.idle_seconds: float = settings["idle_seconds"]
        self.selector = selectors.DefaultSelector()
        self.pool = ChildPool(settings, seeds, remover, self.selector)
        self.counter, self.remover = counter, remover
        self.running: dict[int, Child] = {}
        self.sessions: dict[str, Child] = {}
        self.ended: set[str] = set()
        """Sessions that lost their names: whoever comes back is told."""
        self.waiting: deque[Mapping[str, Any]] = deque()
        self.incoming = bytearray()
        self.watched = 0.0
        self.selector.register(0, selectors.EVENT_READ, self._take)
        for seed in seeds:
            self.selector.register(seed, selectors.EVENT_READ, partial(self._hear_of_children, seed))
        self.selector.register(counter, selectors.EVENT_READ, self._hear_of_disk)
        self.selector.register(remover, selectors.EVENT_READ, self._hear_of_removal)
        self.most_together: Mapping[str, int] = settings["together"]
        self.open = True

    def run(self) -> None:
        """Serve until stdin ends, or the seed does."""
        os.set_blocking(0, False)
        self.pool.refill(False)
        while self.open:
            for key, _ in self.selector.select(self._patience()):
                if isinstance(key.data, Child):
                    self._hear(key.data, key.fd)
                else:
                    key.data()
            if time.monotonic() - self.watched >= TICK_SECONDS:
                self.watched = time.monotonic()
                self._watch()
            self._start_waiting()
            self.pool.refill(bool(self.waiting))
            self.pool.clear_up()

    def _patience(self) -> float | None:
        if self.running or self.pool.to_remove:
            return TICK_SECONDS
        if any(not child.counted for child in self.sessions.values()):
            return TICK_SECONDS
        return IDLE_TICK_SECONDS if self.sessions else None

    # -- orders ----------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:
            return
        self.open = self.open and bool(data)
        self.incoming += data
        while len(self.incoming) >= 4:
            size = struct.unpack("<I", self.incoming[:4])[0]
            if len(self.incoming) < 4 + size:
                break
            order = json.loads(self.incoming[4 : 4 + size])
            del self.incoming[: 4 + size]
            self._order(order)

    def _order(self, order: Mapping[str, Any]) -> None:
        if "end" in order:
            self._end_session(order["end"])
        elif "drop" in order:  # nobody waits for it any more
            self.waiting = deque(w for w in self.waiting if w["id"] != order["drop"])
            for child in list(self.running.values()):
                if child.asked and child.asked["id"] == order["drop"]:
                    self._bury(child)
        else:
            self.waiting.append(order)

    def _end_session(self, session: str) -> None:
        """The episode is over: nobody comes back to this session."""
        child = self.sessions.get(session)
        if child is not None:
            if child.asked is not None:
                self._answer(child, -signal.SIGKILL, OVER)
            self._bury(child)
        for order in [order for order in self.waiting if order["session"] == session]:
            self.waiting.remove(order)
            _send({"id": order["id"], "status": -signal.SIGKILL, "seconds": 0.0}, b"", OVER.encode())
        self.ended.discard(session)

    def _start_waiting(self) -> None:
        held: list[Mapping[str, Any]] = []
        while self.waiting:
            order = self.waiting.popleft()
            child = self.sessions.get(order["session"])
            if child is not None and child.asked is not None:
                held.append(order)  # one program of a session at a time
                continue
            if child is None:
                # A further program waits for the end of others, and until what is left of them is removed.
                left = len(self.pool.to_remove) + self.pool.removing
                full = max(len(self.running) + self.pool.dying, left) >= self.most_children
                if full or not self.pool.ready:
                    held.append(order)
                    break
                child = self._new(order)
            self._begin(child, order)
        self.waiting.extendleft(reversed(held))
        if self.waiting and self.pool.failure:
            order, failure = self.waiting.popleft(), self.pool.failure
            self.pool.failure = ""
            _send({"id": order["id"], "status": 120, "seconds": 0.0}, b"", failure.encode())

    def _new(self, order: Mapping[str, Any]) -> Child:
        session = order["session"]
        if session and len(self.sessions) >= self.most_sessions:
            idle = [c for c in self.sessions.values() if c.asked is None]
            if idle:
                self._bury(min(idle, key=lambda c: c.used))
        child = self.pool.ready.popleft()
        child.session = session
        if session:
            self.sessions[session] = child
        child.restarted = order["lost"] or session in self.ended
        self.ended.discard(session)
        return child

    def _begin(self, child: Child, order: Mapping[str, Any]) -> None:
        self.running[child.number] = child
        child.begin(order)
        self._tell(child)

    def _tell(self, child: Child) -> None:
        """Write the order as far as the child reads it. One that does not is ended by the deadline."""
        if child.tell():
            with contextlib.suppress(KeyError):
                self.selector.unregister(child.orders)
        elif child.orders not in self.selector.get_map():
            self.selector.register(child.orders, selectors.EVENT_WRITE, child)

    # -- what is heard ---------------------------------------------------------------------------------------------

    def _hear_of_children(self, seed: socket.socket) -> None:
        died = self.pool.hear(seed)
        if died is None:  # without a seed there are no children
            self.open = False
            return
        for child in died:
            if child.number in self.running:
                self._answer(child, child.status, "")
            self._forget(child)

    def _hear_of_disk(self) -> None:
        told = self.counter.recv(MOST_BYTES).split(b" ", 1)
        if len(told) < 2:
            self.open = False
            return
        for child in [*self.running.values(), *self.sessions.values()]:
            if child.scratch == os.fsdecode(told[1]):
                child.counting, child.known, child.disk_bytes = False, child.counted_from, int(told[0])
                child.pause(False)
                child.counted = child.asked is None and child.used < child.counted_from
                if child.disk_bytes > self.bounds.disk_bytes:
                    self._answer(child, -signal.SIGKILL, f"ended: more than {self.bounds.disk_bytes} bytes of files")
                return

    def _hear_of_removal(self) -> None:
        self.open = self.open and bool(self.remover.recv(MOST_BYTES))
        self.pool.removing -= 1

    def _hear(self, child: Child, fd: int) -> None:
        if fd not in child.open:
            return  # ended by an event of this same turn
        if fd == child.orders:
            self._tell(child)
            return
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(fd)
            if fd == child.status_pipe:
                child.kill()  # it is ending, or it can say nothing any more; its exit status comes by the seed
        elif fd != child.status_pipe:
            child.said[fd] += data
            if len(child.said[fd]) > self.bounds.output_bytes:
                self._answer(child, -signal.SIGKILL, f"ended: more than {self.bounds.output_bytes} bytes of output")
        elif not child.ready:
            self.pool.now_ready(child)
        elif len(data) >= 4 and child.asked is not None:
            self._answer(child, struct.unpack("<i", data[:4])[0], "")

    # -- bounds ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        now = time.monotonic()
        for child in list(self.sessions.values()):
            if child.asked is None and now - child.used > self.idle_seconds:
                self._bury(child)
            elif child.asked is None and not child.counted:
                self._count(child)
        for child in list(self.running.values()):
            if wrong := self._exceeded(child, now):
                self._answer(child, -signal.SIGKILL, f"ended: {wrong}")
            else:
                child.measure()
                self._count(child)
                if now - child.known > STALE_SECONDS:
                    child.pause(True)
        for what, most in self.most_together.items():
            self._bound_together(what, most)

    def _bound_together(self, what: str, most: int) -> None:
        """End whoever holds most, where all hold too much together."""
        everybody = {child.number: child for child in (*self.running.values(), *self.sessions.values())}.values()
        if sum(getattr(child, what) for child in everybody) > most:
            largest = max(everybody, key=lambda child: int(getattr(child, what)))
            self._answer(largest, -signal.SIGKILL, f"ended: all programs together have more than {most} {what}")

    def _exceeded(self, child: Child, now: float) -> str:
        bounds = self.bounds
        if now - child.started > bounds.seconds:
            return f"not done after {bounds.seconds:g} s"
        if child.processor_seconds() - child.processor_before > bounds.seconds + 1:
            return f"more than {bounds.seconds:g} s of processor time"
        if child.threads() > bounds.threads:
            return f"more than {bounds.threads} threads"
        return ""

    def _count(self, child: Child) -> None:
        """Have a child's files counted; a counter that is behind is left alone."""
        if not child.counting:
            with contextlib.suppress(BlockingIOError):
                self.counter.send(os.fsencode(child.scratch), socket.MSG_DONTWAIT)
                child.counting, child.counted_from = True, time.monotonic()

    # -- ends ------------------------------------------------------------------------------------------------------

    def _answer(self, child: Child, status: int, note: str) -> None:
        """Say what came of the run. With a note the child is to be ended; without a session it has served."""
        asked, child.asked = child.asked, None
        seconds = time.monotonic() - child.started + child.between
        self.running.pop(child.number, None)
        child.drain(self.bounds.output_bytes)
        child.used = time.monotonic()
        if note or not child.session or child.dead:
            self._bury(child)
        else:
            child.stand_still()
            self._count(child)
        if asked is None:
            return
        out, err = (bytes(child.said[fd][: self.bounds.output_bytes]) for fd in (child.out, child.err))
        if note:
            err = b"%b\n%b" % (err, note.encode())
        if child.restarted:
            err, child.restarted = b"%b\n%b" % (LOST.encode(), err), False
        _send({"id": asked["id"], "status": status, "seconds": seconds}, out, err.strip() if note else err)

    def _bury(self, child: Child) -> None:
        """End a child; what is left of it is removed when it is dead."""
        self.running.pop(child.number, None)
        self._forget(child)
        self.pool.bury(child)

    def _forget(self, child: Child) -> None:
        if self.sessions.get(child.session) is child:
            del self.sessions[child.session]
            self.ended.add(child.session)


def _send(said: Mapping[str, Any], *outputs: bytes) -> None:
    data = json.dumps({**said, "outputs": [len(one) for one in outputs]}).encode()
    view = memoryview(b"".join((struct.pack("<I", len(data)), data, *outputs)))
    while view:
        view = view[os.write(1, view) :]


def _beside(work: Callable[[socket.socket], None], *others: socket.socket) -> socket.socket:
    """A process that does this until the socket that is given back is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            for other in (ours, *others):
                other.close()
            os.closerange(0, 2)
            work(theirs)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def main() -> Begin | None:
    """Read the settings from the command line, start the seed and what stands beside, and serve. Gives in a child that
    the seed forked what it is to do, else None."""
    settings = json.loads(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends, and clears up, when its stdin does
        signal.signal(number, signal.SIG_IGN)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(settings["seeds"])]
    seeds = [ours for ours, _ in pairs]
    if os.fork() == 0:
        for ours in seeds:
            ours.close()
        return grow([theirs for _, theirs in pairs], settings)
    for _, theirs in pairs:
        theirs.close()
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # five for each child, and sessions are many
    most = settings["bounds"]["disk_bytes"]
    counter = _beside(lambda link: keep(link, lambda path: counting(path, most)), *seeds)
    remover = _beside(lambda link: keep(link, removing), *seeds, counter)
    try:
        loaded, *others = [seed.recv(MOST_BYTES) for seed in seeds]
        if not all(told.startswith(LOADED) for told in (loaded, *others)):
            return None
        server = ForkServer(settings, seeds, counter, remover)
        _send({"id": 0, "loaded": loaded[len(LOADED) :].decode().split()})
        server.run()
    finally:
        for link in (*seeds, counter, remover):
            link.close()
        for _ in range(3):  # the seed takes its children with it
            with contextlib.suppress(ChildProcessError):
                os.wait()
        remove(settings["scratch"])
    return None
