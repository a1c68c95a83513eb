"""What the stages of a run pass on, and what each of them counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages.task_drafts import Shape

Progress = Callable[[str, int, int], None]
"""Function that is told the stage, and how many of how many are done."""


class StageFailed(ConfigError):
    """A stage's check still says no after the last round of repair."""


@dataclass(frozen=True)
class SynthesisSettings:
    """How a domain is made."""

    tasks: int = 450
    seed: int = 1
    rounds: int = 3
    """The most rounds of repair for each part of the spec."""
    reader_tasks: int = 40
    """How many tasks the second reader reads; 0: all."""
    reader_tries: int = 3
    oversample: float = 1.5
    """Drafts are made for so many times the tasks that are asked for, where filters may drop some."""


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


@dataclass(frozen=True)
class Making:
    """A domain in the making."""

    parts: Mapping[str, str] = field(default_factory=dict)
    """The spec's files that are written so far."""
    shapes: tuple[Shape, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of all that it holds."""
        return digest(dict(self.parts), list(self.shapes))

    @property
    def spec(self) -> specs.Spec:
        """The whole spec, once all parts are there."""
        return specs.read(self.parts, Path("spec"))

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Making:
        return cls(row["parts"], tuple(row["shapes"]))

    def with_part(self, name: str, text: str) -> Making:
        """Copy with one more file of the spec."""
        return replace(self, parts={**self.parts, name: text})


def counted(dropped: Counter[str]) -> dict[str, int]:
    """The counts as a dict, the most frequent reason first."""
    return dict(dropped.most_common())
