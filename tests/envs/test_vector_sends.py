"""OrchestraVectorEnv: send and recv; failures, stragglers and cancellations that stay one's own."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import ADD, FREE, env_of, usage_of, vector_of
from tests.sources import BREAK, nap
from toolorchestra.envs.base.errors import ConfigError, PriceError, ResetNeeded, SpendCapReached
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.testing.rehearsal import Held


def test_recv_gives_who_is_ready_and_a_straggler_holds_up_nobody() -> None:
    env = vector_of("Sleeper", num_envs=16)
    env.send([nap(3000)] + [nap(1)] * 15, range(16))
    began, turns = time.monotonic(), 0
    while turns < 15 * 5:
        got = env.recv(1, timeout=10)
        assert 0 not in got.env_ids
        turns += len(got.env_ids)
        again = [int(i) for i in got.env_ids]
        env.send([nap(1)] * len(again), again)
    assert time.monotonic() - began < 2.5
    env.close()


def test_a_timeout_leaves_everything_as_it_was() -> None:
    env = vector_of("Sleeper", num_envs=3)
    env.send([nap(400), ADD, nap(400)], [0, 1, 2])
    with pytest.raises(TimeoutError, match=r"1 of 3 environments were ready in 0.02 s; still waiting for \[0, 2\]"):
        env.recv(3, timeout=0.02)
    with pytest.raises(ResetNeeded, match="environment 0 has not been received since its last action"):
        env.send([ADD], [0])
    got = env.recv(3, timeout=10)
    assert got.env_ids.tolist()[0] == 1
    assert sorted(got.env_ids.tolist()) == [0, 1, 2]
    assert all(len(o["messages"]) == 4 for o in got.observations)


@pytest.mark.parametrize("timeout", [math.inf, 1e10])
def test_a_timeout_beyond_what_the_system_counts_is_none(timeout: float) -> None:
    env = vector_of("Sleeper", num_envs=1)
    env.send([nap(20)], [0])
    assert env.recv(1, timeout=timeout).env_ids.tolist() == [0]


@pytest.mark.parametrize(
    ("actions", "env_ids", "error", "message"),
    [
        ([ADD, 5], [0, 1], TypeError, "environment 1 got int: 5"),
        ([ADD], [0, 1], ValueError, "one action for each of 2 environments is needed, got 1"),
        ([ADD, ADD], [0, 0], ValueError, "each once; got"),
        ([ADD, ADD], [0, 3], ValueError, "some of 0 to 2"),
        ([ADD, ADD], [0, -1], ValueError, "some of 0 to 2"),
    ],
)
def test_a_refused_send_sends_nothing(actions: Any, env_ids: list[int], error: type[Exception], message: str) -> None:
    env = vector_of("Adder", num_envs=3)
    with pytest.raises(error, match=message):
        env.send(actions, env_ids)
    with pytest.raises(ResetNeeded, match=r"recv\(1\): only 0 environments have been sent an action"):
        env.recv()
    assert [e.turn for e in env.episodes if e] == [0, 0, 0]
    env.send([ADD, ADD], [0, 2])
    assert env.recv(2).env_ids.tolist() == [0, 2]


def test_a_usage_that_cannot_be_billed_changes_nothing() -> None:
    env = vector_of("Adder", num_envs=2)
    unsold = Usage("gpt-4", ORCHESTRATOR, Tokens(10))
    with pytest.raises(PriceError, match="no price for 'gpt-4'"):
        env.send([ADD, ADD], [0, 1], usages=[None, unsold])
    with pytest.raises(ValueError, match="one usage or None for each of 2 environments is needed, got 1"):
        env.send([ADD, ADD], [0, 1], usages=[None])
    assert [e.turn for e in env.episodes if e] == [0, 0]
    env.send([ADD, ADD], [0, 1])
    assert len(env.recv(2).env_ids) == 2


def test_counted_usage_goes_with_the_action() -> None:
    env = vector_of("Adder", num_envs=2)
    usage = Usage("gpt-5", ORCHESTRATOR, Tokens(10, 0, 5, 0))
    env.send([ADD, ADD], [1, 0], usages=[usage, None])
    got = dict(zip((r := env.recv(2)).env_ids.tolist(), r.infos, strict=True))
    assert usage_of(got[1]["charges"][0]) == usage
    assert got[0]["charges"][0]["estimated"]
    infos = env.step([ADD, ADD])[4]
    assert [c[0]["estimated"] for c in infos["charges"]] == [True, True]


@pytest.mark.parametrize("way", ["raises", "unpriced", "exits", "cancels", "panics"])
def test_a_failed_episode_leaves_the_others_alone(way: str) -> None:
    env = vector_of("Broken", num_envs=3, way=way)
    env.step_async([ADD, BREAK, ADD])
    _, rewards, _, truncations, infos = env.step_wait(timeout=10)
    assert truncations.tolist() == [False, True, False]
    assert math.isnan(rewards[1])
    assert rewards[[0, 2]].tolist() == [0.0, 0.0]
    assert infos["failed"]["where"][1] == "breaks"
    env.step_async(["done", "ignored", "done"])
    _, rewards, terminations, *_ = env.step_wait(timeout=10)
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminations.tolist() == [True, False, True]


def test_what_is_raised_at_a_landing_leaves_the_others_for_the_next_recv(monkeypatch: pytest.MonkeyPatch) -> None:
    env = vector_of("Sleeper", num_envs=3, max_turns=1, autoreset_mode="SameStep")
    env.step_async([nap(1)] * 3)
    time.sleep(0.2)  # all have landed
    start = type(env.factory).start

    def away(*_: Any) -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(env.factory), "start", away)
        with pytest.raises(OSError, match="the disk is away"):
            env.recv(3, timeout=10)
    assert type(env.factory).start is start
    assert len(env.recv(2, timeout=10).env_ids) == 2


def test_the_spend_cap_is_overshot_by_what_is_in_flight_at_most() -> None:
    cap = SpendCap(0.10)
    env = vector_of("Sleeper", num_envs=64, spend_cap=cap, orchestrator="local-index")
    env.step([ADD] * 64)
    assert cap.spent_usd == 0.0  # this policy is free, so that all that is spent is the calls'
    env.step_async([nap(5)] * 64)
    env.step_wait(timeout=10)
    assert cap.spent_usd == 0.64  # all were in flight before the first of them was billed
    _, _, _, truncations, infos = env.step([nap(5)] * 64)
    assert truncations.all()
    assert set(infos["truncated_by"]) == {"spend_cap"}
    assert cap.spent_usd == 0.64


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_spend_cap_that_is_used_up_ends_the_loop_when_all_that_was_played_has_been_told(mode: AutoresetMode) -> None:
    cap = SpendCap(0.05)
    env = vector_of("Sleeper", num_envs=3, spend_cap=cap, orchestrator="local-index", max_turns=2, autoreset_mode=mode)
    env.send([ADD, nap(5)], [0, 2])
    env.recv(2, timeout=10)
    env.send([nap(5)] * 2, [0, 1])
    env.recv(2, timeout=10)
    assert not cap.used_up
    env.send([nap(5)] * 2, [1, 2])
    assert env.recv(2, timeout=10).truncations.all()
    with pytest.raises(ResetNeeded if mode == AutoresetMode.DISABLED else SpendCapReached, match=r"over|spend_cap"):
        env.step([nap(5)] * 3)
    with pytest.raises(SpendCapReached, match="a higher spend_cap"):
        env.reset(seed=1)
    assert cap.spent_usd == 0.05


def test_reset_in_mid_flight_cancels_and_the_new_episodes_are_clean() -> None:
    env = vector_of("Sleeper", num_envs=8)
    env.step([nap(1)] * 8)
    before = Held.now()
    for number in range(8):
        env.send([nap(60_000)] * 4 + [nap(1)] * 4, range(8))
        began = time.monotonic()
        observations, _ = env.reset(seed=number)
        assert time.monotonic() - began < 1.0
        assert all(len(o["messages"]) == 2 for o in observations)
    assert before.leaked_since() == ""
    observations, *_ = env.step([nap(1)] * 8)
    assert [len(o["messages"]) for o in observations] == [4] * 8
    single = env_of("Sleeper", **FREE)
    single.reset(seed=7)
    assert single.step(nap(1))[0] == observations[0]


def test_a_refused_reset_leaves_what_is_in_flight() -> None:
    env = vector_of("Sleeper", num_envs=2)
    env.send([nap(50), nap(50)], [0, 1])
    with pytest.raises(ConfigError, match="no task 'sleeper/nope/1'"):
        env.reset(options={"task_id": "sleeper/nope/1"})
    assert sorted(env.recv(2, timeout=10).env_ids) == [0, 1]
    assert len(env.step([nap(1), nap(1)])[0]) == 2


def test_a_masked_reset_cancels_only_its_own() -> None:
    env = vector_of("Sleeper", num_envs=2)
    env.send([nap(60_000), nap(50)], [0, 1])
    env.reset(options={"reset_mask": np.array([True, False])})
    env.send([nap(1)], [0])
    got = env.recv(2, timeout=10)
    assert sorted(len(o["messages"]) for o in got.observations) == [4, 4]


@pytest.mark.parametrize("how", ["close", "drop"])
def test_closed_or_dropped_environments_leave_nothing_in_flight(how: str) -> None:
    vector_of("Sleeper", num_envs=1).step([nap(1)])
    before = Held.now()
    for _ in range(5):
        env = vector_of("Sleeper", num_envs=16)
        env.send([nap(60_000)] * 16, range(16))
        if how == "close":
            env.close()
    del env
    assert before.leaked_since() == ""
    assert sum(t.name == "toolorchestra-io" for t in threading.enumerate()) == 1
