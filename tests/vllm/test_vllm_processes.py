"""No process is left behind: not by Ctrl-C at a terminal, which reaches all of a group, and not by a SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.vllm.processes import MARK, gone, marked


def until(process: subprocess.Popen[str], wanted: str) -> None:
    """Read on to a line."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        if line.strip() == wanted:
            return
        said.append(line)
    raise AssertionError(f"it ended without saying {wanted!r}, but:\n{''.join(said[-40:])}")


@pytest.fixture
def holder() -> Iterator[tuple[subprocess.Popen[str], str]]:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.vllm.holding"],
        env={**os.environ, MARK: mark},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until(process, "ready")
    yield process, mark
    process.kill()
    process.communicate()
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_is_the_trainers_and_leaves_nothing(holder: tuple[subprocess.Popen[str], str]) -> None:
    """The first one lets a step end, with the engine that it needs; after the second nothing is left."""
    process, mark = holder
    assert len(marked(mark)) >= 4
    os.killpg(process.pid, signal.SIGINT)
    until(process, "still here after 0 restarts")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert gone(mark, 20) == []


def folders() -> set[Path]:
    """Where engines' sockets and weights lie."""
    return {p for place in ("/dev/shm", tempfile.gettempdir()) for p in Path(place).glob("toolorchestra-*")}


def test_a_killed_trainer_takes_its_engine_along(holder: tuple[subprocess.Popen[str], str]) -> None:
    """And the folders that the engine used: they may hold a model's weights, in memory."""
    process, mark = holder
    used = folders()
    assert len(used) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    assert gone(mark, 20) == []
    end = time.monotonic() + 5
    while len(used & folders()) > len(used) - 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(used & folders()) == len(used) - 2
