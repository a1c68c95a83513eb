"""Interpreters by name; E2B's machines, and plain Python without walls, where it is asked for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolorchestra.envs.base.errors import ConfigError, Outage, install, one_line, one_of
from toolorchestra.envs.base.secrets import Secrets, key_in
from toolorchestra.envs.money.prices import TOOL, Usage
from toolorchestra.envs.sandbox import Bounds, Execution, Interpreter, harmless
from toolorchestra.envs.sandbox.arithmetic import ArithmeticInterpreter

if TYPE_CHECKING:
    from toolorchestra.envs.money.ledger import Bill

UNSAFE = "unsafe-exec"
KINDS = ("arithmetic", "landlock", "e2b", UNSAFE)
TOLD_CHARACTERS = 300


def interpreter(
    kind: str, bounds: Bounds | None = None, sessions: bool = False, bubblewrap: bool = False
) -> Interpreter:
    """An interpreter by its name. The one without walls is never what another falls back to."""
    bounds = bounds or Bounds()
    if kind == "landlock":
        if not sys.platform.startswith("linux"):
            raise ConfigError(f'sandbox "landlock" is for Linux, this is {sys.platform}; take "arithmetic" or "e2b"')
        from toolorchestra.envs.sandbox.landlock import LandlockSandbox  # its modules are Linux's own

        return LandlockSandbox(bounds, sessions, bubblewrap)
    one_of("sandbox", kind, KINDS)
    if sessions:
        raise ConfigError(f"sandbox {kind!r} keeps no sessions; landlock does")
    if kind == "arithmetic":
        return ArithmeticInterpreter()
    return E2b(bounds) if kind == "e2b" else Unsafe(bounds)


class E2b:
    """A machine of E2B's for each run, with a key."""

    suspends = True
    item = "e2b"
    has_folder = True
    describe = "Python in a machine of its own, with the usual scientific packages and with network; each run is fresh"

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.patience_seconds = bounds, bounds.seconds + 120
        self._key = key_in("E2B_API_KEY")
        if not self._key:
            raise ConfigError("sandbox 'e2b' needs a key: export E2B_API_KEY=...")
        try:
            import e2b_code_interpreter
        except ImportError:
            raise ConfigError(f"sandbox 'e2b' needs its package: {install('e2b')}") from None
        self._sdk = e2b_code_interpreter

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """Make a machine, run, and end it."""
        del session
        started, seconds, machine, done = time.monotonic(), self.bounds.seconds, None, None
        try:
            async with asyncio.timeout(self.patience_seconds):
                machine = await self._sdk.AsyncSandbox.create(api_key=self._key, timeout=int(seconds) + 60)
                try:
                    # The SDK's own limit is between two bytes, and raises what an outage raises.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            done = await machine.run_code(code, timeout=seconds + 60)
                finally:
                    spent = round(time.monotonic() - started, 4)
                    await machine.kill()
        except BaseException as raised:
            if machine is not None and bill is not None:
                used = round(time.monotonic() - started, 4)
                bill.add(Usage(self.item, TOOL, seconds=used, unconfirmed=True))
            if not isinstance(raised, Exception):
                raise
            raise self._outage(raised) from None
        if done is None:
            return Execution("", f"ended: not done after {seconds:g} s", -9, spent)
        most = self.bounds.output_bytes
        out, err = "".join(done.logs.stdout), "".join(done.logs.stderr)
        if done.error is not None:
            err += f"\n{done.error.traceback}"
        return Execution(harmless(out)[:most], harmless(err)[:most], int(done.error is not None), spent)

    def _outage(self, err: Exception) -> Outage:
        """What the SDK raises, and what its transports raise, as an outage."""
        if isinstance(err, TimeoutError):
            return Outage(f"E2B gave or ended no machine in {self.patience_seconds:g} s")
        said = one_line(Secrets(self._key).scrubbed(f"{type(err).__name__}: {err}"))
        return Outage(f"E2B broke off: {said[:TOLD_CHARACTERS]}")


class Unsafe:
    """Plain Python with the user's own rights: files, network, everything. Only for programs that you wrote yourself,
    and only where it is asked for as "unsafe-exec". It has a deadline and an empty environment, no walls."""

    suspends = True
    item = "code-interpreter"
    has_folder = True
    describe = "Python without a sandbox"

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.patience_seconds = bounds, bounds.seconds + 10

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """Each run is a new process in a new folder."""
        del session, bill
        return await asyncio.to_thread(self._run, code)

    def _run(self, code: str) -> Execution:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as folder:
            program = Path(home) / "program.py"  # a command line takes neither any length nor any character
            program.write_bytes(code.encode("utf-8", "replace"))
            command = [sys.executable, "-I", str(program)]
            try:
                done = subprocess.run(
                    command, capture_output=True, env={}, cwd=folder, timeout=self.bounds.seconds, check=False,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                text = f"ended: not done after {self.bounds.seconds:g} s"
                return Execution("", text, -9, round(time.monotonic() - started, 4))
        most = self.bounds.output_bytes
        out, err = (harmless(part[:most].decode("utf-8", "replace")) for part in (done.stdout, done.stderr))
        return Execution(out, err, done.returncode, round(time.monotonic() - started, 4))
