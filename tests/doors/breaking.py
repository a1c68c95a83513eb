"""Worlds whose grader breaks down, each time or now and then: `tests.doors.breaking:Tests/Breaking-v0`."""

from __future__ import annotations

from collections.abc import Sequence

from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.registration import register


class BreakingWorld(QaWorld):
    """Its grader is away."""

    __slots__ = ()

    def grade(self, *, finished: bool) -> Outcome:
        raise RuntimeError("the grader is away")


class BreakingSource(HleSource):
    """HLE's questions; of every `one_in`, one breaks down."""

    def __init__(self, one_in: int = 1) -> None:
        super().__init__()
        self.one_in = one_in

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        scene = super().open(task_id, seed, sheet, tools)
        if int(task_id.rpartition("/")[2]) % self.one_in:
            return scene
        world = scene.world
        assert isinstance(world, QaWorld)
        return scene._replace(world=BreakingWorld(world.question, world.toolbox, message_answers=False))


register("Tests/Breaking-v0", "tests.doors.breaking:BreakingSource")
