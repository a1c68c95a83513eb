"""Many episodes in numbers: equal to one at a time, in Gymnasium's manner, and none waits for another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.tools import Toolbox
from toolorchestra.envs.wrappers import Routing, RoutingVectorEnv
from toolorchestra.envs.wrappers.routing_vector import make_routing_vec

SCALAR = {"reward": "scalar", "preference": "none"}
FINANCE = {"domain": "finance", **SCALAR}
CASES = [("HLE-v0", {**SCALAR, "diversify": "train"}), ("ToolScale-v0", FINANCE)]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize(("env_id", "settings"), CASES)
def test_it_plays_as_gymnasiums_own_vector_environment_does(
    env_id: str, settings: dict[str, Any], mode: AutoresetMode
) -> None:
    ours = make_routing_vec(f"ToolOrchestra/{env_id}", 3, autoreset_mode=mode, **settings)
    theirs = gym.vector.SyncVectorEnv(
        [lambda: Routing(gym.make(f"ToolOrchestra/{env_id}", **settings))] * 3, autoreset_mode=mode
    )
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    (observations, infos), (expected, wanted) = ours.reset(seed=4), theirs.reset(seed=4)
    drawn, ended = np.random.default_rng(1), 0
    for _ in range(60):
        assert observations in ours.observation_space
        assert np.array_equal(observations, expected)
        assert np.array_equal(infos["action_mask"], wanted["action_mask"])
        assert infos["_action_mask"].all()
        actions = drawn.integers(0, ours.single_action_space.n, 3)  # type: ignore[attr-defined]
        observations, rewards, terminations, truncations, infos = ours.step(actions)
        expected, awaited, ends, cuts, wanted = theirs.step(actions)
        assert rewards.tolist() == awaited.tolist()
        assert (terminations.tolist(), truncations.tolist()) == (ends.tolist(), cuts.tolist())
        ended += int((terminations | truncations).sum())
        if "final_obs" in wanted:
            for last, other, on in zip(infos["final_obs"], wanted["final_obs"], wanted["_final_obs"], strict=True):
                assert np.array_equal(last, other) if on else last is None
    assert ended > 3
    ours.close()


def slowed(episode: Episode, seconds: float) -> None:
    """Its calls wait for so long, as a real model's do."""

    def slow(run: Any) -> Any:
        async def wait(context: Any, **arguments: Any) -> Any:
            await asyncio.sleep(seconds)
            return run(context, **arguments)

        return wait

    world: Any = episode.world
    world.toolbox = Toolbox(replace(tool, run=slow(tool.run), suspends=True) for tool in world.toolbox)


def test_a_slow_episode_holds_up_no_other() -> None:
    envs = make_routing_vec("ToolOrchestra/HLE-v0", 4, autoreset_mode=AutoresetMode.SAME_STEP, **SCALAR)
    envs.reset(seed=0)
    held_up = envs.inner.episodes[2]
    assert held_up is not None
    slowed(held_up, 600)
    envs.send(np.zeros(4, np.int64), range(4))
    turns = np.zeros(4, int)
    while turns.sum() < 60:
        got = envs.recv(1, timeout=30)
        turns[got.env_ids] += 1
        assert got.observations.shape == (len(got.env_ids), *(envs.single_observation_space.shape or ()))
        assert got.masks.shape == (len(got.env_ids), len(envs.action_meanings))
        envs.send(np.full(len(got.env_ids), turns.sum() % 8), got.env_ids)
    assert turns[2] == 0
    assert all(turns[i] >= 15 for i in (0, 1, 3))
    with pytest.raises(TimeoutError, match=r"still waiting for \[2\]"):
        envs.recv(4, timeout=0.01)
    envs.reset(seed=1)  # cancels it
    envs.step(np.zeros(4, np.int64))
    envs.close()


def test_send_and_recv_give_what_step_gives() -> None:
    one = make_routing_vec("ToolOrchestra/HLE-v0", 2, autoreset_mode=AutoresetMode.SAME_STEP, **SCALAR)
    two = make_routing_vec("ToolOrchestra/HLE-v0", 2, autoreset_mode=AutoresetMode.SAME_STEP, **SCALAR)
    one.reset(seed=9)
    two.reset(seed=9)
    for action in (0, 3, 6, 0, 7, 8):
        observations, rewards, terminations, _, infos = one.step(np.full(2, action))
        two.send([action, action], [0, 1])
        got = two.recv(2)
        order = np.argsort(got.env_ids)
        assert np.array_equal(got.observations[order], observations)
        assert got.rewards[order].tolist() == rewards.tolist()
        assert got.terminations[order].tolist() == terminations.tolist()
        if terminations.any():
            k = int(np.flatnonzero(terminations)[0])
            assert np.array_equal(got.infos[order[k]]["final_obs"], infos["final_obs"][k])


def test_some_are_reset_alone_where_nothing_resets_them() -> None:
    envs = make_routing_vec("ToolOrchestra/HLE-v0", 2, autoreset_mode=AutoresetMode.DISABLED, **SCALAR)
    envs.reset(seed=0)
    answer = envs.action_meanings.index("answer answer-1")
    *_, terminations, _, _ = envs.step(np.array([answer, 0]))
    assert terminations.tolist() == [True, False]
    before = envs.inner.episodes
    with pytest.raises(ResetNeeded, match="environment 0 is over"):
        envs.step(np.array([0, 0]))
    envs.reset(options={"reset_mask": np.array([True, False])})
    after = envs.inner.episodes
    assert after[0] is not before[0]
    assert after[1] is before[1]
    envs.step(np.array([0, 0]))


def test_misuse_is_named() -> None:
    with pytest.raises(ConfigError, match="expected OrchestraVectorEnv, got SyncVectorEnv"):
        RoutingVectorEnv(gym.make_vec("ToolOrchestra/HLE-v0", 2, vectorization_mode="sync"))
    envs = make_routing_vec("ToolOrchestra/HLE-v0", 2)
    with pytest.raises(ResetNeeded, match=r"reset\(\) first"):
        envs.step(np.array([0, 0]))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="one action for each of 2 environments is needed, got 1"):
        envs.step(np.array([0]))
    with pytest.raises(ValueError, match="from 0 to 11"):
        envs.step(np.array([0, 12]))
    with pytest.raises(ValueError, match="env_ids are some of 0 to 1"):
        envs.send([0], [2])
    with pytest.raises(ValueError, match="from 0 to 11"):
        envs.send([0.5, 1], [0, 1])
