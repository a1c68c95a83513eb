"""What a source of tasks is: splits, task ids drawn by a seed, and the world that a task opens into."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from toolorchestra.envs.base.answer_grading import final_answer, is_right
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Answer, Message, Outcome, ToolCall, Transcript
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.models import ChatModel
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Tool, Toolbox, ToolResult
from toolorchestra.envs.tools.backends import Backing, deadline
from toolorchestra.envs.tools.backends import backing as as_backing

SPLITS = ("train", "validation", "test")
SHARES: Mapping[str, range] = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}
"""The hashes of a task that belong to each split, in per cent: no task can be in two."""


def split_of(text: str) -> str:
    """The split that a task belongs to, by a hash of its own text."""
    part = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") % 100
    return next(split for split, hashes in SHARES.items() if part in hashes)


class Scene(NamedTuple):
    """A task, opened: its world, the prices that hold, and what may be said of it (nothing that helps to solve it)."""

    world: World
    sheet: PriceSheet
    public: Mapping[str, Any]


class Task(NamedTuple):
    """A question and its answer, for a source that needs no world of its own."""

    question: str
    answer: str | Answer | None
    """None: nobody knows it, and nothing is graded. Such a task is asked from outside; tasks() lists none."""


def ungraded(answer: str | None) -> Outcome:
    """The outcome where nobody knows what is right: its value is no number."""
    return Outcome(math.nan, {"answer": answer})


class TaskWorld(World):
    """The world of one Task: the question opens it, and a message or a tool's final result is the answer."""

    __slots__ = ("said", "system", "task", "toolbox")

    def __init__(self, task: Task, toolbox: Toolbox, system: str) -> None:
        self.task, self.toolbox, self.system = task, toolbox, system
        self.said = ""

    def opening(self) -> Transcript:
        """Ask the question."""
        return (Message(role="user", content=self.task.question),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        """Remember what was answered."""
        if result.final:
            self.said = result.content

    def grade(self, *, finished: bool) -> Outcome:
        """Compare what was answered with the reference, by the rules of base/answer_grading.py."""
        if self.task.answer is None:
            return ungraded(final_answer(self.said))
        wanted = self.task.answer if isinstance(self.task.answer, Answer) else Answer(self.task.answer)
        right = finished and is_right(wanted, self.said)
        return Outcome(float(right), {"answer": final_answer(self.said), "expected": wanted.text})


class TaskSource(Protocol):
    """What the drivers ask of a source. One instance serves many episodes, from several threads; it holds no episode's
    state."""

    @property
    def name(self) -> str: ...

    @property
    def splits(self) -> Sequence[str]: ...

    def draw(self, split: str, rng: random.Random) -> str:
        """The id of a task of this split."""

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """A task with fresh state. `tools` keeps only these tools. Raises ConfigError for an unknown id or tool."""


class Source:
    """A source of your own: the least that it says is `tools` and `tasks()`.

    A world of your own goes into `world()`; tasks without end go into `draw()` and `open()`."""

    name: str = ""
    """What task ids begin with; the class's own name in small letters where it says none."""
    splits: Sequence[str] = SPLITS
    tools: ClassVar[Any] = ()
    """The tools of its tasks. Their prices are written into their descriptions."""
    system: ClassVar[str] = "Solve the task with the tools. Then say the answer as <answer>...</answer>."
    """The system message of its tasks."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.name:
            cls.name = cls.__name__.lower()

    backing: Backing | None = None

    def __init__(self, backends: str | Path | Backing | ChatModel | None = None) -> None:
        """Take a file of real models, or a ChatModel of yours: for `context.ask` of its tools, and for who plays it."""
        self.backing = as_backing(backends) if backends is not None else None

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the prices that the backends file gives the orchestrator and what the tools may cost."""
        endpoints = self.backing.wanted.endpoints if self.backing is not None else None
        if endpoints is None:
            return sheet
        named = [name for name in (orchestrator, *Toolbox(self.tools).bills) if endpoints.names(name)]
        return endpoints.priced(sheet, named)

    def tasks(self) -> Iterable[Any]:
        """Every task there is: a Task each, or whatever `world()` takes. A hash of each says its split."""
        raise ConfigError(
            f"{type(self).__name__} does not list its tasks: write `def tasks(self)`, which gives a Task for each; or "
            "draw() and open(), where there is no end to them"
        )

    def world(self, task: Any, toolbox: Toolbox) -> World:
        """A task with fresh state."""
        return TaskWorld(task, toolbox, self.system)

    @cached_property
    def _listed_tasks(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """All tasks by their ids, and the ids by split."""
        found: dict[str, Any] = {}
        by_split: dict[str, list[str]] = {split: [] for split in self.splits}
        for number, task in enumerate(self.tasks()):
            split = split_of(self._said_of(task))
            found[task_id := f"{self.name}/{split}/{number}"] = task
            by_split[split].append(task_id)
        return found, by_split

    def _said_of(self, task: Any) -> str:
        """What a task's split follows from: the same in every process."""
        if isinstance(task, str):
            raise ConfigError(f"{self.name}: tasks() gives Tasks, such as Task(question, answer), got {task!r:.60}")
        if isinstance(task, Task) and task.answer is None and type(self).world is Source.world:
            raise ConfigError(
                f"{self.name}: the task {task.question!r:.60} has no answer, and nothing could be graded; give it as "
                "Task(question, answer), or write `def world(self, task, toolbox)`, whose World grades without one"
            )
        said = task.question if isinstance(task, Task) else repr(task)
        if " at 0x" in said:
            raise ConfigError(
                f"{self.name}: a task's split follows from its repr(), and {said:.60} differs in every process; make "
                "tasks Task(question, answer), tuples or dataclasses"
            )
        return said

    def task_ids(self, split: str) -> Sequence[str]:
        """Every task of a split, in an order that stays. Raises ConfigError where there is no end to them."""
        return self._listed_tasks[1][split]

    def draw(self, split: str, rng: random.Random) -> str:
        """The id of a task of this split."""
        if not (found := self.task_ids(split)):
            raise ConfigError(
                f"none of the {len(self._listed_tasks[0])} tasks of {self.name} is in split {split!r}: a hash shares "
                "them out, 80 to 10 to 10; give it more tasks, or play another split"
            )
        return rng.choice(found)

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """A task with fresh state. `tools` keeps only these tools. Raises ConfigError for an unknown id or tool."""
        del seed
        found = self._listed_tasks[0]
        if task_id not in found:
            shown = next(iter(found), f"{self.name}/SPLIT/NUMBER")
            raise ConfigError(f"no task {task_id!r}; there are {len(found)}, such as {shown}")
        toolbox = self._shared_toolbox(sheet, tuple(tools) if tools is not None else None)
        return Scene(self.world(found[task_id], toolbox), sheet, {"task_id": task_id, "split": task_id.split("/")[-2]})

    def asked(self, question: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """Open what somebody asks a served policy (Asks)."""
        del seed
        toolbox = self._shared_toolbox(sheet, tuple(tools) if tools is not None else None)
        return Scene(self.world(self.task_of(question), toolbox), sheet, {"asked": question})

    def task_of(self, question: str) -> Any:
        """The task that a question from outside is, for `world()`: nobody knows its answer."""
        return Task(question, None)

    def _shared_toolbox(self, sheet: PriceSheet, names: tuple[str, ...] | None) -> Toolbox:
        """The tools with the sheet's prices; episodes of one sheet share one."""
        key = (id(sheet), names)
        made: dict[Any, tuple[PriceSheet, Toolbox]] = self.__dict__.setdefault("_boxes_of_tools", {})
        if key not in made:
            if len(made) >= _MOST_BOXES:
                made.clear()
            kept = Toolbox(map(self._patient, Toolbox(self.tools).only(names)))
            made[key] = (sheet, kept.priced(sheet))  # held, so that its id stays taken
        return made[key][1]

    def _patient(self, tool: Tool) -> Tool:
        """The tool; where it may ask a model, with as long as the model's retries may take."""
        if not (tool.suspends and tool.bills and models_of(self)):
            return tool
        return replace(
            tool, deadline_seconds=max(tool.deadline_seconds, deadline(self.backing and self.backing.models))
        )


def models_of(source: Any) -> Callable[[], ChatModel] | None:
    """What gives the models behind a source: those of its backends, with what was put around them."""
    if getattr(source, "behind", None) is not None:
        return lambda: source.behind.models
    backing = getattr(source, "backing", None)
    return (lambda: backing.models) if backing is not None and backing.names_models else None


_MOST_BOXES = 32
"""Sets of tools that a source keeps: a sheet of its own for each task would otherwise pile them up."""


@runtime_checkable
class Asks(Protocol):
    """A source whose tools can work on a question from outside."""

    def asked(self, question: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """What somebody asks, opened as a task is. Nobody knows its answer, so its outcome is no number."""


@runtime_checkable
class PricesOrchestrators(Protocol):
    """A source over real models, some of which have prices of their own."""

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the orchestrator's own price, where its backends have one; else the same sheet. The same
        objects give the same object."""
