"""Tasks of your own: a whole environment in one file. Which number from 1 to 1000 is it?

    python task_source.py
    PYTHONPATH=. toolorchestra play --env task_source:Example/Number-v0

A *source* lists tasks. A *world* holds the state of one episode: its first messages, what it
remembers of a result, and the grade. `../parcels` is a larger one, and is trained on.
"""

from __future__ import annotations

import toolorchestra as to

PRICES = {
    "id": "number-2026-11",
    "date": "2026-11-01",
    "source": "Invented, for the example",
    "prices": {
        "qwen3-8b": {"usd_per_mtok": {"input": 0.2, "output": 0.2}},
        "scales": {"usd_per_unit": 0.001},
    },
}


@to.tool(bills=("scales",))
def compare(context: to.ToolContext, number: int) -> to.ToolResult:
    """Say whether the number that is looked for is larger than this one."""
    larger = context.world.number > number
    return to.ToolResult("larger" if larger else "not larger", (to.Usage("scales", "tool", units=1, seconds=1.0),))


@to.tool
def answer(number: int) -> to.ToolResult:
    """Give the number. This ends the task."""
    return to.ToolResult(f"You said {number}.", seconds=0.0, final=True, note=number)


class NumberWorld(to.World):
    """One number, and what was said."""

    system = "Find the number. Each comparison costs money."

    def __init__(self, number: int, toolbox: to.Toolbox) -> None:
        self.number, self.toolbox = number, toolbox
        self.said: int | None = None

    def opening(self) -> tuple[to.Message, ...]:
        """Ask for the number."""
        return (to.Message(role="user", content="Which whole number from 1 to 1000 do I think of?"),)

    def absorb(self, call: to.ToolCall, result: to.ToolResult) -> None:
        """Remember what was said."""
        if result.final:
            self.said = result.note

    def grade(self, *, finished: bool) -> to.Outcome:
        """Compare what was said with the number."""
        return to.Outcome(float(finished and self.said == self.number), {"expected": self.number, "said": self.said})


class NumberSource(to.Source):
    """A task for each number."""

    tools = (compare, answer)

    def tasks(self) -> range:
        """Every number; a hash of it says its split."""
        return range(1, 1001)

    def world(self, task: int, toolbox: to.Toolbox) -> NumberWorld:
        """A number with fresh state."""
        return NumberWorld(task, toolbox)


to.register("Example/Number-v0", NumberSource, prices=PRICES)


def main() -> None:
    """Halve until it is found."""
    env = to.make("Example/Number-v0", split="test", preference="none")
    env.reset(seed=1)
    low, high = 1, 1000
    while low < high:
        middle = (low + high) // 2
        info = env.step(to.render_call("compare", {"number": middle}))[4]
        low, high = (middle + 1, high) if info["new_messages"][-1]["content"] == "larger" else (low, middle)
    _, reward, _, _, info = env.step(to.render_call("answer", {"number": low}))
    print(low, reward, info["calls"], info["ledger"]["usd_by_role"])


if __name__ == "__main__":
    main()
