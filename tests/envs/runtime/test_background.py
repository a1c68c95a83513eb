"""The shared loop: calls go on in its own thread while the owner is away, whoever the owner is; nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.playing import ADD, env_of, step, vector_of
from tests.sources import SleeperSource, nap
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.runtime.background import OBJECTS_PER_ENV
from toolorchestra.envs.tools import tool
from toolorchestra.envs.vector import OrchestraVectorEnv


def in_thread(work: Callable[[], Any]) -> Any:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(work()), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"
    return got[0]


def test_calls_go_on_while_the_owner_computes() -> None:
    env = vector_of("Sleeper", num_envs=8)
    env.send([nap(30)] * 8, range(8))
    time.sleep(0.5)  # the policy computes
    env._land(0)
    assert len(env._ready) == 8


def test_the_owner_may_be_another_thread_or_run_a_loop_itself() -> None:
    def play() -> int:
        env = vector_of("Sleeper", num_envs=4)
        env.step([nap(2)] * 4)
        return len(env.step([nap(1), ADD, nap(2), ADD])[0])

    async def inside() -> int:
        return play()

    assert in_thread(play) == 4
    assert asyncio.run(inside()) == 4


@tool
def plays_inside() -> str:
    """Plays an environment."""
    env_of("Sleeper").step(nap(1))
    return "played"


@tool
async def plays_on_the_loop() -> str:
    """Plays an environment on the loop that this tool runs on."""
    env_of("Sleeper").step(nap(1))
    return "played"


@tool
async def plays_many_on_the_loop() -> str:
    """Plays a vector of them there."""
    vector_of("Sleeper").step([nap(1)] * 3)
    return "played"


@tool
async def plays_in_a_thread() -> str:
    """Plays an environment in a thread beside the loop."""
    await asyncio.to_thread(env_of("Sleeper").step, nap(1))
    return "played"


class Nesting(SleeperSource):
    """Tools that play environments of their own."""

    name = "nesting"

    def __init__(self) -> None:
        super().__init__()
        self.tools = (*self.tools, plays_inside, plays_on_the_loop, plays_many_on_the_loop, plays_in_a_thread)


@pytest.mark.parametrize(
    ("calls", "fails"),
    [
        (("plays_inside",), False),
        (("plays_inside", "nap"), True),
        (("plays_on_the_loop",), True),
        (("plays_many_on_the_loop",), True),
        (("plays_in_a_thread", "nap"), False),
    ],
)
def test_a_tool_that_waits_on_the_loop_for_that_loop_fails_its_own_episode(calls: Sequence[str], fails: bool) -> None:
    asked = [ToolCall(name, {"milliseconds": 1} if name == "nap" else {}) for name in calls]
    env = env_of("tests.envs.runtime.test_background:Nesting")
    failed = in_thread(lambda: step(env, *asked).info.get("failed", {}))
    assert bool(failed) == fails
    assert not fails or "await asyncio.to_thread(" in failed["error"]
    assert in_thread(lambda: env_of("Sleeper").step(nap(1))[3]) is False  # the loop goes on


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


@pytest.fixture
def users_own() -> Iterator[None]:
    """The collector as Python sets it. What other tests dropped closes itself first."""
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("users_own")
def test_it_is_wider_while_environments_are_at_work() -> None:
    env = OrchestraVectorEnv(64, "tests.sources:AdderSource")
    assert gc.get_threshold() == (700, 10, 10)  # made is not at work
    env.reset(seed=0)
    env.reset(seed=1)
    assert gc.get_threshold() == (64 * OBJECTS_PER_ENV, 10, 10)
    other = vector_of("Adder", num_envs=36)
    assert gc.get_threshold()[0] == 100 * OBJECTS_PER_ENV
    env.close()
    env.close()
    assert gc.get_threshold()[0] == 36 * OBJECTS_PER_ENV
    del other
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.usefixtures("users_own")
@pytest.mark.parametrize("users", [0, 1_000_000])
def test_a_higher_one_and_none_at_all_are_left_alone(users: int) -> None:
    gc.set_threshold(users, 5, 5)
    env = vector_of("Adder", num_envs=64)
    assert gc.get_threshold() == (users, 5, 5)
    env.close()
    assert gc.get_threshold() == (users, 5, 5)


@pytest.mark.parametrize("users", [800, 0])
@pytest.mark.usefixtures("users_own")
def test_what_the_user_sets_meanwhile_is_what_comes_back(users: int) -> None:
    env, other = vector_of("Adder", num_envs=64), vector_of("Adder", num_envs=64)
    gc.set_threshold(users, 7, 7)
    other.close()
    assert gc.get_threshold() == (max(users, 64 * OBJECTS_PER_ENV) if users else 0, 7, 7)
    env.close()
    assert gc.get_threshold() == (users, 7, 7)
