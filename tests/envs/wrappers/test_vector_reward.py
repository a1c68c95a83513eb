"""The vector is the step's own bill and the episode's outcome, so that it adds up to both."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.sources import Breaks
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.wrappers import RecordTrajectories, Routing, VectorReward

SEARCH = render_call("search", {"model": "search-2"})
ANSWER = render_call("answer", {"model": "answer-1"})


def test_sums_are_outcome_bill_and_time() -> None:
    env = VectorReward(gym.make("ToolOrchestra/HLE-v0", reward={"usd": 7.0}))
    env.reset(seed=3)
    got = np.array([env.step(action)[1] for action in (SEARCH, "not a call", ANSWER)])
    base = env.unwrapped
    assert isinstance(base, OrchestraEnv)
    assert base.episode is not None
    assert base.episode.outcome is not None
    assert got.dtype == np.float64
    assert got[:, 0].tolist() == [0, 0, base.episode.outcome.value]
    assert got[:, 1].sum() == pytest.approx(-base.episode.ledger.usd, abs=1e-12)
    assert got[:, 2].sum() == pytest.approx(-base.episode.ledger.seconds)
    assert (got[:, 1] < 0).all()
    assert all(row in env.reward_space for row in got)


def test_follows_the_convention() -> None:
    env = VectorReward(Routing(gym.make("ToolOrchestra/HLE-v0")))
    assert env.reward_names == ("outcome", "usd", "seconds")
    assert env.unwrapped.reward_space == env.reward_space  # type: ignore[attr-defined]
    assert env.reward_space.shape == (3,)
    env.reset(seed=3)
    assert env.step(0)[1].shape == (3,)
    assert env.spec is not None
    assert isinstance(gym.make(env.spec), VectorReward)
    assert not hasattr(gym.make("ToolOrchestra/HLE-v0").unwrapped, "reward_space")


def test_a_failed_episode_has_outcome_nan() -> None:
    env = VectorReward(gym.make("ToolOrchestra/HLE-v0"))
    env.reset(seed=0)
    base = env.unwrapped
    assert isinstance(base, OrchestraEnv)
    assert base.episode is not None
    base.episode.world = Breaks(base.episode.world)
    _, reward, _, truncated, info = env.step(SEARCH)
    assert truncated
    assert info["failed"]
    assert np.isnan(reward[0])
    assert reward[1] < 0


@pytest.mark.parametrize("wrapper", [VectorReward, partial(RecordTrajectories, path="t.jsonl")])
def test_a_foreign_environment_is_refused_when_it_is_wrapped(wrapper: Any) -> None:
    name = getattr(wrapper, "func", wrapper).__name__
    told = f"{name} goes around a ToolOrchestra environment, got "
    with pytest.raises(ConfigError, match=f'{told}CartPoleEnv; wrap one of those, such as gym.make."ToolOrchestra'):
        wrapper(gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match=f"{told}OrchestraVectorEnv, a vector of them; use gym.make_vec"):
        wrapper(gym.make_vec("ToolOrchestra/HLE-v0", num_envs=2))
