"""What the stages of a run pass on, and what each of them counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages.task_drafts import Shape
from toolorchestra.synth.stages.task_filters import Band
from toolorchestra.synth.storage.stage_store import key

Progress = Callable[[str, int, int], None]
"""Told the stage, and how many of how many are done."""


class StageFailed(ConfigError):
    """A stage's check still says no after the last round of repair."""


@dataclass(frozen=True)
class SynthesisSettings:
    """How a domain is made."""

    tasks: int = 450
    seed: int = 1
    evolve: int = 0
    """Rounds in which tasks are made harder."""
    solvers: tuple[str, ...] = ()
    """Scripted solvers for pass@k; none: tasks are not tried."""
    band: Band = field(default_factory=Band)
    sift: bool = False
    """Whether near-duplicates and tasks that a trivial policy solves are dropped; pass@k implies it."""
    costs: bool = True
    """Whether each task's cheapest known solution and what graded solvers pass are stored."""
    variants: int = 0
    """How many variants each task has: tool configuration, price schedule, alias mapping, preference."""
    rounds: int = 3
    """The most rounds of repair for each part of the spec."""
    proposed_rows: int = 0
    """Records of each table that a model proposes."""
    tool_drafts: int = 1
    """Drafts of the tools that are merged."""
    diverse: bool = False
    """Whether prompts have seeds of diversity."""
    evolve_tasks: int = 0
    """Rounds in which a model adds a harder request to single tasks."""
    reword: bool = False
    """Whether a model words the tasks anew."""
    reader: str = ""
    """The second reader's model."""
    reader_tasks: int = 0
    """How many tasks it reads; 0: all."""
    reader_tries: int = 3
    oversample: float = 1.5
    """Drafts are made for so many times the tasks that are asked for, where filters may drop some."""

    @property
    def filtered(self) -> bool:
        """Whether the settings switch on any filter of tasks."""
        return self.sift or bool(self.solvers)


@dataclass(frozen=True)
class Tally:
    """What a stage kept, what it dropped and why."""

    stage: str
    kept: int = 0
    rounds: int = 0
    """Rounds of repair that it took."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    """The first that was dropped for each reason."""
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Tally:
        return cls(**{**row, "notes": tuple(row["notes"])})

    def row(self) -> dict[str, Any]:
        """The tally as a dict of plain values, to be written as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Making:
    """A domain in the making."""

    parts: Mapping[str, str] = field(default_factory=dict)
    """The spec's files that are written so far."""
    shapes: tuple[Shape, ...] = ()
    passes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Task -> solver -> tries passed."""

    @property
    def digest(self) -> str:
        """A hash of all that it holds."""
        return key(dict(self.parts), list(self.shapes), {k: dict(v) for k, v in self.passes.items()})

    @property
    def spec(self) -> specs.Spec:
        """The whole spec, once all parts are there."""
        return specs.read(self.parts, Path("spec"))

    def row(self) -> dict[str, Any]:
        """The same as a dict of plain values, to be written as JSON."""
        return {"parts": dict(self.parts), "shapes": list(self.shapes), "passes": dict(self.passes)}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Making:
        return cls(row["parts"], tuple(row["shapes"]), row["passes"])

    def with_part(self, name: str, text: str) -> Making:
        """With one more file of the spec."""
        return replace(self, parts={**self.parts, name: text})


def counted(dropped: Counter[str]) -> dict[str, int]:
    """The counts as a dict, the most frequent reason first."""
    return dict(dropped.most_common())
