"""Authors of the parts of a spec: a spec that is at hand, or a model that is asked for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.formats.spec import Spec

PART_OF = {
    "subjects": "domain.yaml",
    "schema": "schema.sql",
    "rows": "rows.yaml",
    "tools": "tools.yaml",
    "policy": "policy.md",
    "intents": "intents.yaml",
}
"""Stage -> the file of the spec that it writes, in the order of writing."""


class PartRequest(NamedTuple):
    """What an author is to write."""

    stage: str
    parts: Mapping[str, str]
    """The files before it, by name."""
    number: int = 0
    """Round: 0 for the first try, then one more for each that was sent back."""
    before: str = ""
    """The last try as it came, "" for the first."""
    faults: Sequence[Fault] = ()
    """What was wrong with it."""


class Unusable(Exception):
    """An answer that is no part of a spec, with the fault that is given back to its author."""

    def __init__(self, fault: Fault, answer: str = "") -> None:
        super().__init__(fault.seen)
        self.fault = fault
        self.answer = answer


class Author(Protocol):
    """Writes one part after the other."""

    @property
    def trusted(self) -> bool:
        """Whether what it writes may use all of a spec's means: anchors, any template, any size."""
        ...

    async def write(self, asked: PartRequest) -> str:
        """A file's text. Raises Unusable."""
        ...

    async def harder(self, asked: PartRequest) -> str:
        """An intents.yaml of harder intents, made from the one among the parts. Raises Unusable."""
        ...

    async def doubts(self, parts: Mapping[str, str]) -> list[Fault]:
        """What a second reader finds contradictory or implausible in the newest part; [] where there is none."""
        ...


class GrammarAuthor:
    """An author that gives the texts of a finished spec. It repairs nothing: see write()."""

    trusted = True

    def __init__(self, spec: Spec, texts: Mapping[str, str]) -> None:
        self.spec = spec
        self.texts = texts

    async def write(self, asked: PartRequest) -> str:
        """The part, once. Raises ConfigError when it is sent back."""
        if asked.faults:
            seen = "; ".join(f"{fault.reason}: {fault.seen}" for fault in asked.faults[:5])
            raise ConfigError(f"{self.spec.folder}: {PART_OF[asked.stage]}: {seen}")
        return self.texts[PART_OF[asked.stage]]

    async def harder(self, asked: PartRequest) -> str:
        """Nothing: its tasks are made harder by joining what is there."""
        return asked.parts["intents.yaml"]

    async def doubts(self, parts: Mapping[str, str]) -> list[Fault]:
        """Returns no doubts."""
        return []
