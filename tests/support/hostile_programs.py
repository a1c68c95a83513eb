"""Programs that try to get out of a sandbox, hang it, or drown it, and what on the host shows whether they did.

    examine(LandlockSandbox(Bounds(seconds=2)))

A program prints ESCAPED where it can see that it got through; the rest is looked at from outside: a process that must
stay alive, a file and a folder that must stay as they are, listeners that nobody may reach, the time that passed.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.paths import REPOSITORY
from toolorchestra.envs.sandbox import Execution, Interpreter
from toolorchestra.envs.sandbox.landlock import LandlockSandbox

CANARY = "canary-5e1f"
MARK = "ESCAPED"
SLACK_SECONDS = 6.0
NEIGHBOUR_SECONDS = 0.02
"""Between two programs of a neighbour."""
MOST_SAID = 3 << 20


@dataclass(frozen=True)
class Containment:
    """What one program came to."""

    name: str
    contained: bool
    seconds: float
    seen: str
    neighbour_seconds: float = 0.0
    """The longest that a `print(1)` beside it took, from when it was asked for."""


class Stage:
    """The host's side: what hostile programs go for."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.secret, self.outside = folder / "secret.txt", folder / "outside"
        self.secret.write_text(CANARY, encoding="utf-8")
        self.outside.mkdir()
        self.victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "socket"))
        self.unix.listen()
        for listening in (self.listener, self.datagrams, self.unix):
            listening.setblocking(False)
        self._modified = self.secret.stat().st_mtime_ns, self.secret.stat().st_mode

    @property
    def names(self) -> Mapping[str, str]:
        """What stands in the programs' braces."""
        return {
            "secret": str(self.secret), "outside": str(self.outside), "victim": str(self.victim.pid),
            "parent": str(os.getpid()), "tcp": str(self.listener.getsockname()[1]),
            "udp": str(self.datagrams.getsockname()[1]), "unix": self.unix.getsockname(),
            "search": walker(CANARY, MARK),
        }  # fmt: skip

    def damage(self) -> str:
        """What a program did out here, or ""."""
        found = []
        if self.victim.poll() is not None:
            found.append("the victim is dead")
        if any(self.outside.iterdir()):
            found.append("something was written outside")
        status = self.secret.stat()
        if (status.st_mtime_ns, status.st_mode) != self._modified or self.secret.read_text("utf-8") != CANARY:
            found.append("the secret file was changed")
        for name, listening in (("TCP", self.listener), ("unix", self.unix)):
            with suppress(BlockingIOError):
                listening.accept()[0].close()
                found.append(f"{name} listener reached")
        with suppress(BlockingIOError):
            self.datagrams.recv(1)
            found.append("UDP listener reached")
        return ", ".join(found)

    def close(self) -> None:
        """Kills the victim process, closes the sockets and removes the folder."""
        self.victim.kill()
        self.victim.wait()
        for listening in (self.listener, self.datagrams, self.unix):
            listening.close()
        self._folder.cleanup()


def run(made: Interpreter, code: str, session: str = "") -> Execution:
    """What a program gives."""
    return asyncio.run(made.run(code, session))


def together(made: Interpreter, *codes: str) -> list[Execution]:
    """What programs give that run at the same time."""

    async def all_of_them() -> list[Execution]:
        return list(await asyncio.gather(*(made.run(code) for code in codes)))

    return asyncio.run(all_of_them())


def scratch_of(made: LandlockSandbox) -> Path:
    """Where a sandbox's programs have their folders."""
    return Path(made.server()._finalizer.peek()[2][1])  # type: ignore[index]


def programs(file: str = "hostile") -> Mapping[str, str]:
    """Name -> program of a list, "hostile" or "useful"."""
    source = REPOSITORY / "tests" / "data" / "programs" / f"{file}.txt"
    out = {}
    for block in source.read_text(encoding="utf-8").split("\n=== ")[1:]:
        name, _, code = block.partition("\n")
        out[name.strip()] = code
    return out


def walker(canary: str, mark: str = "") -> str:
    """A program that looks for a text in all that it can reach of its process, and does not hold it itself."""
    (code,) = programs("search").values()
    return code.replace("{pattern}", f"{canary[:-1]}[{canary[-1]}]").replace("{mark}", repr(mark))


async def _run(interpreter: Interpreter, code: str, seconds: float) -> tuple[Execution, float, list[float]]:
    """What a program gave, how long it took, and how long each of a neighbour's programs took beside it."""
    ended, waits = asyncio.Event(), list[float]()
    beside = asyncio.create_task(_neighbour(interpreter, ended, waits))
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            done = await interpreter.run(code, "hostile")
        took = time.monotonic() - started
    finally:
        ended.set()
        await beside
    return done, took, waits


async def _neighbour(interpreter: Interpreter, ended: asyncio.Event, waits: list[float]) -> None:
    while not ended.is_set():
        asked = time.monotonic() + NEIGHBOUR_SECONDS
        await asyncio.sleep(NEIGHBOUR_SECONDS)
        done = await interpreter.run(f"# {CANARY}\nprint(1)", "neighbour")
        waits.append(time.monotonic() - asked if done.stdout == "1\n" else math.inf)


def examine(interpreter: Interpreter, deadline_seconds: float, only: Sequence[str] = ()) -> list[Containment]:
    """Run the hostile programs one after the other. `deadline_seconds`: what the interpreter promises to keep."""
    verdicts: list[Containment] = []
    asyncio.run(interpreter.run("print(1)"))  # so that no program pays for the start
    stage = Stage()
    try:
        for name, code in programs().items():
            if only and name not in only:
                continue
            if verdicts and not verdicts[-1].contained:  # what was damaged is set up anew
                stage.close()
                stage = Stage()
            verdicts.append(_verdict(interpreter, name, code, stage, deadline_seconds))
    finally:
        stage.close()
    return verdicts


def _verdict(interpreter: Interpreter, name: str, code: str, stage: Stage, deadline_seconds: float) -> Containment:
    for key, value in stage.names.items():
        code = code.replace("{" + key + "}", value)
    code = code.replace(f"'{MARK}'", f"'{MARK[:3]}' '{MARK[3:]}'")  # so that a traceback does not show it
    try:
        done, seconds, waits = asyncio.run(_run(interpreter, code, deadline_seconds + SLACK_SECONDS))
    except TimeoutError:
        return Containment(name, False, deadline_seconds + SLACK_SECONDS, "never came back")
    if (end := getattr(interpreter, "end_session", None)) is not None:
        end("hostile")
    time.sleep(0.05)
    said = done.stdout + done.stderr
    wrong = [stage.damage()]
    wrong += [MARK] if MARK in said else []
    wrong += ["a neighbour's program failed"] if math.inf in waits else []
    wrong += ["the canary came out"] if CANARY in said else []
    wrong += ["a raw escape came out"] if "\x1b" in said else []
    wrong += [f"{len(said)} characters came out"] if len(said) > MOST_SAID else []
    found = ", ".join(w for w in wrong if w)
    last = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or [f"status {done.exit_status}"])[-1]
    return Containment(name, not found, seconds, found or last[:60], max(waits, default=0.0))


def works(interpreter: Interpreter) -> list[Containment]:
    """Run the useful programs: each ends by printing what `expect:` in its name says."""
    verdicts = []
    for title, code in programs("useful").items():
        name, _, expected = title.partition(" expect: ")
        done, seconds, _ = asyncio.run(_run(interpreter, code, 120))
        right = done.stdout.strip() == expected
        verdicts.append(Containment(name, right, seconds, done.stdout.strip()[:60] or done.stderr.strip()[-60:]))
    return verdicts
