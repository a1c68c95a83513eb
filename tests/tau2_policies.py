"""Policies that know τ²-Bench's tasks, for evaluations in tests: `--policy tests.tau2_policies:gold`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.tau2_players import gold as reference_path
from tests.support.tau2_players import idle
from toolorchestra.agents.policies.base import Move
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.episode.episode import Episode

PASSENGER = {"first_name": "Ada", "last_name": "Byron"}  # and no date of birth
BROKEN = render_call(
    "update_reservation_passengers", {"reservation_id": "4WQ150", "passengers": [PASSENGER, PASSENGER, PASSENGER]}
)
"""A call that pydantic refuses, in words that hold its version."""
_APART = 1_000_003
"""Between the seeds of a task's trials."""


class Tau2TestPlayer:
    """Says a list of texts that follows from the world and the number of the trial."""

    simulated = True

    def __init__(self, name: str, texts: Callable[[Tau2World, int], Sequence[str]]) -> None:
        self.name = name
        self._texts = texts

    async def move(self, episode: Episode) -> Move:
        world = episode.world
        assert isinstance(world, Tau2World)
        assert episode.origin is not None
        _, seed, options = episode.origin
        return Move(self._texts(world, seed + (options.get("luck") or 0) * _APART)[episode.turn], None)


def _gold(world: Tau2World, seed: int) -> Sequence[str]:
    del seed
    return reference_path(world.plan, solo=world.domain.solo)


def _at_times(world: Tau2World, seed: int) -> Sequence[str]:
    """The reference path in most trials, and nothing at all in the others."""
    play = idle if seed % 5 == 3 else reference_path
    return play(world.plan, solo=world.domain.solo)


def _refused(world: Tau2World, seed: int) -> Sequence[str]:
    return [BROKEN, *_gold(world, seed)]


def _failing(world: Tau2World, seed: int) -> Sequence[str]:
    if seed % _APART == 1:
        raise Outage("nobody answers")
    return _gold(world, seed)


def gold(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _gold)


def at_times(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _at_times)


def refused(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _refused)


def failing(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _failing)
