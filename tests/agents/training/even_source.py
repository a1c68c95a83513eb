"""A task source on which a cold model learns: an answer of an even length is right."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sources import AnswerWorld, NumberedSource, add
from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.registration import register
from toolorchestra.envs.tools import Tool, Toolbox

ENV_ID = "Tests/Even-v0"
TASKS = 6


class EvenWorld(AnswerWorld):
    """Half of what is said at random solves it."""

    __slots__ = ()

    def grade(self, *, finished: bool) -> Outcome | Tool:
        return Outcome(float(finished and len(self.answer or "-") % 2 == 0), {"answer": self.answer})


class EvenSource(NumberedSource):
    """Six tasks of each split."""

    name = "even"
    tools = (add,)

    def world(self, number: int, toolbox: Toolbox) -> World:
        return EvenWorld(f"Task {number}: say something of an even length.", "", toolbox)

    def task_ids(self, split: str) -> Sequence[str]:
        return [f"{self.name}/{split}/{number}" for number in range(TASKS)]


register(ENV_ID, f"{__name__}:EvenSource")
