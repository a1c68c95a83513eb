"""ToolOrchestra/Recorded-v0: routing over outcomes that were recorded with real models.

    gym.make("ToolOrchestra/Recorded-v0", rows="outcomes.csv", models=["gpt-5", "gpt-5-mini"], prices="mine.json")

Each task is sent to a model, and takes one of that model's recorded runs: its success, tokens or dollars, and seconds.
With attempts="one" the first choice ends the task. With attempts="checked" a check says whether the run succeeded (as
tests do for code), and another may be sent. Splits are by folds of the tasks, so that every task can be held out once.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.domains.questions.datasets import DIFFICULTY
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.recorded.world import RECORDED_DOLLARS, RecordedRuns, RecordedWorld, hand_in, send
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.money.prices import PriceSheet, brief_offer, offer_line
from toolorchestra.envs.outcomes.table import Outcomes, read_table
from toolorchestra.envs.tools import Offer, Tool, Toolbox
from toolorchestra.envs.tools.tool_config import ToolConfig, ToolEntry

FOLDS = 5
SPLITS = ("train", "validation", "test", "all")
_MOST_BOXES = 32


@dataclass(eq=False)
class RecordedSource(QaSource):
    """The source. Of the arguments of question sources it takes `style` alone."""

    rows: Any = None
    """A table of outcomes (.csv, .tsv, .jsonl, gzipped or not), or an Outcomes, such as `read` of
    toolorchestra.envs.outcomes.recording_forms makes of other recordings."""
    models: Sequence[str] = ()
    """The models that are offered, in this order; all without it."""
    attempts: Literal["one", "checked"] = "one"
    """"one": the first choice ends the task. "checked": a check tells whether it succeeded, and others may be sent."""
    fold: int = 0
    """The test split: this fifth of the tasks. Validation is the next one, and training the others."""

    def __post_init__(self) -> None:
        if self.rows is None:
            raise ConfigError(
                'Recorded-v0 needs recorded outcomes: gym.make(..., rows="outcomes.csv")',
                command_line="--env Recorded-v0 rows=outcomes.csv",
            )
        if self.fold not in range(FOLDS):
            raise ConfigError(f"fold is a whole number from 0 to {FOLDS - 1}, got {self.fold!r}")
        one_of("attempts", self.attempts, ("one", "checked"))
        one_of("style", self.style, ("full", "brief"))
        if not isinstance(self.rows, Outcomes | str | Path):
            raise ConfigError(f"rows is a file of outcomes or an Outcomes, got {self.rows!r:.60}")
        table = self.rows if isinstance(self.rows, Outcomes) else read_table(self.rows)
        self.runs = RecordedRuns(table, self.models)
        self.name, self.splits = "recorded", SPLITS
        self.diversify, self.backing, self.judge, self.skills = None, None, None, {}
        self._folds = {task: _fold(task) for task in self.runs.tasks}
        self._of_split = {split: self._tasks(split) for split in SPLITS}
        self._ids = {split: [f"{self.name}/{split}/{task}" for task in self._of_split[split]] for split in SPLITS}
        for split in SPLITS:
            if not self._of_split[split]:
                raise ConfigError(f"{self.runs.where}: no task is in split {split!r}: it has too few tasks")
        self.config = self._config()
        self._sheets_of: dict[int, tuple[PriceSheet, PriceSheet, Toolbox]] = {}

    def _config(self) -> ToolConfig:
        offers = tuple(self._offer(model) for model in self.runs.models)
        if self.attempts == "one":
            entries = [ToolEntry("answer", "send", _ENDS, offers)]
        else:
            entries = [ToolEntry("ask", "send", _GOES_ON, offers)]
            entries.append(ToolEntry("submit", "submit", "Hand in an attempt, such as: attempt 2. This ends the task."))
        return ToolConfig("recorded", tuple(entries), self.style)

    def _tasks(self, split: str) -> dict[str, None]:
        """The tasks of a split, in the recording's order."""
        chosen = {"test": (self.fold,), "validation": ((self.fold + 1) % FOLDS,)}
        others = [fold for fold in range(FOLDS) if fold not in (chosen["test"] + chosen["validation"])]
        wanted = {**chosen, "train": others, "all": range(FOLDS)}[split]
        return dict.fromkeys(task for task, fold in self._folds.items() if fold in wanted)

    def _offer(self, model: str) -> Offer:
        """A model's offer, with what training's tasks tell of its time and its dollars."""
        train = list(self._of_split["train"])
        usd = self.runs.median("usd", model, train)
        note = f"about ${usd:.2g} a task" if usd else ""
        return Offer(model, model, round(self.runs.median("seconds", model, train), 1), note)

    @property
    def made_of(self) -> str:
        """What tells it from other recordings, and its train tasks from those of other folds."""
        return f"{self.runs.digest} {self.attempts} {self.fold} of {FOLDS}"

    def fold_of(self, task: str) -> int:
        """The fold that a task is in."""
        return self._folds[task]

    def ids(self, split: str) -> list[str]:
        """Every task of a split, in the recording's order."""
        return list(self._ids[split])

    def draw(self, split: str, rng: random.Random) -> str:
        return rng.choice(self._ids[split])

    def question(self, task_id: str) -> Question:
        """The task of an id such as `recorded/test/NAME`."""
        name, _, rest = task_id.partition("/")
        split, _, task = rest.partition("/")
        if name != self.name or split not in SPLITS or task not in self._of_split[split]:
            raise ConfigError(f"no task {task_id!r} in {self.runs.where}; ids are {self.name}/SPLIT/TASK")
        family = self.runs.family(task)
        return Question(f"{family}\n{self.runs.text(task)}", Answer("done"), family, "knowledge", DIFFICULTY)

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """A fresh attempt at a task."""
        del seed
        question = self.question(task_id)
        priced, toolbox = self._priced_box(sheet)
        if tools:
            toolbox = self._only(toolbox, priced, tools)
        task = task_id.split("/", 2)[2]
        world = RecordedWorld(question, toolbox, self.runs, task, priced, checked=self.attempts == "checked")
        return Scene(world, priced, {"task_id": task_id, "split": task_id.split("/")[1], "subject": question.subject})

    def _priced_box(self, sheet: PriceSheet) -> tuple[PriceSheet, Toolbox]:
        if id(sheet) not in self._sheets_of:
            if len(self._sheets_of) >= _MOST_BOXES:
                self._sheets_of.clear()
            priced = self.runs.priced(sheet)
            self._sheets_of[id(sheet)] = (sheet, priced, _toolbox(self.config, priced))
        return self._sheets_of[id(sheet)][1:]

    def _only(self, toolbox: Toolbox, sheet: PriceSheet, names: Sequence[str]) -> Toolbox:
        return (
            _toolbox(self.config.only(names), sheet) if set(names) - {t.name for t in toolbox} else toolbox.only(names)
        )

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet itself: recordings have no prices of an orchestrator."""
        del orchestrator
        return sheet


_ENDS = "Send a model to work on the task. This ends the task."
_GOES_ON = "Send a model to work on the task. A check says whether its run succeeded."


def _toolbox(config: ToolConfig, sheet: PriceSheet) -> Toolbox:
    made = []
    for entry in config.tools:
        if entry.kind == "submit":
            answer = {"type": "string", "maxLength": 200, "description": "Which attempt counts."}
            made.append(Tool("submit", entry.description, _schema({"answer": answer}), hand_in, kind="submit"))
            continue
        aliases = [offer.alias for offer in entry.offers]
        model = {"type": "string", "enum": aliases, "description": "Which model."}
        run = partial(send, ends=entry.kind == "answer")
        bills = tuple(offer.model for offer in entry.offers)
        if config.style == "brief":
            told = ";".join(brief_offer(sheet, o.alias, o.model, o.seconds) for o in entry.offers)
        else:
            told = "\n".join([entry.description, *(_offered(offer, sheet) for offer in entry.offers)])
        made.append(
            Tool(entry.name, told, _schema({"model": model}), run, bills, "model", entry.offers, False, kind=entry.kind)
        )
    return Toolbox(made)


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _offered(offer: Offer, sheet: PriceSheet) -> str:
    time = f"about {offer.seconds:g} s a task" if offer.seconds else ""
    if sheet.price(offer.model) is not RECORDED_DOLLARS:
        return offer_line(sheet, offer.alias, offer.model, "", time)
    return f"- {offer.alias}: " + "; ".join(filter(None, ("billed the dollars of its recording", offer.note, time)))


def _fold(task: str) -> int:
    return int.from_bytes(hashlib.blake2b(task.encode(), digest_size=4).digest(), "big") % FOLDS
