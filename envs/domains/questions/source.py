"""What question sources share: splits that cannot overlap, tool configurations, variants, backends, real data sets."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from toolorchestra.envs.base.errors import NOT_NEGATIVE, ConfigError, no_such, require
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.questions import datasets
from toolorchestra.envs.domains.questions.judge import Judge
from toolorchestra.envs.domains.questions.world import UNKNOWN, QaWorld
from toolorchestra.envs.domains.source import SPLITS, Scene, split_of
from toolorchestra.envs.models import ChatModel, simulated
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.retrieval import Retriever
from toolorchestra.envs.sandbox.arithmetic import ArithmeticInterpreter
from toolorchestra.envs.tools import Toolbox, tool_config
from toolorchestra.envs.tools.assemble import Backends, assemble
from toolorchestra.envs.tools.backends import Backing, backing
from toolorchestra.envs.tools.search import SearchSettings

TASKS_PER_SPLIT = 1_000_000
ASKABLE = 200
"""Test questions that may be asked of simulated experts."""
_TRIES = 1000
_MOST_BOXES = 32
_MOST_SHARED = 64
"""Tasks whose question and tools are kept for siblings: a few steps' groups."""
_SEARCHING = ("search", "local_search", "web_search")


class _Shared(NamedTuple):
    """What every episode of one task and seed has alike, and may share since none of it changes."""

    asked: PriceSheet
    """Held so that its identity, which is part of the key, stays taken."""
    question: Question
    priced: PriceSheet
    toolbox: Toolbox
    ending: str
    """The tool of kind `answer`; "" without one: then a message answers."""


@dataclass(eq=False)
class QaSource:
    """A source of questions: generated ones, or with `dataset` real ones. A subclass says how one is generated and what
    can be searched."""

    tools: str | Path | tool_config.ToolConfig = "paper"
    """The tools that there are: "paper" (`search`, `enhance_reasoning`, `answer`), "plain" (`web_search`,
    `local_search`, `python`, `ask`, `submit`), or a tool configuration of your own as a JSON file or a ToolConfig."""
    diversify: tool_config.Half | None = None
    """Draw tools, aliases and prices anew for each task: from "train", "validation" or "heldout", which share none."""
    vary: Sequence[str] = tool_config.VARIED
    """What `diversify` draws anew for each task: tools, aliases, prices."""
    style: Literal["full", "brief"] = "full"
    """How tools are described. "brief": aliases with price and latency alone, for small models."""
    shown_characters: int = 600
    """Characters of a document that the agent sees; 0 shows titles alone. Experts see more."""
    backends: str | Path | Backing | ChatModel | None = None
    """A file of real backends, or what `backing.read` and `Backing` made of one; None: simulated ones."""
    dataset: str | datasets.Dataset | None = None
    """A real question set instead of the generated questions."""
    experts: str | Path = simulated.DEFAULT
    """How simulated experts behave: "2026-11", or a file of your own (docs/calibrate.md)."""

    name: str = field(default="qa", init=False)
    splits: Sequence[str] = field(default=SPLITS, init=False)
    embedded_name: ClassVar[str] = "qa-sim"
    real_name: ClassVar[str] = "qa"

    def __post_init__(self) -> None:
        tool_config.check_half(self.diversify)
        require(self, NOT_NEGATIVE, "shown_characters")
        if isinstance(self.vary, str) or not isinstance(self.vary, Collection):
            raise ConfigError(f"vary is a list of {', '.join(tool_config.VARIED)}, got {self.vary!r:.60}")
        for name in self.vary:
            if name not in tool_config.VARIED:
                raise ConfigError(no_such("variation", name, tool_config.VARIED))
        if self.style not in ("full", "brief"):
            raise ConfigError(no_such("style", self.style, ("full", "brief")))
        self.vary = tuple(self.vary)
        self.config = replace(tool_config.load(self.tools), style=self.style)
        self.backing = backing(self.backends) if self.backends is not None else None
        self.rows = _LoadedSet(self.load_questions(self.dataset)) if self.dataset is not None else None
        if self.rows:
            self._refuse_embedded_search()
        self.name = self.real_name if self.rows else self.embedded_name
        self.splits = (*SPLITS, datasets.ALL) if self.rows else SPLITS
        search = SearchSettings(shown_characters=self.shown_characters)
        self.skills = simulated.load_experts(self.experts)
        self.experts_simulated = self.backing is None or self.backing.simulates(self.config.models)
        if self.experts_simulated:
            self._refuse_unknown_models()
        embedded = Backends(simulated.SimulatedModels(self.skills), self.retriever(), ArithmeticInterpreter(), search)
        self.behind = self.backing.over(embedded, self.config.models) if self.backing else embedded
        self.judge = Judge(self.behind.models, self.behind.judges) if self.behind.judges else None
        self._boxes: dict[tuple[int, tuple[str, ...] | None], tuple[PriceSheet, Toolbox]] = {}
        self._shared: dict[tuple[str, int, int, tuple[str, ...] | None], _Shared] = {}

    def _refuse_unknown_models(self) -> None:
        """Nothing can answer for a model that neither is simulated nor has an endpoint."""
        for model in self.config.models:
            if model not in self.skills:
                raise ConfigError(
                    f"tool configuration {self.config.name!r}: {no_such('simulated model', model, self.skills)} Give "
                    "it a row in a file of your own, experts=FILE, or an endpoint, backends=FILE"
                )

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows of the data set nobody is asked, by why."""
        return self.rows.loaded.left_out if self.rows is not None else {}

    @property
    def idle_searches(self) -> list[str]:
        """Tools whose search nobody's answer depends on: a data set does not say what has to be found, so simulated
        experts answer its questions without."""
        return searching(self.config) if self.rows is not None and self.experts_simulated else []

    def _refuse_embedded_search(self) -> None:
        """Real questions cannot be looked up in an invented encyclopaedia, so an index has to be named."""
        searches = searching(self.config)
        named = self.backing is not None and (self.backing.wanted.names_search or self.backing.wanted.mode == "replay")
        if searches and not named:
            raise ConfigError(
                f"real questions need something real to search in for the tools {searches}: give backends=FILE whose "
                'table [retrieval] has index = "FOLDER" (`toolorchestra index build` makes one) or web = true, or '
                'take tools without search; index = "embedded" searches in the invented texts',
                command_line="--backends index=FOLDER, or web=true",
            )

    def load_questions(self, wanted: str | datasets.Dataset) -> datasets.Loaded:
        """The questions of a data set; those with a picture where all models that may be asked take some."""
        spec = datasets.Dataset(wanted) if isinstance(wanted, str) else wanted
        return datasets.load(replace(spec, images="take") if self.takes_images and spec.images == "skip" else spec)

    @cached_property
    def takes_images(self) -> bool:
        """Whether every model that the backends file names, or the tools offer, is shown pictures: all but judges."""
        named = self.backing.wanted if self.backing else None
        if named is None or named.endpoints is None:
            return False
        asked = {*self.config.models, *named.endpoints.models}.difference(named.judges)
        return named.endpoints.take_images(asked)

    def generate(self, rng: random.Random) -> Question:
        """A new question with its answer, drawn from this generator alone. Each source says how."""
        raise NotImplementedError

    def retriever(self) -> Retriever:
        """What its questions can be looked up in."""
        raise NotImplementedError

    def draw(self, split: str, rng: random.Random) -> str:
        if self.rows is not None:
            return f"{self.name}/{split}/{rng.choice(self.rows.of(split))}"
        return f"{self.name}/{split}/{rng.randrange(TASKS_PER_SPLIT)}"

    def ids(self, split: str) -> list[str]:
        """The task ids of a real split, in the set's order."""
        if self.rows is None:
            raise ConfigError(f"{self.name} generates its questions without end; draw them, or name a dataset")
        return [f"{self.name}/{split}/{key}" for key in self.rows.of(split)]

    def task_ids(self, split: str) -> Sequence[str]:
        """List a split's tasks."""
        return self.ids(split)

    def question(self, task_id: str) -> Question:
        """The question of an id such as `hle-sim/train/123`, or of a real one such as `frames/all/ID`."""
        name, _, rest = task_id.partition("/")
        split, _, number = rest.partition("/")
        if self.rows is not None:
            found = self.rows.loaded.questions.get(number)
            if name != self.name or found is None or split not in (datasets.ALL, split_of(found.text)):
                raise ConfigError(f"no task {task_id!r} in {self.rows.loaded.where}; ids are {self.name}/SPLIT/ROW-ID")
            return found
        if name != self.name or split not in self.splits or not number.isdecimal() or int(number) >= TASKS_PER_SPLIT:
            form = f"{self.name}/SPLIT/N with SPLIT of {', '.join(self.splits)} and N from 0 to {TASKS_PER_SPLIT - 1}"
            raise ConfigError(f"no task {task_id!r}; ids are {form}")
        rng = random.Random(f"{self.name}/{split}/{int(number)}")
        for _ in range(_TRIES):
            question = self.generate(rng)
            if split_of(question.text) == split:
                return question
        raise RuntimeError(f"no question of split {split!r} in {_TRIES} tries: the generator repeats itself")

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """A fresh world over what the siblings of a group share: the question, its prices and its tools."""
        key = (task_id, seed, id(sheet), tuple(tools) if tools else None)
        shared = self._shared.get(key)
        if shared is None:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            shared = self._shared[key] = self._share(self.question(task_id), seed, sheet, tools)
        public = {"task_id": task_id, "split": task_id.split("/")[1], "subject": shared.question.subject}
        return self._opened(shared, public)

    def _opened(self, shared: _Shared, public: Mapping[str, Any]) -> Scene:
        ending = shared.ending
        world = QaWorld(
            shared.question,
            shared.toolbox,
            message_answers=not ending,
            ending=ending,
            judge=self.judge,
            skills=self.skills,
        )
        return Scene(world, shared.priced, public)

    def asked(self, question: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        """Open what somebody asks a served policy (Asks). Simulated experts know questions of the source alone."""
        if not isinstance(self.behind.models, simulated.SimulatedModels):
            made = Question(question, UNKNOWN, "asked", "knowledge", 0.0)
            return self._opened(self._share(made, seed, sheet, tools), {"asked": question})
        if (task_id := self.askable.get(question)) is None:
            shown = next(iter(self.askable))
            raise ConfigError(
                f"the experts are simulated, and know {len(self.askable)} embedded questions alone, such as {shown!r}; "
                f"ask one of those, or name real models: backends=FILE. Got {question!r:.80}"
            )
        return self.open(task_id, seed, sheet, tools)

    @cached_property
    def askable(self) -> Mapping[str, str]:
        """The embedded questions that may be asked of simulated experts, with the ids of their tasks."""
        split = SPLITS[-1]
        ids = self.rows.of(split)[:ASKABLE] if self.rows is not None else range(ASKABLE)
        listed = [f"{self.name}/{split}/{key}" for key in ids]
        return {self.question(task_id).text: task_id for task_id in listed}

    def _share(self, question: Question, seed: int, asked: PriceSheet, tools: Sequence[str] | None) -> _Shared:
        sheet = self._priced(asked)
        if self.diversify:
            rng = tool_config.variation(seed)
            variant = tool_config.sample(self.config, rng, self.diversify, self.vary)
            if "prices" in self.vary:
                sheet = tool_config.sample_prices(sheet, variant.models, rng, self.diversify)
            toolbox = assemble(variant.only(tools) if tools else variant, sheet, self.behind)
        else:
            toolbox = self._toolbox(sheet, tuple(tools) if tools else None)
        ending = next((e.name for e in self.config.tools if e.kind == "answer" and e.name in toolbox), "")
        return _Shared(asked, question, sheet, toolbox, ending)

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the price that the endpoint file gives the orchestrator, if it names it, or all models."""
        endpoints = self.behind.endpoints
        if endpoints is None or not endpoints.names(orchestrator):
            return sheet
        return endpoints.priced(sheet, [orchestrator])

    def _priced(self, sheet: PriceSheet) -> PriceSheet:
        """The sheet with the endpoint file's prices; the same object each time, for the toolboxes are kept by it."""
        if self.behind.endpoints is None:
            return sheet
        if id(sheet) not in self._sheets:
            made = self.behind.priced(sheet, self.config)
            made.require_tokens(self.behind.judges, "the judge")
            self._sheets[id(sheet)] = (sheet, made)
        return self._sheets[id(sheet)][1]

    _sheets: dict[int, tuple[PriceSheet, PriceSheet]] = field(default_factory=dict, init=False)

    def _toolbox(self, sheet: PriceSheet, tools: tuple[str, ...] | None) -> Toolbox:
        # By identity, and holding the sheet: two sheets may have one name and different prices.
        key = (id(sheet), tools)
        if key not in self._boxes:
            if len(self._boxes) >= _MOST_BOXES:
                self._boxes.clear()
            chosen = self.config.only(tools) if tools else self.config
            self._boxes[key] = (sheet, assemble(chosen, sheet, self.behind))
        return self._boxes[key][1]


def searching(config: tool_config.ToolConfig) -> list[str]:
    """The names of the tools that search."""
    return [entry.name for entry in config.tools if entry.kind in _SEARCHING]


class _LoadedSet:
    """A loaded set by split: `all`, and the hashed three."""

    def __init__(self, loaded: datasets.Loaded) -> None:
        self.loaded = loaded
        self._by_split: dict[str, list[str]] = {name: [] for name in (*SPLITS, datasets.ALL)}
        for key, question in loaded.questions.items():
            self._by_split[split_of(question.text)].append(key)
            self._by_split[datasets.ALL].append(key)

    def of(self, split: str) -> list[str]:
        """The rows of a split; never empty."""
        rows = self._by_split[split]
        if not rows:
            raise ConfigError(
                f'{self.loaded.where} has no row in split {split!r}; split="{datasets.ALL}" has every row'
            )
        return rows
