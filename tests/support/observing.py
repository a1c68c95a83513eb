"""A policy that decides by what it is shown alone: the same messages and tools give the same move, in any process."""

from __future__ import annotations

import random

from toolorchestra.agents.policies.base import Move, PlayerOptions, digest
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.random_values import random_value
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory


class Observing:
    """Calls any tool, or two at once, or says something, drawn by a hash of the observation."""

    name, simulated = "observing", True

    async def move(self, episode: Episode) -> Move:
        """Move by the hash."""
        seen = episode.observation
        said = [(m["role"], m["content"], m.get("name")) for m in seen["messages"]]
        shown = sorted(str(schema["function"]["name"]) for schema in seen["tools"])
        rng = random.Random(digest(said, shown))
        if rng.random() < 0.2 or not seen["tools"]:
            return Move(rng.choice(("Yes.", "Could you tell me more?", "<answer>42</answer>")), None)
        chosen = [rng.choice(seen["tools"])["function"] for _ in range(rng.choice((1, 1, 2)))]
        calls = [ToolCall(one["name"], random_value(one["parameters"], rng)) for one in chosen]
        return Move("\n".join(render_call(*call) for call in calls), None)


def player(name: str, factory: EpisodeFactory, seed: int, options: PlayerOptions) -> Observing:
    """Make it, as a policy's name does: tests.support.observing:player."""
    del name, factory, seed, options
    return Observing()
