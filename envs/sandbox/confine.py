"""Locks the calling process in, for good: Landlock for files, seccomp for system calls, limits, no capabilities.

Needs Linux 5.13 or later with Landlock switched on, and no root, namespaces or packages. The seed locks itself in first
(`Walls.around_seed`), so that what is the same for all children is done once; each child then locks itself in further.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import struct
from collections.abc import Sequence

from toolorchestra.envs.sandbox import Bounds, syscalls

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 4, 22, 24, 38, 1
_SECCOMP_FILTER = 2
LOWEST_HELD = 10
"""Descriptors below are for the child's standard streams and its pipes."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _READ_FILE | _READ_DIR
_MAKE = 0x10 | 0x20 | 0x80 | 0x100
"""Remove directories and files, make directories and regular files: neither links, devices, sockets nor pipes."""
_TRUNCATE = 1 << 14
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP_BY_ABI = {4: 3}
_SCOPES_BY_ABI = {6: 3}
"""Abstract unix sockets and signals stay inside."""


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if not syscalls.machine():
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, int(found))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def hold(readable: Sequence[str]) -> list[tuple[int, bool]]:
    """Open what a program may read, once and before it is locked in: (descriptor, is a folder)."""
    out = []
    paths = {os.path.realpath(p) for p in readable if os.path.exists(p)}
    for path in sorted(paths):
        if any(path.startswith(f"{other}/") for other in paths):
            continue  # the folder around it says it already
        out.append((_held(path), os.path.isdir(path)))
    return out


def _held(path: str) -> int:
    low = os.open(path, os.O_PATH | os.O_CLOEXEC)
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, LOWEST_HELD)
    os.close(low)
    return high


class Walls:
    """What locks a child in, made ready in the seed so that a child has little left to do."""

    def __init__(self, readable: Sequence[tuple[int, bool]], bounds: Bounds) -> None:
        self.readable, self.bounds = readable, bounds
        self._libc = _libc()
        abi = _must(self._libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), "Landlock")
        self._handled = _ALL_BY_ABI[min(abi, 5)]
        self._attributes = struct.pack(
            "QQQ", self._handled, _TCP_BY_ABI[4] if abi >= 4 else 0, _SCOPES_BY_ABI[6] if abi >= 6 else 0
        )[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
        self._null = _held("/dev/null")
        self._filter = syscalls.Filter(syscalls.machine())

    @property
    def held(self) -> list[int]:
        """The descriptors that locking in needs."""
        return [self._null, *(descriptor for descriptor, _ in self.readable)]

    def around_seed(self, root: str) -> None:
        """Lock the seed in: it reads what children read and writes below `root`, and has no capabilities."""
        _limit(resource.RLIMIT_AS, _address_space() + self.bounds.memory_bytes)
        _limit(resource.RLIMIT_FSIZE, self.bounds.file_bytes)
        for what in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
            _limit(what, 0)
        self.die_with_parent()
        _must(self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
        self._landlock(root)
        _drop_capabilities(self._libc)
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def around_child(self, scratch: str, lasting: bool) -> None:
        """Lock a child in. What is open stays open: close first what it may not have. `lasting`: for a session, which
        may use ten times the processor time."""
        _limit(resource.RLIMIT_CPU, int(self.bounds.seconds * (10 if lasting else 1)) + 1)
        _limit(resource.RLIMIT_NOFILE, self.bounds.open_files)
        self.die_with_parent()
        self._landlock(scratch)
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        size, address = self._filter.of(os.getpid())
        program = struct.pack("HxxxxxxP", size, address)
        _must(self._libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, program, 0, 0), "prctl(SECCOMP)")

    def die_with_parent(self) -> None:
        """Be killed when the parent is gone. A fork clears it."""
        _must(self._libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl(PDEATHSIG)")

    def _landlock(self, writable: str) -> None:
        call, handled = self._libc.syscall, self._handled
        size = ctypes.c_size_t(len(self._attributes))
        ruleset = _must(call(_CREATE_RULESET, self._attributes, size, ctypes.c_uint32(0)), "ruleset")
        for descriptor, is_folder in self.readable:
            self._allow(ruleset, descriptor, (_READ | _EXECUTE if is_folder else _READ_FILE | _EXECUTE) & handled)
        own = os.open(writable, os.O_PATH | os.O_CLOEXEC)
        self._allow(ruleset, own, (_READ | _WRITE_FILE | _MAKE | _TRUNCATE) & handled)
        self._allow(ruleset, self._null, (_READ_FILE | _WRITE_FILE) & handled)
        _must(call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "restrict_self")
        os.close(ruleset)
        os.close(own)

    def _allow(self, ruleset: int, descriptor: int, rights: int) -> None:
        rule = struct.pack("=Qi", rights, descriptor)
        kind, none = ctypes.c_int(_PATH_BENEATH), ctypes.c_uint32(0)
        _must(self._libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), kind, rule, none), "Landlock rule")


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(what: int, value: int) -> None:
    most = resource.getrlimit(what)[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (value, value))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last one, or not ours to drop: the sets below count
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _must(libc.syscall(_CAPSET[syscalls.machine()], header, nothing), "capset")
