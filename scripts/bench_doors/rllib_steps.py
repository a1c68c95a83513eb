"""What a step costs through RLlib, beside the same environment alone and beside RLlib's own toy: CPU microseconds.

In RLlib's environment, which `make test-rllib` sets up: .venv-rllib/bin/python scripts/bench_doors/rllib_steps.py
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from toolorchestra.agents.training.router_training import RouterTraining, config_of
from toolorchestra.envs.adapters.rllib import ROUTING

ROUNDS, STEPS, ENVS = 2, 1500, 16
WORLDS: Mapping[str, Any] = {"worlds": ["HLE-v0"]}


def alone(env_id: str, arguments: Mapping[str, Any]) -> Callable[[], float]:
    """Steps with random actions, and the resets between episodes."""
    env = gym.make(env_id, **arguments)
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


def through_rllib(env_id: str, arguments: Mapping[str, Any], *, network: bool) -> Callable[[], float]:
    """The same by one env runner in this process, with random actions or with those of an untrained network."""
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = config_of(RouterTraining()).environment(env_id)
    config.env_config = dict(arguments)  # environment() would add to it
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS)
    runner = SingleAgentEnvRunner(config=config, worker_index=0)

    def spent() -> float:
        started = time.process_time()
        episodes = runner.sample(num_timesteps=STEPS, random_actions=not network)
        return (time.process_time() - started) * STEPS / sum(len(episode) for episode in episodes)

    return spent


def rows() -> list[tuple[str, float]]:
    """What was timed, and CPU microseconds a step: the least of some rounds that time all of them in turn."""
    os.environ["OMP_NUM_THREADS"] = "1"  # as Ray sets it for env runners
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    timed = {}
    for name, env_id, arguments in (("routing HLE-v0", ROUTING, WORLDS), ("CartPole-v1", "CartPole-v1", {})):
        timed[f"{name}, alone"] = alone(env_id, arguments)
        timed[f"{name}, env runner, random actions"] = through_rllib(env_id, arguments, network=False)
        timed[f"{name}, env runner with its network"] = through_rllib(env_id, arguments, network=True)
    least = dict.fromkeys(timed, float("inf"))
    for _ in range(ROUNDS + 1):  # one more, since the first warms up
        for name, spent in timed.items():
            least[name] = min(least[name], spent())
    return [(name, seconds / STEPS * 1e6) for name, seconds in least.items()]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"CPU microseconds a step; {ENVS} environments in an env runner\n")
    print("| what | µs a step |\n| --- | ---: |")
    for name, microseconds in rows():
        print(f"| {name} | {microseconds:.0f} |")
