"""Rewards as vectors, after MO-Gymnasium's convention: outcome, dollars and seconds side by side, none traded yet."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from toolorchestra.envs.env import base_of
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES


class VectorReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """step() returns (outcome, -usd, -seconds) of the step in place of the scalar, as float64.

    Multi-objective libraries read `env.unwrapped.reward_space`, past every wrapper. The base environment is therefore
    given the attribute too; its own step() goes on returning a scalar. In a failed episode the last outcome is nan, as
    the scalar is: leave such episodes out. Dollars of judges and simulated users are not counted, as in the scalar.
    """

    reward_names = ("outcome", "usd", "seconds")

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        base: Any = base_of(env, "VectorReward")
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        low, high = np.array([0.0, -np.inf, -np.inf]), np.array([1.0, 0.0, 0.0])
        self.reward_space = gym.spaces.Box(low, high, dtype=np.float64)
        base.reward_space = self.reward_space

    def step(self, action: Any) -> tuple[Any, NDArray[np.float64], bool, bool, dict[str, Any]]:
        """One turn, its reward not yet scalar."""
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = np.array([_outcome(info), -_rewarded_usd(info), -info["cost"]["seconds"]])
        return observation, reward, terminated, truncated, info


def _rewarded_usd(info: dict[str, Any]) -> float:
    nano_usd: int = sum([charge["nano_usd"] for charge in info["charges"] if charge["role"] in REWARDED_ROLES])
    return nano_usd / NANO


def _outcome(info: dict[str, Any]) -> float:
    # Absent before the end, and at an end that an outer wrapper such as TimeLimit made.
    if "outcome" not in info:
        return 0.0
    return float(info["outcome"]["value"]) if info["outcome"] else float("nan")
