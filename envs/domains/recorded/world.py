"""The world of a recorded task: models are sent to it, and each attempt ends as a recorded run of theirs did."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.types import Outcome, Question, ToolCall
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.recorded.runs import RecordedRuns, Run
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult

SYSTEM = (
    "You choose which model works on the user's task. Each model's run costs money and time, and may fail; the same "
    "model may do better when it is sent again."
)
PASSED, FAILED = "Check passed", "Check failed"
_NUMBER = re.compile(r"\battempt (\d+)\b", re.IGNORECASE)


class Attempted(NamedTuple):
    """What a call leaves in the world."""

    run: Run


class RecordedWorld(QaWorld):
    """One recorded task, and the attempts at it."""

    __slots__ = ("attempts", "runs", "sent", "sheet", "task")
    system = SYSTEM

    def __init__(
        self, question: Question, toolbox: Toolbox, runs: RecordedRuns, task: str, sheet: PriceSheet, *, checked: bool
    ) -> None:
        super().__init__(question, toolbox, message_answers=not checked, ending="submit")
        self.runs, self.task, self.sheet = runs, task, sheet
        self.sent: Counter[str] = Counter()
        """How often each model was sent. Counted when it is, since calls of one turn take different runs."""
        self.attempts: tuple[Run, ...] = ()

    def take(self, model: str, seed: int) -> Run:
        """The next run of a model."""
        made = self.runs.run(self.task, model, self.sent[model], seed, self.sheet)
        self.sent[model] += 1
        return made

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        if isinstance(result.note, Attempted):
            self.attempts += (result.note.run,)
        else:
            super().absorb(call, result)

    def to_grade(self) -> dict[str, Any]:
        """See Regradable."""
        return {"answer": self.answer, "success": [run.success for run in self.attempts]}

    def take_up(self, kept: Any, context: ToolContext) -> None:
        """See Regradable."""
        del context
        self.answer = kept["answer"]
        nothing = self.runs.run(self.task, self.runs.models[0], 0, 0, self.sheet).usage
        self.attempts = tuple(Run(value, nothing, 0) for value in kept["success"])

    def grade(self, *, finished: bool) -> Outcome:
        """The attempt that was handed in: the one that is named, or the last."""
        named = _NUMBER.search(self.answer or "")
        place = int(named.group(1)) - 1 if named else len(self.attempts) - 1
        there = finished and 0 <= place < len(self.attempts)
        value = self.attempts[place].success if there else 0.0
        return Outcome(value, {"attempts": len(self.attempts), "subject": self.question.subject})


def send(context: ToolContext, model: str, *, ends: bool) -> ToolResult:
    """A model's run on the task. Where it does not end the task, a check says whether it succeeded."""
    world: RecordedWorld = context.world
    run = world.take(model, context.seed)
    context.bill.add(run.usage)
    number = sum(world.sent.values())
    if ends:
        return ToolResult(f"{model} has worked on it.", final=True, note=Attempted(run))
    found = PASSED if run.success >= 1 else FAILED
    return ToolResult(f"{found}. Attempt {number}, by {model}.", note=Attempted(run))


def hand_in(context: ToolContext, answer: str) -> ToolResult:
    """The end: which attempt counts."""
    if not context.world.attempts:
        raise ToolError("nothing to hand in yet: send a model first")
    return ToolResult(answer, final=True, note=answer)
