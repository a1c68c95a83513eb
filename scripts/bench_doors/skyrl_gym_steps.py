"""What the skyrl-gym door costs: python scripts/bench_doors/skyrl_gym_steps.py, where skyrl-gym is installed.

CPU microseconds a step, the least of three rounds: of our environment alone, of the same turns through the door, and of
a text environment of a few lines. The turns are a guess, a search, and so on, of HLE-v0's embedded world.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

import toolorchestra.envs  # noqa: F401 - registers the ids

EPISODES, ROUNDS = 200, 3
TURNS = [
    '<tool_call>{"name": "search", "arguments": {"model": "search-1"}}</tool_call>',
    '<tool_call>{"name": "enhance_reasoning", "arguments": {"model": "reasoner-1"}}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"model": "search-2"}}</tool_call>',
    '<tool_call>{"name": "answer", "arguments": {"model": "answer-1"}}</tool_call>',
]


def rows() -> list[tuple[str, float]]:
    """What is timed, and its CPU microseconds a step."""
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv

    from toolorchestra.envs.adapters.skyrl_gym import register_skyrl_gym

    register_skyrl_gym()

    class Echo(BaseTextEnv):  # type: ignore[misc]
        """Answers each turn with itself."""

        def step(self, action: str) -> Any:
            self.turns += 1
            done = self.turns == len(TURNS)
            said = [] if done else [{"role": "user", "content": action}]
            return {"observations": said, "reward": float(done), "done": done, "metadata": {}}

    alone = gym.make("ToolOrchestra/HLE-v0").unwrapped

    def ours(seed: int) -> Callable[[str], Any]:
        alone.reset(seed=seed)
        return alone.step

    def door(seed: int) -> Callable[[str], Any]:
        made = skyrl_gym.make("toolorchestra", extras={"gym_id": "ToolOrchestra/HLE-v0", "seed": seed})
        made.init([])
        return made.step  # type: ignore[no-any-return]

    def echo(seed: int) -> Callable[[str], Any]:
        del seed
        return Echo().step

    timed = {"HLE-v0 alone": ours, "HLE-v0 through skyrl-gym": door, "skyrl-gym's BaseTextEnv, an echo": echo}
    return [(name, min(_microseconds(start) for _ in range(ROUNDS))) for name, start in timed.items()]


def _microseconds(start: Callable[[int], Callable[[str], Any]]) -> float:
    spent = 0.0
    for seed in range(EPISODES):
        step = start(seed)
        began = time.process_time()
        for turn in TURNS:
            step(turn)
        spent += time.process_time() - began
    return 1e6 * spent / (EPISODES * len(TURNS))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not __package__:
        sys.path.pop(0)  # this folder: it has a file of the library's own name
    for name, microseconds in rows():
        print(f"| {name} | {microseconds:,.1f} |")
