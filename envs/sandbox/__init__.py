"""Code interpreters behind one protocol."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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

    async def run(self, code: str) -> Execution: ...
