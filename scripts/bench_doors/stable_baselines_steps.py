"""What a step costs through Stable-Baselines3, beside the same environment alone and beside CartPole: CPU microseconds.

In Stable-Baselines3's environment, which `make test-sb3` sets up:
.venv-sb3/bin/python scripts/bench_doors/stable_baselines_steps.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.adapters.stable_baselines import make_env, make_vec_env
from toolorchestra.envs.wrappers import Routing

ROUNDS, STEPS, ENVS = 2, 1600, 16
SETTINGS = {"reward": "scalar", "preference": "none"}
WORLDS = {"HLE-v0": {}, "ToolScale-v0": {"domain": "finance"}}


def alone(make: Callable[[], gym.Env[Any, Any]]) -> Callable[[], float]:
    """Steps with random actions, and the resets between episodes."""
    env = make()
    env.reset(seed=0)
    env.action_space.seed(0)

    def spent() -> float:
        started = time.process_time()
        for _ in range(STEPS):
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()
        return time.process_time() - started

    return spent


def through(envs: VecEnv) -> Callable[[], float]:
    """The same by a batch of environments."""
    envs.seed(0)
    envs.reset()
    drawn = np.random.default_rng(0)

    def spent() -> float:
        started = time.process_time()
        for _ in range(STEPS // ENVS):
            envs.step(drawn.integers(0, envs.action_space.n, ENVS))  # type: ignore[attr-defined]
        return time.process_time() - started

    return spent


def rows() -> list[tuple[str, float]]:
    """What was timed, and CPU microseconds a step: the least of some rounds that time all of them in turn."""
    timed = {}
    for name, more in WORLDS.items():
        env_id, settings = f"ToolOrchestra/{name}", {**SETTINGS, **more}

        def one(env_id: str = env_id, settings: dict[str, Any] = settings) -> gym.Env[Any, Any]:
            return make_env(env_id, **settings)

        timed[f"routing {name}, alone"] = alone(lambda i=env_id, s=settings: Routing(gym.make(i, **s)))  # type: ignore[misc]
        timed[f"routing {name}, RoutingVecEnv"] = through(make_vec_env(env_id, ENVS, **settings))
        timed[f"routing {name}, DummyVecEnv"] = through(DummyVecEnv([one] * ENVS))
    timed["CartPole-v1, alone"] = alone(lambda: gym.make("CartPole-v1"))
    timed["CartPole-v1, DummyVecEnv"] = through(DummyVecEnv([lambda: gym.make("CartPole-v1")] * ENVS))
    least = dict.fromkeys(timed, float("inf"))
    for _ in range(ROUNDS + 1):  # one more, since the first warms up
        for name, spent in timed.items():
            least[name] = min(least[name], spent())
    return [(name, seconds / STEPS * 1e6) for name, seconds in least.items()]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"CPU microseconds a step; {ENVS} environments in a batch\n")
    print("| what | µs a step |\n| --- | ---: |")
    for name, microseconds in rows():
        print(f"| {name} | {microseconds:.0f} |")
