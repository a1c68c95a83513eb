"""Code interpreters behind one protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from toolorchestra.envs.money.ledger import Bill


@dataclass(frozen=True)
class Bounds:
    """What one program may use. A program that goes beyond one of these bounds is ended."""

    seconds: float = 20.0
    """The most seconds that the program may run. Its processor time is bounded by the same number."""
    memory_bytes: int = 1 << 30
    """The most memory that the program may add to what the fork server holds already, as address space."""
    output_bytes: int = 1 << 20
    """The most bytes that the program may write to stdout, and to stderr. It is ended when it has written more."""
    file_bytes: int = 8 << 20
    """The largest size of one file that the program writes."""
    disk_bytes: int = 32 << 20
    """The largest size of all its files together. It is looked at every twentieth of a second."""
    open_files: int = 64
    """How many files the program may have open at the same time."""
    threads: int = 128
    """How many threads the program may have. It is looked at every twentieth of a second."""


class Execution(NamedTuple):
    """What a program printed, how it ended, and how long it took."""

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

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """Run a program. Programs of one session may see each other's names where the interpreter keeps sessions, and
        run there in the order in which they were asked for; "" is a fresh run that leaves nothing. What a run has
        used that gives no Execution is added to `bill`."""


SPELLED = 1 << 16
"""Characters at the end of an output whose control characters are spelled; what stands before gets a "?" for them. So a
flood of them costs little."""
_PLAIN = bytes(c if (c >= 32 and c != 127) or c in (9, 10) else 63 for c in range(256))
_C1 = re.compile(rb"\xc2[\x80-\x9f](?:\xc2[\x80-\x9f])*")
_CONTROL = {c: f"\\x{c:02x}" for c in [*range(32), *range(127, 160)] if c not in (9, 10)}


def harmless(text: str) -> str:
    """A program's output as text that cannot steer a terminal or break an encoder: control characters are spelled."""
    data = text.replace("\r\n", "\n").encode("utf-8", "replace")
    end = data.decode()[-SPELLED:]
    before = data[: len(data) - len(end.encode())]
    return _C1.sub(b"?", before.translate(_PLAIN)).decode() + end.translate(_CONTROL)
