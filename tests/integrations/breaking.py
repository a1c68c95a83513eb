"""Questions on which something breaks down, each time or now and then: the grader in Tests/Breaking-v0, the tool that
answers in Tests/AnswerAway-v0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.registration import register
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult


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
        world = scene.world
        assert isinstance(world, QaWorld)
        return scene._replace(world=self.broken(world)) if breaks(task_id, self.one_in) else scene

    def broken(self, world: QaWorld) -> QaWorld:
        """What stands in the world's place."""
        return BreakingWorld(world.question, world.toolbox, message_answers=False)


class AnswerAwaySource(BreakingSource):
    """Of every `one_in` questions, one cannot be answered: the models that would are away."""

    def broken(self, world: QaWorld) -> QaWorld:
        """See BreakingSource."""
        box = Toolbox(replace(tool, run=_away) if tool.name == world.ending else tool for tool in world.toolbox)
        return QaWorld(world.question, box, message_answers=False)


def breaks(task_id: str, one_in: int) -> bool:
    """Whether a task is one of those that break down."""
    return not int(task_id.rpartition("/")[2]) % one_in


def _away(_context: ToolContext, **_arguments: Any) -> ToolResult:
    raise Outage("the models are away")


register("Tests/Breaking-v0", "tests.integrations.breaking:BreakingSource")
register("Tests/AnswerAway-v0", "tests.integrations.breaking:AnswerAwaySource")
register("Tests/Outage-v0", "tests.sources:BrokenSource")
