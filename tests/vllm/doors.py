"""A task that a tiny model learns in a few steps: open one of two doors with a tool; gold is behind the right one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult

ID = "Tests/Doors-v0"
SIDES = ("left", "right")
GOLD, DUST = "gold", "dust"
_SCHEMA = {"type": "object", "properties": {"side": {"type": "string", "enum": list(SIDES)}}, "required": ["side"]}


class DoorWorld(World):
    """One episode: the doors opened so far do not matter, only whether the first one was right."""

    __slots__ = ("found", "toolbox", "wait_seconds")

    def __init__(self, toolbox: Toolbox, wait_seconds: float) -> None:
        self.toolbox, self.wait_seconds = toolbox, wait_seconds
        self.found = ""

    def opening(self) -> Transcript:
        return (Message(role="user", content="Open a door."),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        if call.name == "open" and not self.found:
            self.found = result.content

    def grade(self, *, finished: bool) -> Outcome:
        return Outcome(float(finished and self.found == GOLD), {"found": self.found})


async def _open(context: ToolContext, side: str) -> str:
    await asyncio.sleep(context.world.wait_seconds)
    return GOLD if side == "right" else DUST


class DoorSource:
    """`wait_seconds` makes the doors heavy."""

    name = "doors"
    splits: Sequence[str] = ("train",)

    def __init__(self, wait_seconds: float = 0.01) -> None:
        self._wait = wait_seconds
        self._toolbox = Toolbox([Tool("open", "Opens a door.", _SCHEMA, _open)])

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{self.name}/{split}/{rng.randrange(1000)}"

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        del seed, tools
        return Scene(DoorWorld(self._toolbox, self._wait), sheet, {"task_id": task_id})


def demonstrations(path: Path, thought: str = "") -> Path:
    """Both doors, equally often, each turn behind this thought: who learns from them opens either."""
    lines = []
    for side in SIDES:
        said = [
            {"role": "system", "content": DoorWorld.system},
            {"role": "user", "content": "Open a door."},
            {"role": "assistant", "content": thought + render_call("open", {"side": side})},
            {"role": "tool", "content": GOLD if side == "right" else DUST},
            {"role": "assistant", "content": thought + "done"},
        ]
        tools = [Tool("open", "Opens a door.", _SCHEMA, _open).schema]
        lines.append(json.dumps({"messages": said, "tools": tools}))
    path.write_text("\n".join(lines * 8), encoding="utf-8")
    return path
