"""A task source in ninety lines, to copy and to time: add numbers with a tool, then say the sum."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.source import Scene, Source
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult, tool

TURNS = 8


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def slow_add(context: ToolContext, a: int, b: int) -> int:
    """Add two integers, after a wait that the task's world sets."""
    world: AdderWorld = context.world
    await asyncio.sleep(world.first_seconds if context.turn == 1 and world.number == 0 else world.tool_seconds)
    return a + b


class AdderWorld(World):
    """Knows the sum, and hears the answer as a message."""

    __slots__ = ("first_seconds", "number", "said", "tool_seconds", "toolbox")
    system = "Add the numbers with the tool, then answer."

    def __init__(self, number: int, toolbox: Toolbox, tool_seconds: float, first_seconds: float) -> None:
        self.number = number
        self.toolbox = toolbox
        self.tool_seconds = tool_seconds
        self.first_seconds = first_seconds
        self.said = ""

    def opening(self) -> Transcript:
        return (Message(role="user", content=f"What is the sum of 1 to {TURNS - 1}?"),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        self.said = result.content if result.final else ""

    def grade(self, *, finished: bool) -> Outcome:
        value = float(finished and final_answer(self.said) == str(sum(range(TURNS))))
        return Outcome(value, {"answer": self.said})


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
        world = AdderWorld(int(task_id.rpartition("/")[2]), self._toolbox, *self._waits)
        return Scene(world, sheet, {"task_id": task_id})


def script(tool_name: str = "add") -> list[str]:
    """The actions that solve it: seven calls, then the sum."""
    total, actions = 0, []
    for number in range(1, TURNS):
        actions.append(render_call(tool_name, {"a": total, "b": number}))
        total += number
    return [*actions, f"<answer>{total}</answer>"]
