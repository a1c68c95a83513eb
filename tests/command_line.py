"""The command line as its users start it, in a process of its own; and its usage and its codes, in this one."""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

TOOLORCHESTRA = (sys.executable, "-m", "toolorchestra")


def toolorchestra(*arguments: str | Path, said: str = "", timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """`toolorchestra ...`, to its end."""
    command = [*TOOLORCHESTRA, *map(str, arguments)]
    return subprocess.run(command, input=said, capture_output=True, text=True, check=False, timeout=timeout)


def helped_by(file: str, *words: str) -> str:
    """What a file of the repository prints of its usage, run in this process: a process each would take minutes."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.setattr(sys, "argv", [file, *words, "--help"])
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(REPOSITORY / file), run_name="__main__")
    assert not left.value.code, said.getvalue()
    return said.getvalue()


def helped(*words: str) -> str:
    """What `toolorchestra ... --help` prints."""
    return helped_by("src/toolorchestra/__main__.py", *words)


def ended(command: Callable[[Sequence[str]], int], words: str | Sequence[str] = ()) -> int:
    """A command's exit code, called in this process, whichever way it gives it: a wrong option ends the process."""
    try:
        return command(words.split() if isinstance(words, str) else words)
    except SystemExit as left:
        return int(left.code or 0)


def made_smaller(lines: Sequence[str], smaller: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A page's command lines with smaller numbers, by a part of the one line that has them."""
    made = list(lines)
    for part, changes in smaller.items():
        (at,) = [number for number, line in enumerate(made) if part in line]
        for old, new in changes.items():
            assert old in made[at], f"{old} is no part of {made[at]}"
            made[at] = made[at].replace(old, new, 1)
    return made
