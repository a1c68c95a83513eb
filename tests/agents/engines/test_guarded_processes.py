"""Background work ends: what the guard marked, and what that started; and what runs on a loop that closes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolorchestra.agents.engines.guarded_processes import LoopThread, ProcessGuard

TREE = ["/bin/sh", "-c", "sleep 60 & echo $! && wait"]

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc, which is Linux's")


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(pid: int) -> bool:
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_a_strike_ends_children_of_children_and_nothing_else(tmp_path: Path) -> None:
    guard = ProcessGuard(tmp_path)
    marked = subprocess.Popen(TREE, env={**os.environ, **guard.environment}, stdout=subprocess.PIPE, text=True)
    plain = subprocess.Popen(TREE, stdout=subprocess.PIPE, text=True)
    assert marked.stdout is not None
    assert plain.stdout is not None
    grandchild, other = int(marked.stdout.readline()), int(plain.stdout.readline())
    try:
        guard.strike()
        assert marked.wait(10) == -signal.SIGKILL
        assert ended(grandchild)
        assert plain.poll() is None
        assert alive(other)
        assert tmp_path.exists()
    finally:
        os.kill(other, signal.SIGKILL)
        plain.communicate()
        marked.communicate()


OWNER = """
import os, subprocess, sys
from toolorchestra.agents.engines.guarded_processes import ProcessGuard
guard = ProcessGuard(sys.argv[1])
child = subprocess.Popen(["sleep", "60"], env={**os.environ, **guard.environment}, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_when_its_owner_is_killed_the_children_go_and_the_folders_too(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    assert alive(child)
    owner.kill()
    owner.communicate()
    assert ended(child)
    end = time.monotonic() + 10
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not folder.exists()


def test_a_loop_that_closes_cancels_what_still_runs() -> None:
    loop, ended = LoopThread("tests"), list[str]()

    async def for_ever(begun: asyncio.Event) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def start() -> asyncio.Task[None]:
        begun = asyncio.Event()
        task = asyncio.create_task(for_ever(begun))
        await begun.wait()
        return task

    task = loop.wait(start())
    loop.close()
    loop.close()  # may be done twice
    assert (ended, task.cancelled()) == (["cancelled"], True)
