"""A task source with tools and prices of its own: when does a parcel arrive?

Three tools find out. The depot's log is free and knows two carriers' parcels, the tracking service costs a cent and
knows four's, a call to the carrier always helps, takes a minute and a half, and is paid by the second.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import toolorchestra as to

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
CARRIERS = ("Aquila", "Borealis", "Corvus", "Delphin", "Equus")
LOGGED = CARRIERS[:2]
TRACKED = CARRIERS[:4]


def found(world: ParcelWorld, carriers: Sequence[str]) -> str:
    """What a tool that knows these carriers' parcels says."""
    return f"{world.day}: it arrives then." if world.carrier in carriers else "Unknown parcel."


@to.tool(bills=("depot-log",))
def depot_log(context: to.ToolContext) -> to.ToolResult:
    """Look into our depot's log."""
    return to.ToolResult(found(context.world, LOGGED), (to.Usage("depot-log", "tool", seconds=0.1),))


@to.tool(bills=("tracking-service",))
def track(context: to.ToolContext) -> to.ToolResult:
    """Ask the tracking service."""
    return to.ToolResult(found(context.world, TRACKED), (to.Usage("tracking-service", "tool", units=1, seconds=2.0),))


@to.tool(bills=("phone",))
def call_carrier(context: to.ToolContext) -> to.ToolResult:
    """Call the carrier."""
    return to.ToolResult(found(context.world, CARRIERS), (to.Usage("phone", "tool", seconds=90.0),))


@to.tool
def reply(day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]) -> to.ToolResult:
    """Tell the customer the day. This ends the task."""
    return to.ToolResult(f"Told: {day}.", seconds=0.0, final=True, note=day)


TOOLS = to.Toolbox([depot_log, track, call_carrier, reply])


class ParcelWorld(to.World):
    """One parcel, and what the customer was told."""

    system = "You are a parcel desk. Find out when the parcel arrives, and tell the customer."

    def __init__(self, number: int, toolbox: to.Toolbox) -> None:
        rng = random.Random(number)
        self.number, self.carrier, self.day = number, rng.choice(CARRIERS), rng.choice(DAYS)
        self.toolbox = toolbox
        self.said = ""

    def opening(self) -> tuple[to.Message, ...]:
        """Ask when it comes."""
        return (to.Message(role="user", content=f"Carrier: {self.carrier}. When does parcel {self.number} come?"),)

    def absorb(self, call: to.ToolCall, result: to.ToolResult) -> None:
        """Remember the day that was told."""
        if result.final:
            self.said = result.note

    def grade(self, *, finished: bool) -> to.Outcome:
        """Compare it with the day that it comes."""
        return to.Outcome(float(finished and self.said == self.day), {"expected": self.day, "said": self.said})


class ParcelSource(to.Source):
    """Parcel numbers from 1,000 on; the last digit but two says the split, so that no split shares a parcel."""

    name = "parcels"

    def draw(self, split: str, rng: random.Random) -> str:
        """Draw a parcel's number."""
        return f"{split}/{rng.randrange(1000, 100_000) * len(self.splits) + self.splits.index(split)}"

    def open(self, task_id: str, seed: int, sheet: to.PriceSheet, tools: Sequence[str] | None) -> to.Scene:
        """Open a parcel's task."""
        split, _, number = task_id.partition("/")
        if split not in self.splits or not number.isdigit():
            raise to.ConfigError(f"a task of {self.name} is SPLIT/NUMBER, such as train/4711, got {task_id!r}")
        toolbox = TOOLS.only(tools).priced(sheet)
        return to.Scene(ParcelWorld(int(number), toolbox), sheet, {"task_id": task_id})


to.register("Example/Parcels-v0", ParcelSource)
