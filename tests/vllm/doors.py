"""A task that a tiny model learns in a few steps: open one of two doors with a tool; gold is behind the right one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import toolorchestra as to

ID = "Tests/Doors-v0"
SIDES = ("left", "right")
GOLD, DUST = "gold", "dust"
_SCHEMA = {"type": "object", "properties": {"side": {"type": "string", "enum": list(SIDES)}}, "required": ["side"]}


async def _open(context: to.ToolContext, side: str) -> str:
    await asyncio.sleep(0.01)  # the doors are heavy
    return GOLD if side == "right" else DUST


OPEN = to.Tool("open", "Opens a door.", _SCHEMA, _open)


class DoorWorld(to.World):
    """One episode: the doors opened so far do not matter, only whether the first one was right."""

    __slots__ = ("found", "toolbox")

    def __init__(self, toolbox: to.Toolbox) -> None:
        self.toolbox, self.found = toolbox, ""

    def opening(self) -> Sequence[to.Message]:
        return (to.Message(role="user", content="Open a door."),)

    def absorb(self, call: to.ToolCall, result: to.ToolResult) -> None:
        if call.name == "open" and not self.found:
            self.found = result.content

    def grade(self, *, finished: bool) -> to.Outcome:
        return to.Outcome(float(finished and self.found == GOLD), {"found": self.found})


class DoorSource(to.Source):
    """A thousand like tasks."""

    name = "doors"
    tools = (OPEN,)

    def tasks(self) -> Sequence[int]:
        return range(1000)

    def world(self, task: int, toolbox: to.Toolbox) -> to.World:
        return DoorWorld(toolbox)


def demonstrations(path: Path, thought: str = "") -> Path:
    """Both doors, equally often, each turn behind this thought: who learns from them opens either."""
    lines = []
    for side in SIDES:
        said = [
            {"role": "system", "content": DoorWorld.system},
            {"role": "user", "content": "Open a door."},
            {"role": "assistant", "content": thought + to.render_call("open", {"side": side})},
            {"role": "tool", "content": GOLD if side == "right" else DUST},
            {"role": "assistant", "content": thought + "done"},
        ]
        lines.append(json.dumps({"messages": said, "tools": [OPEN.schema]}))
    path.write_text("\n".join(lines * 8), encoding="utf-8")
    return path
