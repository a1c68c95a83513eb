"""The author of a spec that is at hand: it gives each part as it stands. What is wrong, a person has to mend."""

from __future__ import annotations

from collections.abc import Mapping

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.authors import PART_OF, PartRequest
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.formats.spec import Spec


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
