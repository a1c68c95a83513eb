"""A scripted author in a model's place: it answers each stage from a spec that is at hand, with slips where told.

It stands in where no model can be reached: in tests of the whole path, and in the recorded cassette. What it writes was
written by a person; nothing about a real model follows from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolorchestra.envs.models import ChatRequest, ScriptedModel
from toolorchestra.synth.authors import PART_OF
from toolorchestra.synth.formats import spec as specs

NAME = "standin"
_KEYS = {"schema": "schema_sql", "policy": "policy", "tools": "tools", "intents": "intents"}
_STAGE = re.compile(r"^Stage: (.+)$", re.MULTILINE)
_BATCH = re.compile(r"this is batch (\d+) of (\d+)")
Slip = Callable[[str], str]
"""Spoils an answer."""


def stage_of(request: ChatRequest) -> str:
    """Which stage a request is for."""
    found = _STAGE.search(str(request.messages[1]["content"]))
    return found[1] if found else ""


class ScriptedParts:
    """Answers requests for the parts of one spec."""

    def __init__(
        self, texts: Mapping[str, str], slips: Mapping[str, Slip] | None = None, *, always: bool = False
    ) -> None:
        self.texts = texts
        self.slips = slips or {}
        """Stage -> what is done to the first answer, or with `always` to every answer."""
        self.always = always

    def __call__(self, request: ChatRequest) -> str:
        stage = stage_of(request)
        if stage.startswith("doubt"):
            return json.dumps({"verdict": "yes", "reasons": []})
        if stage == "evolve":
            return json.dumps({"intents": self._harder()}, ensure_ascii=False)
        told = json.dumps(self._value(stage, request), ensure_ascii=False)
        first = len(request.messages) == 2
        return self.slips[stage](told) if stage in self.slips and (first or self.always) else told

    def _value(self, stage: str, request: ChatRequest) -> Any:
        text = self.texts[PART_OF[stage]]
        value = plain(text) if PART_OF[stage].endswith(".yaml") else text
        if stage == "intents" and (batch := _BATCH.search(str(request.messages[1]["content"]))):
            number, of = int(batch[1]), int(batch[2])
            value = value[number - 1 :: of]
        return {_KEYS[stage]: value} if stage in _KEYS else value

    def _harder(self) -> list[Any]:
        """Two intents of each pair joined into one, where both are served: more gold calls, the same person."""
        entries = [e for e in plain(self.texts["intents.yaml"]) if e.get("ending", "serve") == "serve"]
        made: list[Any] = []
        for entry in entries:
            if entry.get("public") or len(made) == 4:
                continue
            again = {**entry, "intent": f"{entry['intent']}_checked", "actions": [*entry["actions"]]}
            again["say"] = [f"Look at everything first, then do this: {say}" for say in entry["say"]]
            again["actions"] = [entry["actions"][0], *entry["actions"]]
            made.append(again)
        return made


def plain(text: str) -> Any:
    """YAML as JSON has it."""
    return json.loads(json.dumps(specs.parsed(text, Path("spec")), ensure_ascii=False))


def model(name: str, slips: Mapping[str, Slip] | None = None) -> ScriptedModel:
    """The stand-in for a shipped spec, or one at a path."""
    spec = specs.load(name)
    return ScriptedModel(ScriptedParts(specs.texts(spec.folder), slips), seconds=1.0)


# -- slips ---------------------------------------------------------------------------------------------------------


def remarks(text: str) -> str:
    """A slip: puts remarks before and after the JSON of an answer."""
    return f"Sure, here is what you asked for:\n{text}\nLet me know if it fits."


def cut(text: str) -> str:
    """Breaks off in the middle."""
    return text[: len(text) // 2]


def misspelt(text: str) -> str:
    """SQL that does not compile."""
    return text.replace("SELECT", "SELEKT").replace("CREATE TABLE", "CREATE TABEL")


USUAL: Mapping[str, Slip] = {"schema": misspelt, "tools": remarks, "policy": cut}
"""What goes wrong in the recorded run."""
