"""The shared loop: its own thread runs it while the owner is away, the main thread while it waits; nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.playing import ADD, vector_of
from tests.sources import nap
from toolorchestra.envs.runtime import background as module
from toolorchestra.envs.runtime.background import BackgroundLoop, BorrowedLoop
from toolorchestra.envs.vector import OrchestraVectorEnv


@pytest.fixture
def loop() -> BackgroundLoop:
    return BackgroundLoop.shared()


async def whose() -> str:
    return threading.current_thread().name


def run_with(loan: BorrowedLoop, callback: Callable[[], None]) -> None:
    loan._background.loop.call_soon(callback)
    loan.run(5)


def run_if_held(loan: BorrowedLoop) -> None:
    if loan.held:
        loan.run(0)


@contextmanager
def lent(loop: BackgroundLoop) -> Iterator[BorrowedLoop]:
    """The loop, for certain: on a busy machine its thread may not hand it over within the borrower's patience."""
    for _ in range(1000):
        with loop.borrowed() as loan:
            if loan.held:
                yield loan
                return
    raise AssertionError("the loop is never handed over")


def in_thread(work: Callable[[], Any]) -> Any:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(work()))
    thread.start()
    thread.join(20)
    return got[0]


def test_a_borrowed_loop_runs_in_the_main_thread_and_goes_back(loop: BackgroundLoop) -> None:
    assert loop.submit(whose()).result(5) == "toolorchestra-io"
    for _ in range(50):
        with lent(loop) as loan, loop.borrowed() as other:
            assert not other.held
            future = loop.submit(whose())
            future.add_done_callback(lambda _: loop.loop.stop())
            loan.run(5)
            assert future.result(0) == "MainThread"
        assert loop.submit(whose()).result(5) == "toolorchestra-io"


def test_a_run_ends_at_its_time_and_leaves_the_rest_in_the_air(loop: BackgroundLoop) -> None:
    with lent(loop) as loan:
        slow = loop.submit(asyncio.sleep(0.3, "slept"))
        began = time.monotonic()
        loan.run(0)
        assert time.monotonic() - began < 0.25
        loan.run(0.05)
        assert not slow.done()
    assert slow.result(5) == "slept"


def test_it_stays_with_its_thread_for_other_threads_and_inside_a_loop(loop: BackgroundLoop) -> None:
    def borrow() -> bool:
        with loop.borrowed() as loan:
            return loan.held

    async def inside() -> bool:
        return borrow()

    assert borrow()
    assert not in_thread(borrow)
    assert not asyncio.run(inside())
    assert loop.submit(whose()).result(5) == "toolorchestra-io"


def test_a_tool_that_blocks_the_loop_keeps_it_and_a_wait_still_ends(loop: BackgroundLoop) -> None:
    free = threading.Event()
    loop.loop.call_soon_threadsafe(free.wait, 10)
    env = vector_of("Sleeper", num_envs=2)
    began = time.monotonic()
    with loop.borrowed() as loan:
        assert not loan.held
    env.send([nap(1), nap(1)], [0, 1])
    with pytest.raises(TimeoutError):
        env.recv(1, timeout=0.05)
    assert time.monotonic() - began < 5
    free.set()
    assert len(env.recv(2, timeout=10).env_ids) == 2


def test_calls_go_on_while_the_owner_computes() -> None:
    env = vector_of("Sleeper", num_envs=8)
    env.send([nap(30)] * 8, range(8))
    time.sleep(0.5)  # the policy computes
    env._land(0)
    assert len(env._ready) == 8


def test_what_lands_while_the_loop_changes_hands_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    env = vector_of("Sleeper", num_envs=4)
    env.send([nap(20)] * 4, range(4))
    borrowed = BackgroundLoop.borrowed
    monkeypatch.setattr(BackgroundLoop, "borrowed", lambda self: time.sleep(0.3) or borrowed(self))
    began = time.monotonic()
    env.recv(4, timeout=30)
    assert time.monotonic() - began < 10


def test_the_owner_may_be_another_thread_or_run_a_loop_itself() -> None:
    def play() -> int:
        env = vector_of("Sleeper", num_envs=4)
        env.step([nap(2)] * 4)
        return len(env.step([nap(1), ADD, nap(2), ADD])[0])

    async def inside() -> int:
        return play()

    assert in_thread(play) == 4
    assert asyncio.run(inside()) == 4


def test_nothing_is_lost_between_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads and the main one, an environment each: short naps, short patience, one wait in three too short."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0005)  # so that hand-overs fail too

    def play(seed: int) -> int:
        rng = random.Random(seed)
        env: OrchestraVectorEnv = vector_of("Sleeper", num_envs=6, max_turns=100_000)
        out, landed = [0] * 6, 0
        idle = set(range(6))
        for _ in range(150):
            chosen = rng.sample(sorted(idle), rng.randint(0, len(idle)))
            env.send([nap(rng.randint(0, 3)) if rng.random() < 0.8 else ADD for _ in chosen], chosen)
            idle -= set(chosen)
            if len(idle) == 6:
                continue
            try:
                got = env.recv(rng.randint(1, 6 - len(idle)), timeout=rng.choice((0.0, 0.001, 20)))
            except TimeoutError:
                continue
            for i in got.env_ids.tolist():
                out[i] += 1
                landed += 1
                idle.add(i)
        if len(idle) < 6:
            landed += len(env.recv(6 - len(idle), timeout=20).env_ids)
        assert landed == sum(e.turn for e in env.episodes if e)
        env.close()
        return landed

    got: list[int] = []
    threads = [threading.Thread(target=lambda k=k: got.append(play(k))) for k in range(4)]
    for thread in threads:
        thread.start()
    got.append(play(99))
    for thread in threads:
        thread.join(60)
    assert len(got) == 5
    assert min(got) > 100


INTERRUPTED = """
import os, signal, threading, time
from tests.playing import vector_of
from tests.sources import nap

env = vector_of("Sleeper", num_envs=32)
for turn in range(3):
    env.send([nap(100 * turn + 2 * k) for k in range(31)] + [nap(900)], range(32))
    timer = threading.Timer(0.25, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        env.recv(32, timeout=20)
        raise SystemExit("no interrupt")
    except KeyboardInterrupt:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    left = 32 - len(env._ready)
    got = env.recv(32, timeout=20)
    assert sorted(got.env_ids.tolist()) == list(range(32)), got.env_ids
    assert not any("failed" in info for info in got.infos)
print("whole")
"""


def test_ctrl_c_in_a_wait_is_raised_and_tears_no_call() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "whole", done.stderr


@pytest.mark.parametrize(("times", "whole"), [(1, [True]), (2, [])])
def test_ctrl_c_waits_for_the_callback_that_it_hits_and_a_second_one_does_not(
    loop: BackgroundLoop, times: int, whole: list[bool]
) -> None:
    ended = []

    def callback() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt), lent(loop) as loan:
        run_with(loan, callback)
    assert ended == whole
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert loop.submit(whose()).result(5) == "toolorchestra-io"


@pytest.mark.parametrize("step", ["_take", "_give_back"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_the_loop_changes_hands_is_raised_when_it_is_back(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    true = getattr(BackgroundLoop, step)

    def interrupted(self: BackgroundLoop) -> Any:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return true(self)

    with monkeypatch.context() as patch:
        patch.setattr(BackgroundLoop, step, interrupted)
        with pytest.raises(KeyboardInterrupt), loop.borrowed() as loan:
            run_if_held(loan)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert loop.submit(whose()).result(5) == "toolorchestra-io"
    with lent(loop):
        """It can be borrowed again."""


def test_a_handler_of_the_users_own_is_left_alone(loop: BackgroundLoop) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with lent(loop) as loan:
            loop.loop.call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
            loan.run(0.1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
