"""The author of the parts of a spec, where no person wrote them: a model, whose answers are not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolorchestra.synth.formats.part_checks import Fault

PART_OF = {
    "subjects": "domain.yaml",
    "schema": "schema.sql",
    "rows": "rows.yaml",
    "tools": "tools.yaml",
    "policy": "policy.md",
    "intents": "intents.yaml",
}
"""Stage -> the file of the spec that it writes, in the order of writing."""
KEYS = {"schema": "schema_sql", "policy": "policy", "tools": "tools", "intents": "intents", "reword": "wordings"}
"""Stages whose part is one text or one list, and its key in a model's answer."""


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
