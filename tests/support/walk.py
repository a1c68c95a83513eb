"""A page's command lines, played one after another in an empty folder, as a reader would: with `&` and `kill %1`.

Each `toolorchestra ...` that is waited for is called in this process: to import torch anew takes longer than most. But
where an environment of its own is given, with its home, all is run by that one's Python.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import pytest

from tests.command_line import TOOLORCHESTRA, made_smaller
from tests.paths import REPOSITORY
from toolorchestra import cli


def lines_of(page: str, section: str, smaller: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The command lines of a section's first block, made smaller."""
    text = (REPOSITORY / page).read_text(encoding="utf-8").partition(section)[2]
    block = re.search(r"^```sh[^\n]*\n(.*?)^```", text, re.M | re.S)
    assert block is not None
    return made_smaller(
        [line.partition("  #")[0].strip() for line in block[1].replace("\\\n", " ").splitlines()], smaller
    )


def walked(lines: Sequence[str], folder: Path, port: str = "", venv: Path | None = None) -> dict[str, str]:
    """Play them; gives what each printed. `port` stands in the lines and becomes one that is free. Of a `venv` beside
    which lies a `home` the Python plays them."""
    python, own_env = sys.executable, None
    if venv is not None:
        python = str(venv / "bin" / "python")
        own_env = {"PATH": os.environ["PATH"], "HOME": str(venv.with_name("home")), "OMP_NUM_THREADS": "1"}
    jobs: list[subprocess.Popen[str]] = []
    said: dict[str, str] = {}
    exported: dict[str, str] = {}
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = str(free.getsockname()[1])
    try:
        for line in lines:
            expanded = Template(line.replace(port, own) if port else line).substitute(exported)
            words = _words(expanded.removesuffix("&"), folder, python)
            if words[0] == "until":  # a job that is begun here answers already
                continue
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                exported[name] = value
            elif words[0] == "kill":
                _end(jobs[int(words[1].removeprefix("%")) - 1])
            elif line.endswith("&"):
                jobs.append(_started(words, folder, own_env))
            else:
                said[line] = _run(words, folder, own_env)
    finally:
        for job in jobs:
            _end(job)
    return said


def _words(line: str, folder: Path, python: str) -> list[str]:
    first, *others = shlex.split(line)
    if first == "toolorchestra":
        return [python, *TOOLORCHESTRA[1:], *others]
    if first == "python":
        return [python, *(str(folder / word) if word == "walk" else word for word in others)]
    return [first, *others]


def _where(words: Sequence[str], folder: Path) -> Path:
    """Where a line is run: what is of the tests, in the repository."""
    return REPOSITORY if any(word.startswith("tests.") for word in words) else folder


def _started(words: Sequence[str], folder: Path, env: Mapping[str, str] | None) -> subprocess.Popen[str]:
    """A job, when it says that it answers."""
    job = subprocess.Popen(words, cwd=_where(words, folder), stdout=subprocess.PIPE, text=True, env=env)
    assert job.stdout is not None
    assert any("http" in line for line in job.stdout), f"{words} ended"
    return job


def _end(job: subprocess.Popen[str]) -> None:
    job.terminate()
    job.communicate(timeout=30)


def _run(words: Sequence[str], folder: Path, env: Mapping[str, str] | None) -> str:
    if tuple(words[: len(TOOLORCHESTRA)]) == TOOLORCHESTRA:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
            patch.chdir(folder)
            patch.setattr(sys, "argv", ["toolorchestra", *words[len(TOOLORCHESTRA) :]])
            assert cli.main() == 0, f"{words}\n{said.getvalue()[-2000:]}"
        return said.getvalue()
    place = _where(words, folder)
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout
