"""Tasks of your own: a whole environment in one file. Which number from 1 to 100 is it?

    python task_source.py
    PYTHONPATH=. toolorchestra play --env task_source:Example/Number-v0

A *source* draws task ids and opens them. A *world* holds the state of one episode: its first messages, what it
remembers of a result, and the grade. `../parcels` is a larger one, and is trained on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import gymnasium as gym

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.money.prices import TOOL, PriceSheet, Usage
from toolorchestra.envs.registration import register
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult, tool

SPLITS = ("train", "validation", "test")
PRICES = {
    "id": "number-2026-11",
    "date": "2026-11-01",
    "source": "Invented, for the example",
    "prices": {
        "qwen3-8b": {"usd_per_mtok": {"input": 0.2, "output": 0.2}},
        "scales": {"usd_per_unit": 0.001},
    },
}


@tool(bills=("scales",))
def compare(context: ToolContext, number: int) -> ToolResult:
    """Say whether the number that is looked for is larger than this one."""
    larger = context.world.number > number
    return ToolResult("larger" if larger else "not larger", (Usage("scales", TOOL, units=1, seconds=1.0),))


@tool
def answer(number: int) -> ToolResult:
    """Give the number. This ends the task."""
    return ToolResult(f"You said {number}.", seconds=0.0, final=True, note=number)


TOOLS = Toolbox([compare, answer])


class NumberWorld(World):
    """One number, and what was said."""

    __slots__ = ("number", "said", "toolbox")
    system = "Find the number. Each comparison costs money."

    def __init__(self, number: int, toolbox: Toolbox) -> None:
        self.number, self.toolbox = number, toolbox
        self.said: int | None = None

    def opening(self) -> Transcript:
        """See World."""
        return (Message(role="user", content="Which whole number from 1 to 100 do I think of?"),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        """See World."""
        if result.final:
            self.said = result.note

    def grade(self, *, finished: bool) -> Outcome:
        """See World."""
        return Outcome(float(finished and self.said == self.number), {"expected": self.number, "said": self.said})


class NumberSource:
    """Tasks are numbered; a task's id decides its number, and no two splits share an id."""

    name = "number"
    splits: Sequence[str] = SPLITS

    def draw(self, split: str, rng: random.Random) -> str:
        """See Source."""
        return f"{split}/{rng.randrange(100_000)}"

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """See Source."""
        split, _, place = task_id.partition("/")
        if split not in SPLITS or not place.isdigit():
            raise ConfigError(f"a task of {self.name} is SPLIT/N, such as train/4711, got {task_id!r}")
        number = random.Random(task_id).randint(1, 100)
        return Scene(NumberWorld(number, TOOLS.only(tools).priced(sheet)), sheet, {"split": split})


register("Example/Number-v0", "task_source:NumberSource", prices=PRICES)


def main() -> None:
    """Halve until it is found."""
    env = gym.make("Example/Number-v0", split="test", preference="none")
    env.reset(seed=1)
    low, high = 1, 100
    while low < high:
        middle = (low + high) // 2
        info = env.step(render_call("compare", {"number": middle}))[4]
        low, high = (middle + 1, high) if info["new_messages"][-1]["content"] == "larger" else (low, middle)
    _, reward, _, _, info = env.step(render_call("answer", {"number": low}))
    print(low, reward, info["calls"], info["ledger"]["usd_by_role"])


if __name__ == "__main__":
    main()
