"""What lint checks look at: the spec's intents, filled in from its rows and played on its database."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.domain import GoldCall
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats.intent_templates import Caller, Templates, Values, action, text
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof.task_checks import DomainPlayer

SAMPLES = 8
"""Ways to fill an intent that are played."""
_HOLE = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Finding:
    """A place in a spec that its author should look at."""

    check: str
    part: str
    """The file of the spec that it is in."""
    entry: str
    """The intent, tool, column or rule that it is about."""
    seen: str
    expected: str
    certain: bool = False
    """Seen by running it; others follow from words or from what may be chance, and may be mistaken."""

    def text(self) -> str:
        """The finding in one line of text."""
        how = "" if self.certain else " (perhaps)"
        return f"{self.part}: {self.entry}: {self.check}{how}: {self.seen}; expected: {self.expected}"


@dataclass(frozen=True)
class PlayedIntent:
    """One intent filled in for one person, its gold calls made."""

    entry: Mapping[str, Any]
    person: Caller | None
    values: Values
    identified: tuple[Called, ...]
    called: tuple[Called, ...]

    @property
    def actions(self) -> list[GoldCall]:
        """All calls of the intent: those that identify the person, then the others."""
        return [one.action for one in (*self.identified, *self.called)]

    @cached_property
    def said(self) -> tuple[str, ...]:
        """Each wording, with what the user tells when asked behind it."""
        name = self.entry["intent"]
        facts = [text(fact["value"], self.values, name) for fact in self.entry.get("facts", []) if "value" in fact]
        return tuple(" ".join([text(say, self.values, name), *facts]) for say in self.entry["say"])


class Ground:
    """One spec, ready for checks."""

    def __init__(self, spec: Spec, bench: DomainPlayer, seed: int = 1) -> None:
        self.spec = spec
        self.bench = bench
        self.seed = seed
        self.templates = Templates(spec, bench.domain)
        fits = {person.key: len(self.templates.fitting(person)) for person in self.templates.people}
        self.people = sorted(self.templates.people, key=lambda person: -fits[person.key])
        """Those whom the most intents fit come first."""

    @cached_property
    def played(self) -> dict[str, list[PlayedIntent]]:
        """By intent, the ways to fill it that went through."""
        return {entry["intent"]: self._samples(entry) for entry in self.spec.intents}

    def _samples(self, entry: Mapping[str, Any]) -> list[PlayedIntent]:
        name = entry["intent"]
        rng = random.Random(f"{self.seed}/{name}/lint")
        if entry.get("public"):
            rows: list[tuple[Caller | None, Values]] = [(None, row) for row in self.templates.public[name]]
        else:
            owners = self.templates.private[name]
            rows = [(p, {**p.values, **row}) for p in self.people if p.key in owners for row in owners[p.key]]
        picked = rows[: SAMPLES // 2] + rng.sample(rows, min(len(rows), SAMPLES // 2))
        return [one for person, values in picked if (one := self.play(entry, person, values)) is not None]

    def play(self, entry: Mapping[str, Any], person: Caller | None, values: Values) -> PlayedIntent | None:
        """The intent for this person; None where a gold call is refused: no task is made of that."""
        with self.bench.session() as session:
            try:
                way = self.spec.head["user"]["ways"][0]["actions"] if person else []
                known = person.values if person else {}
                identified = [self.bench.call(session, action(row, known, [], "user.ways")) for row in way]
                called: list[Called] = []
                for row in entry["actions"]:
                    called.append(self.bench.call(session, action(row, values, called, entry["intent"])))
                made = PlayedIntent(entry, person, values, tuple(identified), tuple(called))
                assert made.said is not None
            except (ToolError, ConfigError):
                return None
        return made

    def calls(self, entry: Mapping[str, Any]) -> list[str]:
        """The tools of an intent's gold calls, in their order."""
        return [name for row in entry["actions"] for name in row]


def holes(value: Any) -> set[str]:
    """The columns that templates in a value name."""
    if isinstance(value, str):
        return set(_HOLE.findall(value))
    if isinstance(value, Mapping):
        return {name for part in value.values() for name in holes(part)}
    if isinstance(value, Sequence):
        return {name for part in value for name in holes(part)}
    return set()


def stems(said: str) -> set[str]:
    """The words of a text, cut to what they share with their other forms."""
    return {stem(word) for word in _WORD.findall(said.lower().replace("'s", ""))}


def stem(word: str) -> str:
    """A word without its ending: bookings, booked and booking are one."""
    for ending in ("ings", "ing", "ies", "ied", "ed", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
