"""Plays specs that were written to do harm: `python scripts/hostile_specs.py`.

Each variant spoils one part of a good spec (`synth/authors/hostile_specs.py`). It is given to `toolorchestra synth` in
a process that may have so much address space and so many seconds. The table says what became of it: refused, by a
sentence that names the part at fault; or accepted, within the limits.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.synth import generate
from toolorchestra.synth.authors.hostile_specs import HOSTILE
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages import limited_work, pipeline, spec_lint, written_parts

BASE = "public_library"
REFUSED, ESCAPED = "refused", "GOT OUT"
PARTS = {
    "schema": "schema.sql", "rows": "rows.yaml", "tool": "tools.yaml", "draw": "intents.yaml: draws",
    "say": "intents.yaml: words", "intents": "intents.yaml", "user": "domain.yaml", "policy": "policy.md",
}  # fmt: skip
"""What a variant's name begins with, and the file that it spoils."""
SHOWN = 150
"""Characters of a sentence in the table."""
BROKEN = 70
"""The status of a process in which the command raised an error that it should have told."""
_ERROR = re.compile(r"^error: (.*)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class HostileOptions:
    """What to play."""

    only: tuple[str, ...] = ()
    """Variants whose name holds one of these; all when left out."""
    megabytes: int = 1024
    """Address space of each process."""
    seconds: int = 20
    """Of the processor, for each variant."""
    wall_seconds: int = 90
    """On the clock, which on a busy machine is more."""
    part_seconds: float = 15.0
    """On the clock for the check of one part, and for the making of tasks, where `synth` gives 60 s and more."""

    def __post_init__(self) -> None:
        check_counts(self, {"megabytes": 1, "seconds": 1, "wall_seconds": 1})


class _Used(NamedTuple):
    seconds: float
    """Of the processor, all processes together."""
    megabytes: int
    """The most that one of them had."""


class Seen(NamedTuple):
    """What became of one variant."""

    name: str
    outcome: str
    seconds: float
    megabytes: int
    sentence: str

    @property
    def part(self) -> str:
        """The file that is spoilt."""
        return PARTS[self.name.partition(":")[0]]

    def row(self) -> str:
        told = self.sentence.replace("|", "\\|")
        told = told if len(told) <= SHOWN else f"{told[:SHOWN]}…"
        return f"| {self.name} | {self.outcome} | {self.seconds:.1f} | {self.megabytes} | {told} |"


def play(name: str, given: HostileOptions) -> Seen:
    """One variant, in a process of its own."""
    change, expected = HOSTILE[name]
    parts = specs.texts(specs.load(BASE).folder)
    change(parts)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "spec").mkdir()
        for part, text in parts.items():
            (folder / "spec" / part).write_text(text, encoding="utf-8")
        code, told, used = _watched(folder, given)
        stolen = sorted({path.name for path in folder.iterdir()} - {"spec", "told", "out.work"})
    sentence = _sentence(told, folder)
    refused = code == 2 and re.search(expected, sentence) is not None and used.seconds <= given.seconds and not stolen
    why = sentence or f"status {code}: {told[-300:]!r}"
    return Seen(name, REFUSED if refused else ESCAPED, *used, f"{why} {stolen or ''}".strip())


def _sentence(told: str, folder: Path) -> str:
    found = _ERROR.search(told)
    line = " ".join(found[1].split()) if found else ""
    return line.replace(f"{folder}/spec/", "").replace(str(folder), "")


def _watched(folder: Path, given: HostileOptions) -> tuple[int, str, _Used]:
    """Exit status, what was printed, and what its processes took."""
    pid = os.fork()
    if not pid:
        _inside(folder, given)
    until = time.monotonic() + given.wall_seconds
    done, status, used = os.wait4(pid, os.WNOHANG)
    while not done and time.monotonic() < until:
        time.sleep(0.02)
        done, status, used = os.wait4(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):  # what it started too
        os.killpg(pid, signal.SIGKILL)
    if not done:
        _, status, used = os.wait4(pid, 0)
    told = (folder / "told").read_text(encoding="utf-8", errors="replace")
    return os.waitstatus_to_exitcode(status), told, _Used(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)


def _inside(folder: Path, given: HostileOptions) -> NoReturn:
    """In the process of one variant: the limits, then the command as anybody calls it."""
    code = BROKEN
    try:
        os.setsid()
        with (folder / "told").open("wb") as told:
            os.dup2(told.fileno(), 1)
            os.dup2(told.fileno(), 2)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (given.megabytes << 20, given.megabytes << 20))
        resource.setrlimit(resource.RLIMIT_CPU, (given.seconds, given.seconds))
        written_parts.CHECK_SECONDS = pipeline.TASKS_SECONDS = spec_lint.SECONDS = given.part_seconds
        code = generate.main(["--spec", "spec", "--out", "out", "--tasks", "10", "--no-costs"])
        sys.stdout.flush()
        sys.stderr.flush()
        limited_work.SHARED.end()  # and what it took is known
    except BaseException:  # noqa: BLE001 - whatever it is, it ends here and is shown
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def run(given: HostileOptions) -> int:
    """Play, and print a Markdown table; a variant that got out fails the command."""
    names = [name for name in HOSTILE if not given.only or any(part in name for part in given.only)]
    say("| variant | outcome | s | MB | sentence |\n|---|---|---|---|---|")
    found = []
    for name in names:
        found.append(play(name, given))
        say(found[-1].row())
    say("\n| part at fault | variants | refused | most s | most MB |\n|---|---|---|---|---|")
    for part in dict.fromkeys(seen.part for seen in found):
        own = [seen for seen in found if seen.part == part]
        refused = sum(seen.outcome == REFUSED for seen in own)
        most = f"{max(seen.seconds for seen in own):.1f} | {max(seen.megabytes for seen in own)}"
        say(f"| {part} | {len(own)} | {refused} | {most} |")
    out = sum(seen.outcome == ESCAPED for seen in found)
    say(
        f"{len(found)} variants, {len(found) - out} refused, {out} got out;"
        f" at most {max(seen.seconds for seen in found):.1f} s and {max(seen.megabytes for seen in found)} MB"
    )
    return FAILED if out else DONE


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(HostileOptions, run, given, about=__doc__)


if __name__ == "__main__":
    sys.exit(main())
