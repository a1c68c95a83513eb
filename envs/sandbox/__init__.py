"""Code interpreters behind one protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class Bounds:
    """What one program may use."""

    seconds: float = 20.0
    """Of wall time; processor time is bounded by the same."""
    memory_bytes: int = 1 << 30
    """Of address space beyond what the fork server holds already."""
    output_bytes: int = 1 << 20
    """Of stdout and of stderr; the program is ended when it has said more."""
    file_bytes: int = 8 << 20
    """Of one file."""
    disk_bytes: int = 32 << 20
    """Of all files that can be seen together; looked at every twentieth of a second."""
    open_files: int = 64
    """At the same time."""
    threads: int = 128
    """Looked at every twentieth of a second."""


class Execution(NamedTuple):
    """What a program did."""

    stdout: str
    stderr: str
    exit_status: int
    seconds: float


class Interpreter(Protocol):
    """Runs a program and gives back everything it said. `suspends` says whether running waits for I/O."""

    @property
    def suspends(self) -> bool: ...

    @property
    def describe(self) -> str:
        """What it runs, in words for the tool's description."""

    @property
    def item(self) -> str:
        """The price sheet's item that its seconds are billed under."""

    async def run(self, code: str, session: str = "") -> Execution:
        """Run a program. Programs of one session may see each other's names where the interpreter keeps sessions, and
        run there in the order in which they were asked for; "" is a fresh run that leaves nothing."""


_CONTROL = {c: f"\\x{c:02x}" for c in [*range(32), *range(127, 160)] if c not in (9, 10)}


def harmless(text: str) -> str:
    """A program's output as text that cannot steer a terminal or break an encoder: control characters are spelled."""
    return text.replace("\r\n", "\n").encode("utf-8", "replace").decode().translate(_CONTROL)
