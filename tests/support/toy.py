"""The adder of tests.sources with waits, to time and to train on. It opens its tasks for as little as can be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tests.sources import AnswerWorld, add, adder_script
from toolorchestra.envs.domains.source import Scene, Source
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Toolbox, ToolContext, tool

TURNS = 8


@tool
async def slow_add(context: ToolContext, a: int, b: int) -> int:
    """Add two integers, after a wait that the task's world sets."""
    await asyncio.sleep(context.world.waits[context.turn == 1])
    return a + b


class SlowAdderWorld(AnswerWorld):
    """Knows how long a call waits, and how long the first does."""

    __slots__ = ("waits",)
    system = "Add the numbers with the tool, then answer."


_FAST, _SLOW = Toolbox([add]), Toolbox([slow_add])


class AdderSource(Source):
    """`tool_seconds` makes the tool wait; `first_seconds` is task 0's first wait, to make one straggler."""

    name = "toy-adder"
    splits: Sequence[str] = ("train",)

    def __init__(self, tool_seconds: float = 0.0, first_seconds: float = 0.0) -> None:
        self._waits = (tool_seconds, first_seconds or tool_seconds)
        self._toolbox = _SLOW if any(self._waits) else _FAST

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{self.name}/{split}/{rng.randrange(1, 1000)}"

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        del seed, tools
        world = SlowAdderWorld(f"What is the sum of 1 to {TURNS - 1}?", str(sum(range(TURNS))), self._toolbox)
        world.waits = self._waits if task_id.endswith("/0") else self._waits[:1] * 2
        return Scene(world, sheet, {"task_id": task_id})


def script(tool_name: str = "add") -> list[str]:
    """The actions that solve it: seven calls, then the sum."""
    return [text.replace('"add"', f'"{tool_name}"') for text in adder_script(TURNS - 1)]
