"""The seed: a process that has numpy and sympy loaded, holds nothing of anybody's, and is forked for each program.

An order of the fork server, a scratch folder's path with four pipes, is a child to be made. The seed never sees a
program, nor what one says: those travel on the pipes, whose ends it closes at once. So a program that walks frames,
objects and memory of its process finds only what it brought itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.sandbox.child_program import forget, serve
from toolorchestra.envs.sandbox.confine import LOWEST_HELD, Walls, hold

PRELOADED = tuple(
    "math cmath random itertools functools collections fractions decimal statistics datetime json re heapq bisect"
    " string operator typing dataclasses copy traceback linecache numpy sympy".split()
)
ORDER = struct.Struct("<I?")
"""A child's number and whether it is for a session; its scratch folder's path follows."""
BORN, DIED = struct.Struct("<cII"), struct.Struct("<cIi")
"""What the seed tells: b"B", number, process; b"D", number, exit status."""
Begin = Callable[[int, int], NoReturn]
LOADED = b"L"
MOST_BYTES = 1 << 16


class Birth(NamedTuple):
    """What a child is made for."""

    scratch: str
    lasting: bool
    pipes: Sequence[int]


def grow(links: Sequence[socket.socket], settings: Mapping[str, Any]) -> Begin:
    """Be a seed until the server is gone, one for each link, all forked from the first once everything is loaded. It
    returns in children alone: with what they are to call at the bottom of their stack, where no frame of a seed is
    left."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    walls = Walls(hold(settings["readable"]), Bounds(**settings["bounds"]))
    loaded = []
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            loaded.append(importlib.import_module(name).__name__)
    forget(settings["readable"])
    walls.around_seed(settings["scratch"])
    link = _share(links, walls)
    link.send(LOADED + " ".join(loaded).encode())
    birth = _tend(link)
    if birth is None:
        os._exit(0)
    os.close(link.detach())  # or the object would close, when it goes, what then has its number
    _settle(birth, walls)
    return serve


def _share(links: Sequence[socket.socket], walls: Walls) -> socket.socket:
    """Fork into one seed for each link; gives each its own."""
    own = links[0]
    for link in links[1:]:
        if os.fork() == 0:
            walls.die_with_parent()
            own = link
            break
    for link in links:
        if link is not own:
            link.close()
    return own


def _tend(link: socket.socket) -> Birth | None:
    """Make a child for each order and tell of its death. A Birth in a child; None in the seed, when the server ends."""
    living: dict[int, tuple[int, int]] = {}
    events = select.poll()
    events.register(link, select.POLLIN)
    while True:
        for fd, _ in events.poll():
            if fd != link.fileno():
                events.unregister(fd)
                os.close(fd)
                number, pid = living.pop(fd)
                _, status = os.waitpid(pid, 0)
                link.send(DIED.pack(b"D", number, os.waitstatus_to_exitcode(status)))
                continue
            order, pipes, *_ = socket.recv_fds(link, MOST_BYTES, 4)
            if not order:
                return None
            number, lasting = ORDER.unpack_from(order)
            pid = os.fork()
            if pid == 0:
                return Birth(os.fsdecode(order[ORDER.size :]), lasting, pipes)
            handle = os.pidfd_open(pid)
            living[handle] = number, pid
            events.register(handle, select.POLLIN)
            socket.send_fds(link, [BORN.pack(b"B", number, pid)], [handle])
            for pipe in pipes:
                os.close(pipe)


def _settle(birth: Birth, walls: Walls) -> None:
    """Settle in a new child: take the pipes, close all else, and lock in."""
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_HELD) for fd in (null, *birth.pipes)]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        close_all_but([0, 1, 2, 3, 4, *walls.held])
        for number in (signal.SIGTERM, signal.SIGHUP):  # which the server is deaf to
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # a scheduler that shares by session then gives each program one share, however many its threads
        os.chdir(birth.scratch)
        walls.around_child(birth.scratch, birth.lasting)
        close_all_but([0, 1, 2, 3, 4])
    except BaseException as err:  # noqa: BLE001 - nothing may run where the walls do not stand
        with contextlib.suppress(BaseException):
            os.write(2, f"the sandbox could not be set up: {err}\n".encode())
        os._exit(120)


def close_all_but(kept: Sequence[int]) -> None:
    """Close every other descriptor of this process."""
    low = 0
    for fd in sorted(kept):
        if fd > low:  # an empty range from 0 would close everything
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 20)
