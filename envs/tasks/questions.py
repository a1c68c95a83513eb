"""What question sources share: splits that cannot overlap, tool configurations, variants, simulated backends."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from toolorchestra.envs.errors import ConfigError, no_such
from toolorchestra.envs.models.simulated import SimulatedModels
from toolorchestra.envs.prices import PriceSheet
from toolorchestra.envs.retrieval import Retriever
from toolorchestra.envs.sandbox.arithmetic import ArithmeticInterpreter
from toolorchestra.envs.tasks import Scene
from toolorchestra.envs.tools import Toolbox, config
from toolorchestra.envs.tools.assemble import Backends, assemble
from toolorchestra.envs.tools.search import SearchSettings
from toolorchestra.envs.types import Question
from toolorchestra.envs.worlds.qa import QaWorld

SPLITS = ("train", "validation", "test")
TASKS_PER_SPLIT = 1_000_000
_SHARES = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}
"""Which hashes of a question's text belong to which split, in per cent: no question can be in two."""
_TRIES = 1000
_MOST_BOXES = 32


class QaSource:
    """A source of embedded questions. A subclass says how one is generated and what can be searched."""

    name = "qa"
    splits: Sequence[str] = SPLITS

    def __init__(
        self,
        tools: str | config.ToolConfig = "paper",
        diversify: Literal["train", "heldout"] | None = None,
        vary: Sequence[str] = config.VARIED,
        style: Literal["full", "brief"] = "full",
        top_k: int = 5,
        shown_characters: int = 600,
    ) -> None:
        if diversify not in (None, "train", "heldout"):
            raise ConfigError(no_such("diversify", diversify, ("train", "heldout", "None")))
        for name in vary:
            if name not in config.VARIED:
                raise ConfigError(no_such("variation", name, config.VARIED))
        if style not in ("full", "brief"):
            raise ConfigError(no_such("style", style, ("full", "brief")))
        self.config = replace(config.load(tools), style=style)
        self.diversify = diversify
        self.vary = tuple(vary)
        search = SearchSettings(top_k, shown_characters)
        self.backends = Backends(SimulatedModels(), self.retriever(), ArithmeticInterpreter(), search)
        self._boxes: dict[tuple[int, tuple[str, ...] | None], tuple[PriceSheet, Toolbox]] = {}

    def generate(self, rng: random.Random) -> Question:
        """One question."""
        raise NotImplementedError

    def retriever(self) -> Retriever:
        """What its questions can be looked up in."""
        raise NotImplementedError

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{self.name}/{split}/{rng.randrange(TASKS_PER_SPLIT)}"

    def question(self, task_id: str) -> Question:
        """The question of an id such as `hle-sim/train/123`."""
        name, _, rest = task_id.partition("/")
        split, _, number = rest.partition("/")
        if name != self.name or split not in self.splits or not number.isdecimal() or int(number) >= TASKS_PER_SPLIT:
            form = f"{self.name}/SPLIT/N with SPLIT of {', '.join(self.splits)} and N from 0 to {TASKS_PER_SPLIT - 1}"
            raise ConfigError(f"no task {task_id!r}; ids are {form}")
        rng = random.Random(f"{self.name}/{split}/{int(number)}")
        for _ in range(_TRIES):
            question = self.generate(rng)
            if split_of(question) == split:
                return question
        raise RuntimeError(f"no question of split {split!r} in {_TRIES} tries: the generator repeats itself")

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        question = self.question(task_id)
        if self.diversify:
            rng = random.Random(seed ^ 0xD1FF)
            variant = config.sample(self.config, rng, self.diversify, self.vary)
            if "prices" in self.vary:
                sheet = config.sample_prices(sheet, variant.models, rng, self.diversify)
            toolbox = assemble(variant.only(tools) if tools else variant, sheet, self.backends)
        else:
            toolbox = self._toolbox(sheet, tuple(tools) if tools else None)
        ends_by_tool = any(e.kind == "answer" and e.name in toolbox for e in self.config.tools)
        world = QaWorld(question, toolbox, message_answers=not ends_by_tool)
        public = {"task_id": task_id, "split": task_id.split("/")[1], "subject": question.subject}
        return Scene(world, sheet, public)

    def _toolbox(self, sheet: PriceSheet, tools: tuple[str, ...] | None) -> Toolbox:
        # By identity, and holding the sheet: two sheets may have one name and different prices.
        key = (id(sheet), tools)
        if key not in self._boxes:
            if len(self._boxes) >= _MOST_BOXES:
                self._boxes.clear()
            chosen = self.config.only(tools) if tools else self.config
            self._boxes[key] = (sheet, assemble(chosen, sheet, self.backends))
        return self._boxes[key][1]


def split_of(question: Question) -> str:
    """The split that a question's own text puts it in."""
    share = int.from_bytes(hashlib.blake2b(question.text.encode(), digest_size=4).digest(), "big") % 100
    return next(split for split, part in _SHARES.items() if share in part)
