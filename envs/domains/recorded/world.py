"""The recorded runs of some models, and the world of a recorded task: models are sent to it, and each attempt ends as a
recorded run of theirs did."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.types import Outcome, Question, ToolCall
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.money.prices import EXPERT, NO_TOKENS, Price, PriceSheet, Tokens, Usage
from toolorchestra.envs.outcomes.table import Outcomes
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult

MICRO = 1_000_000
RECORDED_DOLLARS = Price(nano_usd_per_unit=1000)
"""Price of a model that is billed what its recording says: a unit is a millionth of a dollar."""


@dataclass(frozen=True)
class RecordedAttempt:
    """One recorded attempt of one model at one task: its outcome, its cost and its time."""

    success: float
    usage: Usage
    number: int
    """Number from 1 among the runs of its model on its task."""


def priced(rows: Outcomes) -> Outcomes:
    """The rows that know their tokens or their dollars."""
    return rows.where_rows(_has_tokens(rows) | np.isfinite(rows.measures["usd"]))


class RecordedRuns:
    """The recorded runs of some models on the tasks that all of them ran."""

    def __init__(self, rows: Outcomes, models: Sequence[str] = ()) -> None:
        graded = rows.only(models)
        graded = graded.where_rows(np.isfinite(graded.success))
        self.models = graded.models
        self.where = graded.where
        self._by_tokens = {model: self._has_tokens(graded, number) for number, model in enumerate(self.models)}
        self._rows = graded
        self._at: dict[tuple[int, int], list[int]] = {}
        for at, pair in enumerate(zip(graded.task.tolist(), graded.model.tolist(), strict=True)):
            self._at.setdefault(pair, []).append(at)
        numbers = range(len(self.models))
        self.tasks: Mapping[str, int] = {
            name: task for task, name in enumerate(graded.tasks) if all((task, m) in self._at for m in numbers)
        }
        self.left_out = len(graded.tasks) - len(self.tasks)
        """Tasks that some of the models did not run."""
        if not self.tasks:
            raise ConfigError(
                f"{self.where}: no task was run by all of {', '.join(self.models)}; name fewer models with models=[...]"
            )

    @cached_property
    def digest(self) -> str:
        """A hash of all recorded runs and of the names of their models and tasks."""
        made = hashlib.blake2b("\x1f".join((*self.models, *self._rows.tasks)).encode(), digest_size=16)
        for column in (self._rows.task, self._rows.model, self._rows.success, *self._rows.measures.values()):
            made.update(np.ascontiguousarray(column).tobytes())
        return made.hexdigest()

    def _has_tokens(self, rows: Outcomes, number: int) -> bool:
        """Whether every run of a model knows its tokens. Raises ConfigError where some run has no price at all."""
        mine = rows.model == number
        tokens = _has_tokens(rows)[mine]
        dollars = np.isfinite(rows.measures["usd"][mine])
        if mine.any() and not (tokens.all() or dollars.all()):
            unknown = int((~(dollars if dollars.sum() > tokens.sum() else tokens)).sum())
            raise ConfigError(
                f"{rows.where}: {unknown} of {int(mine.sum())} runs of {rows.models[number]!r} have neither tokens nor "
                "dollars (0 dollars are unknown), and nothing is free here; leave the model out with models=[...], or "
                "leave those runs out with `priced` of toolorchestra.envs.domains.recorded.world"
            )
        return bool(tokens.all())

    def text(self, task: str) -> str:
        """What was asked, or the task's name in words."""
        return self._rows.texts.get(task) or task.replace("__", ": ").replace("_", " ")

    def family(self, task: str) -> str:
        """The family that the recording puts a task into; "recorded" where it names none."""
        return self._rows.families[self.tasks[task]] or "recorded"

    def priced(self, sheet: PriceSheet) -> PriceSheet:
        """The sheet, with the recorded dollars of models that it cannot price. Raises ConfigError for those without."""
        more: dict[str, Price] = {}
        for number, model in enumerate(self.models):
            price = sheet.prices.get(model)
            if price is not None and (price.pico_usd_per_token or price.free) and self._by_tokens[model]:
                continue
            if not np.isfinite(self._rows.measures["usd"][self._rows.model == number]).all():
                raise ConfigError(
                    f"price sheet {sheet.sheet_id} has no price by the token for {model!r}, and {self.where} has no "
                    "dollars of it; add the price (prices=FILE), or leave the model out with models=[...]"
                )
            more[model] = RECORDED_DOLLARS
        return replace(sheet, prices={**sheet.prices, **more}) if more else sheet

    def run(self, task: str, model: str, attempt: int, seed: int, sheet: PriceSheet) -> RecordedAttempt:
        """The run that the n-th attempt takes: in an order drawn by the seed, none twice before all were taken."""
        places = self._at[self.tasks[task], self.models.index(model)]
        around, number = divmod(attempt, len(places))
        order = list(range(len(places)))
        random.Random(f"{seed}/{task}/{model}/{around}").shuffle(order)
        return self._run(places[order[number]], order[number] + 1, model, sheet)

    def all_runs(self, task: str, model: str, sheet: PriceSheet) -> list[RecordedAttempt]:
        """Every recorded run of a model on a task."""
        places = self._at[self.tasks[task], self.models.index(model)]
        return [self._run(at, number, model, sheet) for number, at in enumerate(places, 1)]

    def seconds(self, task: str, model: str) -> Sequence[float]:
        """How long each of these took; nan where it is not known, for which an episode takes none."""
        places = self._at[self.tasks[task], self.models.index(model)]
        return [float(self._rows.measures["seconds"][at]) for at in places]

    def _run(self, at: int, number: int, model: str, sheet: PriceSheet) -> RecordedAttempt:
        know = {name: column[at] for name, column in self._rows.measures.items()}
        seconds = float(know["seconds"]) if np.isfinite(know["seconds"]) else 0.0
        tokens, units = NO_TOKENS, 0
        if sheet.price(model) is RECORDED_DOLLARS:
            units = round(float(know["usd"]) * MICRO)
        else:
            reasoning = 0 if np.isnan(know["reasoning"]) else round(float(know["reasoning"]))
            tokens = Tokens(round(float(know["input"])), 0, round(float(know["output"])), reasoning)
        return RecordedAttempt(float(self._rows.success[at]), Usage(model, EXPERT, tokens, units, seconds), number)

    def median(self, measure: str, model: str, tasks: Sequence[str]) -> float:
        """Median of a model's runs on these tasks; 0 where nobody measured."""
        number, chosen = self.models.index(model), {self.tasks[task] for task in tasks}
        values = self._rows.measures[measure]
        mine = (self._rows.model == number) & np.isin(self._rows.task, list(chosen)) & np.isfinite(values)
        return float(np.median(values[mine])) if mine.any() else 0.0


def _has_tokens(rows: Outcomes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isfinite(rows.measures["input"]) & np.isfinite(rows.measures["output"])


SYSTEM = (
    "You choose which model works on the user's task. Each model's run costs money and time, and may fail; the same "
    "model may do better when it is sent again."
)
PASSED, FAILED = "Check passed", "Check failed"
_NUMBER = re.compile(r"\battempt (\d+)\b", re.IGNORECASE)


class Attempted(NamedTuple):
    """What a call leaves in the world."""

    run: RecordedAttempt


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
        self.attempts: tuple[RecordedAttempt, ...] = ()

    def take(self, model: str, seed: int) -> RecordedAttempt:
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
        """Give or take what grading needs: see Regradable."""
        return {"answer": self.answer, "success": [run.success for run in self.attempts]}

    def take_up(self, kept: Any, context: ToolContext) -> None:
        """Give or take what grading needs: see Regradable."""
        del context
        self.answer = kept["answer"]
        nothing = self.runs.run(self.task, self.runs.models[0], 0, 0, self.sheet).usage
        self.attempts = tuple(RecordedAttempt(value, nothing, 0) for value in kept["success"])

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
