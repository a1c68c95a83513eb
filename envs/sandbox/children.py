"""Children as the fork server sees them: those that wait locked in, those that run, those that are dying."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.sandbox.process_seed import BORN, DIED, MOST_BYTES, ORDER

CHUNK = 1 << 16
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Child:
    """A child, the pipes to it, and what it has said in this run."""

    def __init__(self, number: int, scratch: str, pipes: tuple[int, int, int, int]) -> None:
        self.number, self.scratch = number, scratch
        self.out, self.err, self.orders, self.status_pipe = pipes
        self.open = set(pipes)
        self.pid = self.handle = -1
        self.ready = self.dead = self.dying = self.restarted = False
        self.counting = self.counted = False
        """Whether its files are being counted; and they were, since it stands still."""
        self.session = ""
        self.said: dict[int, bytearray] = {self.out: bytearray(), self.err: bytearray()}
        self.asked: Mapping[str, Any] | None = None
        self.unread = memoryview(b"")
        self.status = 0
        self.started = self.used = time.monotonic()
        self.counted_from = self.known = 0.0
        """Time from which its files are being counted; and from which their last count is."""
        self.paused = False
        """Whether it stands still until its files are counted."""
        self.disk_bytes = self.memory_bytes = self._memory_before = 0
        """Files and memory when they were last looked at; memory is what its programs took."""
        self.processor_before = self.processor_after = 0.0
        """Processor time when this run began, and when the last one ended."""
        self.stands_still = False
        self.between = 0.0
        """What it used in between: billed with this run."""

    def begin(self, order: Mapping[str, Any]) -> None:
        """Go on from where it stands still, with an order."""
        self.processor_before = self.processor_seconds()
        self.between = 0.0
        if self.stands_still:
            self.stands_still = False
            self.between = max(0.0, self.processor_before - self.processor_after)
            self.signal(signal.SIGCONT)
        self._memory_before = self._memory_before or self._resident()
        self.asked, self.started, self.counted, self.paused = order, time.monotonic(), False, False
        self.known = self.started
        self.said = {self.out: bytearray(), self.err: bytearray()}
        code = order["code"].encode("utf-8", "replace")
        self.unread = memoryview(struct.pack("<I", len(code)) + code)

    def stand_still(self) -> None:
        """No thread of it runs until the next order. What it uses until it stands is billed with that."""
        self.processor_after = self.processor_seconds()
        self.stands_still, self.paused = True, False
        self.signal(signal.SIGSTOP)

    def pause(self, paused: bool) -> None:
        """Let a run stand still, or go on."""
        if paused != self.paused:
            self.paused = paused
            self.signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal by its handle, which never names another process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, number)

    def kill(self) -> None:
        """End it, once it is born; the seed tells when it is dead."""
        if self.handle >= 0 and not self.dead:
            self.signal(signal.SIGKILL)

    def processor_seconds(self) -> float:
        """Seconds of processor time that all its threads have used since it was forked."""
        try:
            return time.clock_gettime(~self.pid << 3 | 2)  # the clock that clock_getcpuclockid gives
        except OSError:
            return 0.0  # it is dead

    def threads(self) -> int:
        """How many threads the child has; 0 when it is gone."""
        try:
            return os.stat(f"/proc/{self.pid}/task").st_nlink - 2
        except OSError:
            return 0

    def measure(self) -> None:
        """Measure how much memory its programs hold."""
        self.memory_bytes = max(0, self._resident() - self._memory_before)

    def _resident(self) -> int:
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * PAGE_BYTES
        except OSError:
            return 0

    def tell(self) -> bool:
        """Write of the order what the pipe takes. Whether all of it is written, or never will be."""
        try:
            while self.unread:
                self.unread = self.unread[os.write(self.orders, self.unread[:CHUNK]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            pass
        return True

    def drain(self, most: int) -> None:
        """Read what is in its pipes."""
        for fd in (self.out, self.err):
            with contextlib.suppress(BlockingIOError):
                while fd in self.open and len(self.said[fd]) <= most and (data := os.read(fd, CHUNK)):
                    self.said[fd] += data


class ChildPool:
    """Has children forked, keeps some waiting locked in, and sees to it that nothing is left of the dead."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        seeds: Sequence[socket.socket],
        remover: socket.socket,
        selector: selectors.BaseSelector,
    ) -> None:
        self._seeds, self._remover, self._selector = seeds, remover, selector
        self._root: str = settings["scratch"]
        self._lasting: bool = settings["sessions"]
        self._target: int = settings["waiting_children"]
        self._children: dict[int, Child] = {}
        self.ready: deque[Child] = deque()
        """Children that wait locked in."""
        self._coming = self._made = self.dying = 0
        self.to_remove: deque[str] = deque()
        self.removing = 0
        """Folders of the dead that the process beside is removing."""
        self.failure = ""
        """What the last child said that could not be set up."""

    def refill(self, wanted: bool) -> None:
        """Order more until enough wait. After a failure only where a program is waiting."""
        while (wanted or not self.failure) and len(self.ready) + self._coming < self._target:
            self._make()

    def _make(self) -> None:
        self._made += 1
        self._coming += 1
        scratch = os.path.join(self._root, secrets.token_hex(16))  # which no other program can guess
        os.mkdir(scratch, 0o700)
        (out, out_w), (err, err_w), (orders_r, orders), (status, status_w) = (os.pipe() for _ in range(4))
        theirs = (out_w, err_w, orders_r, status_w)
        order = ORDER.pack(self._made, self._lasting) + os.fsencode(scratch)
        socket.send_fds(self._seeds[self._made % len(self._seeds)], [order], theirs)
        for fd in theirs:
            os.close(fd)
        child = self._children[self._made] = Child(self._made, scratch, (out, err, orders, status))
        for fd in (out, err, orders, status):
            os.set_blocking(fd, False)
        for fd in (out, err, status):
            self._selector.register(fd, selectors.EVENT_READ, child)

    def hear(self, seed: socket.socket) -> list[Child] | None:
        """What a seed says of births and deaths: who died; None where the seed itself did."""
        told, handles, *_ = socket.recv_fds(seed, MOST_BYTES, 1)
        if not told:
            return None
        if told[:1] == b"B":
            _, number, pid = BORN.unpack(told)
            child = self._children[number]
            child.pid, child.handle = pid, handles[0]
            if child.ready:
                self.now_ready(child)
            return []
        _, number, status = DIED.unpack(told)
        child = self._children.pop(number)
        child.status, child.dead = status, True
        return [self._gone(child)]

    def now_ready(self, child: Child) -> None:
        """Note that it says that it is locked in. The seed has told of its birth before, or will."""
        child.ready = True
        if child.handle >= 0:
            self._coming -= 1
            self.ready.append(child)

    def _gone(self, child: Child) -> Child:
        if not child.ready:
            self._coming -= 1
            child.drain(CHUNK)
            said = child.said[child.err].decode("utf-8", "replace")
            self.failure = said or f"the sandbox's child was lost ({child.status})"
        elif child in self.ready:
            self.ready.remove(child)
        self.dying -= child.dying
        if child.asked is None:
            self._close(child)
        os.close(child.handle)
        self.to_remove.append(child.scratch)
        return child

    def bury(self, child: Child) -> None:
        """End a child whose run is over."""
        if not (child.dead or child.dying):
            child.dying = True
            self.dying += 1
            child.kill()
        self._close(child)

    def _close(self, child: Child) -> None:
        for fd in child.open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
            os.close(fd)
        child.open = set()

    def clear_up(self) -> None:
        """Order folders removed, as fast as the process that does it takes them."""
        with contextlib.suppress(BlockingIOError):
            while self.to_remove:
                self._remover.send(os.fsencode(self.to_remove[0]), socket.MSG_DONTWAIT)
                self.to_remove.popleft()
                self.removing += 1
