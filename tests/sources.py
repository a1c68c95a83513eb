"""Small task sources as third parties would write them; OrchestraEnv("tests.sources:AdderSource") takes one by name."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.base.errors import ConfigError, ToolError, no_such
from toolorchestra.envs.base.types import Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.source import Scene, Source
from toolorchestra.envs.domains.world import MESSAGE, World
from toolorchestra.envs.money.prices import EXPERT, JUDGE, TOOL, USER, PriceSheet, Tokens, Usage
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult, tool

TASKS = 1000
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


class NumberedSource(Source):
    """Tasks `name/split/number`. A subclass gives its tools, and a fresh world for a number."""

    name = "numbered"
    splits = ("train", "test")
    tools: tuple[Tool, ...] = ()

    def world(self, number: int, toolbox: Toolbox) -> World:
        raise NotImplementedError

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{self.name}/{split}/{rng.randrange(TASKS)}"

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        name, _, rest = task_id.partition("/")
        split, _, number = rest.partition("/")
        if name != self.name or split not in self.splits or not number.isdecimal():
            raise ConfigError(f"no task {task_id!r}; ids are {self.name}/SPLIT/N, SPLIT of {', '.join(self.splits)}")
        for wanted in tools or ():
            if wanted not in [t.name for t in self.tools]:
                raise ConfigError(no_such("tool", wanted, (t.name for t in self.tools)))
        toolbox = Toolbox(t for t in self.tools if tools is None or t.name in tools)
        sheet.require(toolbox.bills, self.name)
        return Scene(self.world(int(number), toolbox), sheet, {"task_id": task_id, "split": split})


class Breaks:
    """A world that cannot take a result."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def absorb(self, call: Any, result: Any) -> None:
        raise RuntimeError(f"no room for {call.name}")


class AnswerWorld(World):
    """A request; the first message is the answer and ends the episode."""

    __slots__ = ("answer", "expected", "request", "toolbox")

    def __init__(self, request: str, expected: str, toolbox: Toolbox) -> None:
        self.request, self.expected, self.toolbox = request, expected, toolbox
        self.answer: str | None = None

    def opening(self) -> Transcript:
        return (Message(role="user", content=self.request),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        if call.name == self.listener.name:
            self.answer = final_answer(result.note)

    def grade(self, *, finished: bool) -> Outcome | Tool:
        right = finished and self.answer == self.expected
        return Outcome(float(right), {"answer": self.answer, "expected": self.expected})


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class AdderSource(NumberedSource):
    """Add up 1 to `last`, one call of add(a, b) at a time, and say the sum. The tool bills nothing."""

    name = "adder"
    tools = (add,)

    def __init__(self, last: int = 7) -> None:
        self.last = last

    def world(self, number: int, toolbox: Toolbox) -> World:
        request = f"Task {number}: add up the numbers 1 to {self.last} with the tool. End with <answer>sum</answer>."
        return AnswerWorld(request, str(sum(range(self.last + 1))), toolbox)


def adder_script(last: int = 7) -> list[str]:
    """What a perfect policy writes: `last` calls and the answer (8 turns by default)."""
    texts, total = [], 0
    for number in range(1, last + 1):
        texts.append(render_call("add", {"a": total, "b": number}))
        total += number
    return [*texts, f"<answer>{total}</answer>"]


async def _nap(context: ToolContext, milliseconds: int) -> ToolResult:
    await asyncio.sleep(milliseconds / 1000)
    return ToolResult(f"slept {milliseconds} ms", (Usage("tavily/search", TOOL, units=1),))


async def _own_nap(context: ToolContext, milliseconds: int) -> ToolResult:
    return (await _nap(context, milliseconds))._replace(usages=())


_MILLISECONDS = {"type": "integer", "minimum": 0, "maximum": 60_000, "description": "how long to sleep"}
_NAP = {"type": "object", "properties": {"milliseconds": _MILLISECONDS}, "required": ["milliseconds"]}


class SleeperSource(NumberedSource):
    """`nap(milliseconds)` waits on the event loop and bills one search; any message ends the episode, always right."""

    name = "sleeper"

    def __init__(
        self, backend: str = "", max_in_flight: int = 64, deadline_seconds: float = 120.0, paid: bool = True
    ) -> None:
        run, bills = (_nap, ("tavily/search",)) if paid else (_own_nap, ())
        nap = Tool("nap", "Sleeps.", _NAP, run, bills=bills, deadline_seconds=deadline_seconds)
        self.tools = (replace(nap, backend=backend, max_in_flight=max_in_flight), add)

    def world(self, number: int, toolbox: Toolbox) -> World:
        return AnswerWorld(f"Task {number}: sleep, then say done.", "done", toolbox)


def nap(milliseconds: int) -> str:
    """The action that sleeps."""
    return render_call("nap", {"milliseconds": milliseconds})


def _raises(context: ToolContext) -> ToolResult:
    raise RuntimeError("the disk is on fire")


def _refuses(context: ToolContext) -> ToolResult:
    usage = Usage("gpt-5", EXPERT, Tokens(input=1000, output=10), seconds=2.5)
    context.bill.add(usage)
    raise ToolError("not today")


def _unpriced(context: ToolContext) -> ToolResult:
    return ToolResult("done", (Usage("no-such-item", TOOL, units=1),))


def _eternal(context: ToolContext) -> ToolResult:
    return ToolResult("done", seconds=float("inf"))


def _unlisted(context: ToolContext) -> ToolResult:
    return ToolResult("done", Usage("gpt-5", TOOL))  # type: ignore[arg-type]  # not a tuple of them


def _exits(context: ToolContext) -> ToolResult:
    sys.exit("a command-line tool in disguise")


async def _cancels_itself(context: ToolContext) -> ToolResult:
    raise asyncio.CancelledError


async def _raises_later(context: ToolContext) -> ToolResult:
    await asyncio.sleep(0.001)
    raise RuntimeError("the connection is on fire")


async def _cancels_its_task(context: ToolContext) -> ToolResult:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return ToolResult("never")


class Panic(BaseException):
    """No Exception."""


async def _panics(context: ToolContext) -> ToolResult:
    await asyncio.sleep(0.001)
    raise Panic("all is lost")


def _panics_here(context: ToolContext) -> ToolResult:
    raise Panic("all is lost here")


def _cancels_here(context: ToolContext) -> ToolResult:
    raise asyncio.CancelledError


class Mute(Exception):
    """One that cannot be said."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _mute(context: ToolContext) -> ToolResult:
    raise Mute


def _refuses_mutely(context: ToolContext) -> ToolResult:
    raise ToolError(Mute())


def _works(context: ToolContext) -> ToolResult:
    return ToolResult("done")


WAYS = {
    "raises": _raises,
    "raises_later": _raises_later,
    "refuses": _refuses,
    "unpriced": _unpriced,
    "eternal": _eternal,
    "unlisted": _unlisted,
    "exits": _exits,
    "cancels": _cancels_itself,
    "panics": _panics,
    "panics here": _panics_here,
    "cancels here": _cancels_here,
    "mute": _mute,
    "refuses mutely": _refuses_mutely,
    "cancels its task": _cancels_its_task,
    **dict.fromkeys(("absorb", "grade", "no grade", "nothing"), _works),
}


class BrokenWorld(AnswerWorld):
    """Breaks in absorb or grade once `breaks` has been called."""

    __slots__ = ("broken", "way")

    def __init__(self, request: str, way: str, toolbox: Toolbox) -> None:
        super().__init__(request, "done", toolbox)
        self.way, self.broken = way, False

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        self.broken = self.broken or call.name == "breaks"
        if self.broken and self.way == "absorb":
            raise KeyError("a world's bug")
        super().absorb(call, result)

    def grade(self, *, finished: bool) -> Outcome | Tool:
        if self.broken and self.way == "grade":
            raise ZeroDivisionError("a grader's bug")
        if self.broken and self.way == "no grade":
            return None  # type: ignore[return-value]
        return super().grade(finished=finished)


class BrokenSource(NumberedSource):
    """`breaks()` goes wrong in the given way; `add` works; saying "done" is right."""

    name = "broken"

    def __init__(self, way: str = "raises") -> None:
        if way not in WAYS:
            raise ConfigError(no_such("way", way, WAYS))
        self.way = way
        self.tools = (Tool("breaks", "Goes wrong.", NOTHING, WAYS[way], bills=("gpt-5",)), add)

    def world(self, number: int, toolbox: Toolbox) -> World:
        return BrokenWorld(f"Task {number}: say done.", self.way, toolbox)


BREAK = render_call("breaks", {})


VERDICT = Usage("gpt-5-mini", JUDGE, Tokens(input=100, output=5), seconds=1.5)


class JudgedWorld(AnswerWorld):
    """A judge says whether the answer is right."""

    __slots__ = ("judge",)

    def __init__(self, request: str, judge: str, toolbox: Toolbox) -> None:
        super().__init__(request, "good", toolbox)
        self.judge = judge

    def grade(self, *, finished: bool) -> Outcome | Tool:
        def judged(context: ToolContext) -> ToolResult:
            if self.judge == "raises":
                raise ConnectionError("the judge is away")
            if self.judge == "refuses":
                context.bill.add(VERDICT)
                raise ToolError("the judge is busy")
            outcome = Outcome(float(finished and self.answer == "good"), {"answer": self.answer, "judge": "simulated"})
            return ToolResult("judged", (VERDICT,), outcome=None if self.judge == "silent" else outcome)

        async def judged_later(context: ToolContext) -> ToolResult:
            await asyncio.sleep(0.001)
            return judged(context)

        grade = judged_later if self.judge == "waits" else judged
        return Tool("judge", "Grades.", NOTHING, grade, (VERDICT.item,))


class JudgedSource(NumberedSource):
    """Answer "good" to win. `judge`: works, waits (is async), raises, refuses, or is silent."""

    name = "judged"
    tools = (add,)

    def __init__(self, judge: str = "works") -> None:
        if judge not in (valid := ("works", "waits", "raises", "refuses", "silent")):
            raise ConfigError(no_such("judge", judge, valid))
        self.judge = judge

    def world(self, number: int, toolbox: Toolbox) -> World:
        return JudgedWorld(f"Task {number}: say something good.", self.judge, toolbox)


async def _user(context: ToolContext, text: str) -> ToolResult:
    bill = (Usage("gpt-5-mini", USER, Tokens(input=50, output=10), seconds=1.0),)
    if context.world.heard + 1 < context.world.patience:
        return ToolResult(f"I heard {text!r}. Go on.", bill)
    return ToolResult("Thank you, goodbye.", bill, final=True)


_USER = Tool("message", "A user answers.", MESSAGE, _user, suspends=False)


class TalkerWorld(World):
    """Counts what it was told; the user leaves after `patience` messages."""

    __slots__ = ("heard", "patience", "toolbox")
    listener = _USER

    def __init__(self, patience: int, toolbox: Toolbox) -> None:
        self.patience, self.toolbox, self.heard = patience, toolbox, 0

    def opening(self) -> Transcript:
        return (Message(role="user", content=f"Talk to me, {self.patience} times."),)

    def retell(self) -> Transcript:
        return (Message(role="user", content=f"You have said {self.heard} things. Go on."),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        self.heard += call.name == "message"

    def grade(self, *, finished: bool) -> Outcome:
        return Outcome(float(finished), {"heard": self.heard})


class TalkerSource(NumberedSource):
    """A user who answers messages and leaves after three."""

    name = "talker"
    tools = (add,)

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience

    def world(self, number: int, toolbox: Toolbox) -> World:
        return TalkerWorld(self.patience, toolbox)
