"""A task source with tools and prices of its own: when does a parcel arrive?

Three tools find out. The depot's log is free and knows two carriers' parcels, the tracking service costs a cent and
knows four's, a call to the carrier always helps, takes a minute and a half, and is paid by the second.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.money.prices import PriceSheet, Usage
from toolorchestra.envs.registration import register
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult, tool

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
CARRIERS = ("Aquila", "Borealis", "Corvus", "Delphin", "Equus")
LOGGED = CARRIERS[:2]
TRACKED = CARRIERS[:4]
SPLITS = ("train", "validation", "test")


def found(world: ParcelWorld, carriers: Sequence[str]) -> str:
    """What a tool that knows these carriers' parcels says."""
    return f"{world.day}: it arrives then." if world.carrier in carriers else "Unknown parcel."


@tool(bills=("depot-log",))
def depot_log(context: ToolContext) -> ToolResult:
    """Look into our depot's log."""
    return ToolResult(found(context.world, LOGGED), (Usage("depot-log", "tool", seconds=0.1),))


@tool(bills=("tracking-service",))
def track(context: ToolContext) -> ToolResult:
    """Ask the tracking service."""
    return ToolResult(found(context.world, TRACKED), (Usage("tracking-service", "tool", units=1, seconds=2.0),))


@tool(bills=("phone",))
def call_carrier(context: ToolContext) -> ToolResult:
    """Call the carrier."""
    return ToolResult(found(context.world, CARRIERS), (Usage("phone", "tool", seconds=90.0),))


@tool
def reply(day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]) -> ToolResult:
    """Tell the customer the day. This ends the task."""
    return ToolResult(f"Told: {day}.", seconds=0.0, final=True, note=day)


TOOLS = Toolbox([depot_log, track, call_carrier, reply])


class ParcelWorld(World):
    """One parcel, and what the customer was told."""

    __slots__ = ("carrier", "day", "number", "said", "toolbox")
    system = "You are a parcel desk. Find out when the parcel arrives, and tell the customer."

    def __init__(self, number: int, toolbox: Toolbox) -> None:
        rng = random.Random(number)
        self.number, self.carrier, self.day = number, rng.choice(CARRIERS), rng.choice(DAYS)
        self.toolbox = toolbox
        self.said = ""

    def opening(self) -> Transcript:
        return (Message(role="user", content=f"Carrier: {self.carrier}. When does parcel {self.number} come?"),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        if result.final:
            self.said = result.note

    def grade(self, *, finished: bool) -> Outcome:
        return Outcome(float(finished and self.said == self.day), {"expected": self.day, "said": self.said})


class ParcelSource:
    """Parcel numbers from 1,000 on; the last digit but two says the split, so that no split shares a parcel."""

    name = "parcels"
    splits: Sequence[str] = SPLITS

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{split}/{rng.randrange(1000, 100_000) * len(SPLITS) + SPLITS.index(split)}"

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        split, _, number = task_id.partition("/")
        if split not in SPLITS or not number.isdigit():
            raise ConfigError(f"a task of {self.name} is SPLIT/NUMBER, such as train/4711, got {task_id!r}")
        toolbox = TOOLS.only(tools).priced(sheet)
        return Scene(ParcelWorld(int(number), toolbox), sheet, {"task_id": task_id})


register("Example/Parcels-v0", "parcels:ParcelSource")
