"""The asyncio driver: advance one episode on the running loop. Rollouts are made of it; thousands run side by side."""

from __future__ import annotations

from toolorchestra.envs.base.types import Observation
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.runtime.invoke import Gates, any_waits, perform_here


async def begin(episode: Episode, gates: Gates) -> Observation:
    """The first observation of an episode that was just started: most have it, some wait for a user's first words."""
    if episode.opening:
        return episode.begin([await gates.perform(ready) for ready in episode.opening])
    return episode.observation


async def advance(episode: Episode, text: str, gates: Gates, usage: Usage | None = None) -> Step:
    """One turn of an episode. `gates` limits calls in flight for all episodes that share it."""
    moved: Pending | Step = episode.act(text, usage)
    while isinstance(moved, Pending):
        calls = moved.calls
        if not any_waits(calls):
            moved = episode.resolve([perform_here(ready) for ready in calls])
        elif len(calls) == 1:
            moved = episode.resolve((await gates.perform(calls[0]),))
        else:
            moved = episode.resolve(await gates.perform_all(calls))
    return moved
