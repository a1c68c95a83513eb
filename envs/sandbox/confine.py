"""Locks the calling process in, for good: Landlock for files, seccomp for system calls, limits, no capabilities.

Needs Linux 5.13 or later with Landlock switched on, and no root, namespaces or packages. The seed locks itself in first
(`Walls.around_seed`), so that what is the same for all children is done once; each child then locks itself in further.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolorchestra.envs.sandbox import Bounds

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
ARCHITECTURES: Mapping[str, int] = {"x86_64": X86_64, "aarch64": AARCH64}

# name: (number on x86-64, number on aarch64); None where the call does not exist.
FREE: Mapping[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "pwrite64": (18, 68),
    "open": (2, None), "openat": (257, 56), "close": (3, 57), "close_range": (436, 436),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "lseek": (8, 62),
    "readlink": (89, None), "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83), "umask": (95, 166),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233), "mincore": (27, 232),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "getrusage": (98, 165),
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getpgrp": (111, None),
    "uname": (63, 160), "sysinfo": (99, 179), "sched_yield": (24, 124),
    "getcpu": (309, 168), "getrandom": (318, 278), "futex_waitv": (449, 449),
    "set_robust_list": (273, 99), "get_robust_list": (274, 100), "set_tid_address": (218, 96), "rseq": (334, 293),
    "arch_prctl": (158, None), "restart_syscall": (219, 128), "membarrier": (324, 283),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip


class Argument(NamedTuple):
    """A call that is allowed when one argument is among some values."""

    numbers: tuple[int | None, int | None]
    place: int
    values: tuple[int, ...]


_TERMINAL = (0x5401, 0x5450, 0x5451, 0x5413, 0x541B, 0x5421)
"""ioctl: is it a terminal, close on exec, window size, bytes to read, non-blocking. Not TIOCSTI, which types."""
_FCNTL = (0, 1, 2, 3, 4, 1030)
"""fcntl: duplicate, flags. Not F_SETOWN, which makes the kernel signal another process, and no locks, by which programs
that read one file could talk."""
_FUTEX = (0, 9, 265, 393, *(128 | operation for operation in range(14)))
"""futex: wait, and within the process everything. Not to wake whoever waits on a page of a file that both read."""
_NAMES = (15, 16, 0x53564D41)
"""prctl: the thread's name, and names of memory areas."""
_OF_A_PROCESS = ((121, 155), (124, 156), (204, 123))
"""getpgid, getsid, sched_getaffinity: of itself alone."""
_OF_A_CLOCK = ((228, 113), (229, 114), (230, 115))
"""clock_gettime, clock_getres, clock_nanosleep."""
_CLOCKS = tuple(range(12))
"""The machine's clocks and its own. A negative one would be the processor time of another process."""
CLONE, CLONE3 = (56, 220), (435, 435)
CLONE_THREAD = 0x00010000
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag."""
EPERM, ENOSYS = 1, 38
_ERRNO = 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_X32 = 0x40000000


def arguments(pid: int) -> list[Argument]:
    """The calls whose first arguments matter. `pid` is the confined process: it may signal itself alone."""
    return [
        Argument((16, 29), 1, _TERMINAL),
        Argument((72, 25), 1, _FCNTL),
        Argument((202, 98), 1, _FUTEX),
        Argument((157, 167), 0, _NAMES),
        Argument((302, 261), 0, (0, pid)),  # prlimit64
        Argument((97, 163), 0, tuple(range(16))),  # getrlimit
        *(Argument(numbers, 0, (0, pid)) for numbers in _OF_A_PROCESS),
        *(Argument(numbers, 0, _CLOCKS) for numbers in _OF_A_CLOCK),
        Argument((62, 129), 0, (pid,)),  # kill
        Argument((234, 131), 0, (pid,)),  # tgkill
    ]


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


_ALLOW, _DENY = _step(_RETURN, 0x7FFF0000), _step(_RETURN, _ERRNO | EPERM)


def build(machine: str, pid: int) -> bytes:
    """The filter's program for this kind of machine. Raises KeyError for one that is not known."""
    which = 0 if ARCHITECTURES[machine] == X86_64 else 1
    program = [_step(_LOAD, 4), _step(_JUMP_EQUAL, ARCHITECTURES[machine], 1, 0), _DENY, _step(_LOAD, 0)]
    program += [_step(_JUMP_ABOVE, _X32, 0, 1), _DENY]
    for numbers in FREE.values():
        if (nr := numbers[which]) is not None:
            program += [_step(_JUMP_EQUAL, nr, 0, 1), _ALLOW]
    # glibc asks for clone3 first and, told that there is none, takes clone, whose flags can be seen.
    program += [_step(_JUMP_EQUAL, CLONE3[which], 0, 1), _step(_RETURN, _ERRNO | ENOSYS)]
    new_thread = (_step(_JUMP_SET, _NAMESPACES, 2, 0), _step(_JUMP_SET, CLONE_THREAD, 0, 1), _ALLOW, _DENY)
    program += [_step(_JUMP_EQUAL, CLONE[which], 0, 5), _argument(0), *new_thread]
    for rule in arguments(pid):
        if (nr := rule.numbers[which]) is not None:
            program += [_step(_JUMP_EQUAL, nr, 0, 2 + 2 * len(rule.values)), _argument(rule.place)]
            for value in rule.values:
                program += [_step(_JUMP_EQUAL, value & 0xFFFFFFFF, 0, 1), _ALLOW]
            program.append(_DENY)
    return b"".join([*program, _DENY])


def _argument(place: int) -> bytes:
    return _step(_LOAD, 16 + 8 * place)


def for_process(program: bytes, pid: int) -> bytes:
    """A filter that was built for the process STAND_IN, for another one."""
    return program.replace(struct.pack("I", STAND_IN), struct.pack("I", pid))


STAND_IN = 0x3FFFFFF0
"""No process has such a number."""


def machine() -> str:
    """The machine's kind as ARCHITECTURES names it, or ""."""
    name = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    return name if name in ARCHITECTURES else ""


# -- locks the calling process in, for good: Landlock for files, seccomp for system calls, limits, no capabilities -----


_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 4, 22, 24, 38, 1
_SECCOMP_FILTER = 2
_LIBC = ctypes.CDLL(None, use_errno=True)
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
_TCP, _SCOPES = 3, 3
"""Since version 4: no TCP. Since version 6: abstract unix sockets and signals stay inside."""


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if not machine():
        return 0
    found = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, int(found))


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
        abi = landlock_abi()
        self._handled = _ALL_BY_ABI[min(abi, 5)]
        known = 24 if abi >= 6 else 16 if abi >= 4 else 8
        self._attributes = struct.pack("QQQ", self._handled, _TCP, _SCOPES)[:known]
        self._null = _held("/dev/null")
        self._filter = build(machine(), STAND_IN)

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
        _must(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
        self._landlock(root)
        _drop_capabilities()
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def around_child(self, scratch: str, lasting: bool) -> None:
        """Lock a child in. What is open stays open: close first what it may not have. `lasting`: for a session, which
        may use ten times the processor time."""
        _limit(resource.RLIMIT_CPU, int(self.bounds.seconds * (10 if lasting else 1)) + 1)
        _limit(resource.RLIMIT_NOFILE, self.bounds.open_files)
        self.die_with_parent()
        self._landlock(scratch)
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        steps = ctypes.create_string_buffer(own := for_process(self._filter, os.getpid()), len(own))
        program = struct.pack("HxxxxxxP", len(own) // 8, ctypes.addressof(steps))
        _must(_LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, program, 0, 0), "prctl(SECCOMP)")

    def die_with_parent(self) -> None:
        """Be killed when the parent is gone. A fork clears it."""
        _must(_LIBC.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl(PDEATHSIG)")

    def _landlock(self, writable: str) -> None:
        call, handled = _LIBC.syscall, self._handled
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
        _must(_LIBC.syscall(_ADD_RULE, ctypes.c_int(ruleset), kind, rule, none), "Landlock rule")


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(what: int, value: int) -> None:
    most = resource.getrlimit(what)[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (value, value))


def _drop_capabilities() -> None:
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last one, or not ours to drop: the sets below count
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _must(_LIBC.syscall(_CAPSET[machine()], header, nothing), "capset")
