"""A reward term of your own: a wrapper sees each step's bill, calls and outcome in `info`, and changes the reward.

    python reward_term.py

It is a wrapper of Gymnasium's, so it goes around any environment of the suite, and under any trainer that takes one.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import render_call


class PromptAnswers(gym.Wrapper[Any, Any, Any, Any]):
    """Takes `each` off the reward for every second beyond `patience` that the episode has lasted when it ends."""

    def __init__(self, env: gym.Env[Any, Any], patience: float = 60.0, each: float = 0.01) -> None:
        super().__init__(env)
        self.patience, self.each = patience, each

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One turn, with the term in `info` beside the reward that it is part of."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        late = max(0.0, info["ledger"]["seconds"] - self.patience) if terminated or truncated else 0.0
        info["reward_terms"] = {"task": float(reward), "late": -self.each * late}
        return observation, sum(info["reward_terms"].values()), terminated, truncated, info


def main() -> None:
    """One episode with a slow expert."""
    env = PromptAnswers(gym.make("ToolOrchestra/FRAMES-v0", split="test", preference="none"))
    env.reset(seed=11)
    _, reward, _, _, info = env.step(render_call("answer", {"model": "answer-1"}))
    print(f"{reward:.4f} = {info['reward_terms']}, {info['ledger']['seconds']:.1f} s")


if __name__ == "__main__":
    main()
