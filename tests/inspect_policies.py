"""A policy for logs of every kind of trial: `--policy tests.inspect_policies:uneven` on question environments."""

from __future__ import annotations

from typing import Any

from toolorchestra.agents.policies.base import Move
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.episode.episode import Episode

SEARCH = render_call("search", {"model": "search-3"})
ANSWER = render_call("answer", {"model": "answer-math-2"})
TEXTS = (f"<think>Look first.</think>I look it up. {SEARCH}{SEARCH}", "<tool_call>{broken", ANSWER)
"""A thought with two calls, a text that is no action, and the end."""


class UnevenPlayer:
    """Says TEXTS, but is out of order for every third seed."""

    simulated = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def move(self, episode: Episode) -> Move:
        if episode.context.seed % 3 == 1:
            raise Outage("nobody answers")
        return Move(TEXTS[episode.turn], None)


def uneven(name: str, *_: Any) -> UnevenPlayer:
    return UnevenPlayer(name)
