"""Locks the calling process in, for good: Landlock for files, seccomp for system calls, limits, no capabilities.

Needs Linux 5.13 or later with Landlock switched on, and no root, namespaces or packages. Called in a forked child just
before it runs a program that nobody trusts.
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
    for path in dict.fromkeys(os.path.realpath(p) for p in readable):
        if os.path.exists(path):
            low = os.open(path, os.O_PATH | os.O_CLOEXEC)
            out.append((fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, LOWEST_HELD), os.path.isdir(path)))
            os.close(low)
    return out


def lock(readable: Sequence[tuple[int, bool]], scratch: str, bounds: Bounds, lasting: bool) -> None:
    """Lock this process in. What is open stays open: close first what it may not have. `lasting`: for a session, which
    may use ten times the processor time."""
    libc = _libc()
    _limits(bounds, 10 if lasting else 1)
    _must(libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl(PDEATHSIG)")
    _must(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
    _landlock(libc, readable, scratch)
    _drop_capabilities(libc)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    program = syscalls.build(syscalls.machine(), os.getpid())
    kept = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    _must(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, filters, 0, 0), "prctl(SECCOMP)")


def _limits(bounds: Bounds, runs: int) -> None:
    seconds = int(bounds.seconds * runs) + 1
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    for what, value in (
        (resource.RLIMIT_AS, held + bounds.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, bounds.file_bytes),
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        most = resource.getrlimit(what)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(what, (value, value))


def _landlock(libc: ctypes.CDLL, readable: Sequence[tuple[int, bool]], scratch: str) -> None:
    abi = _must(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), "Landlock")
    handled = _ALL_BY_ABI[min(abi, 5)]
    attributes = struct.pack("QQQ", handled, _TCP_BY_ABI[4] if abi >= 4 else 0, _SCOPES_BY_ABI[6] if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _must(libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "ruleset")
    for descriptor, is_folder in readable:
        _allow(libc, ruleset, descriptor, (_READ | _EXECUTE if is_folder else _READ_FILE | _EXECUTE) & handled)
    own = os.open(scratch, os.O_PATH | os.O_CLOEXEC)
    _allow(libc, ruleset, own, (_READ | _WRITE_FILE | _MAKE | _TRUNCATE) & handled)
    null = os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)
    _allow(libc, ruleset, null, (_READ_FILE | _WRITE_FILE) & handled)
    _must(libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "restrict_self")
    for descriptor in (ruleset, own, null):
        os.close(descriptor)


def _allow(libc: ctypes.CDLL, ruleset: int, descriptor: int, rights: int) -> None:
    rule = struct.pack("=Qi", rights, descriptor)
    done = libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    _must(done, "Landlock rule")


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last one, or not ours to drop: the sets below count
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _must(libc.syscall(_CAPSET[syscalls.machine()], header, nothing), "capset")
