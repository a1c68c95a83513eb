"""The asyncio driver: advance one episode on the running loop. Rollouts are made of it; thousands run side by side."""

from __future__ import annotations

import asyncio

from toolorchestra.envs.episode import Episode, Pending, Step
from toolorchestra.envs.invoke import Gates, perform_here
from toolorchestra.envs.prices import Usage


async def advance(episode: Episode, text: str, gates: Gates, usage: Usage | None = None) -> Step:
    """One turn of an episode. `gates` limits calls in flight for all episodes that share it."""
    moved: Pending | Step = episode.act(text, usage)
    while isinstance(moved, Pending):
        calls = moved.calls
        if not any([ready.tool.suspends for ready in calls]):
            moved = episode.resolve([perform_here(ready) for ready in calls])
        elif len(calls) == 1:
            moved = episode.resolve((await gates.perform(calls[0]),))
        else:
            moved = episode.resolve(await asyncio.gather(*(gates.perform(ready) for ready in calls)))
    return moved
