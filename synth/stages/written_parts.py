"""The stages that an author writes: each part is checked by running it, and sent back with what was wrong, so often."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.authors import PART_OF, PartRequest, Unusable, untrusted_answers
from toolorchestra.synth.authors.author_prompts import MOST_BEFORE
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.formats import part_checks
from toolorchestra.synth.formats.part_checks import Check, Fault
from toolorchestra.synth.formats.spec import MOST_WORDINGS, Spec, parsed
from toolorchestra.synth.stages import play_checks, spec_lint
from toolorchestra.synth.stages.limited_work import SHARED, TooMuch
from toolorchestra.synth.stages.stage_values import Making, StageFailed, SynthesisSettings, Tally, counted
from toolorchestra.synth.stages.voices import same_holes

CHECKS: Mapping[str, Check] = {
    "subjects": part_checks.subjects,
    "schema": part_checks.schema,
    "rows": part_checks.rows,
    "tools": play_checks.tools,
    "policy": play_checks.policy,
    "intents": play_checks.intents,
}
LEAST_INTENTS = 6
READER_ROUND = 500
"""Calls that follow a second reader's doubts have numbers of their own."""
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, sqlite3.Error)
CHECK_SECONDS = 60.0
"""How long the check of one part may take."""


@dataclass
class _FaultLog:
    """The faults of all rounds."""

    found: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.found[fault.reason] += 1
            self.examples.setdefault(fault.reason, fault.seen[:400])

    def tally(self, stage: str, kept: int, rounds: int, *notes: str) -> Tally:
        return Tally(stage, kept, rounds, counted(self.found), self.examples, notes)


async def write(
    stage: str, making: Making, author: LlmAuthor | Spec, settings: SynthesisSettings
) -> tuple[Making, Tally]:
    """One part. Raises StageFailed when a model's faults are not mended in the rounds there are, and ConfigError when a
    person's spec has some."""
    if isinstance(author, Spec):
        made = making.with_part(PART_OF[stage], author.parts[PART_OF[stage]])
        if faults := checked(stage, made, settings.seed):
            raise ConfigError(f"{author.folder}: {PART_OF[stage]}: {_listed(faults[:5])}")
        return made, Tally(stage, 1)
    log = _FaultLog()
    before, faults = "", list[Fault]()
    for number in range(settings.rounds + 1):
        try:
            before = await author.write(PartRequest(stage, making.parts, number, before, tuple(faults)))
        except Unusable as err:
            before, faults = err.answer[:MOST_BEFORE], [err.fault]
            log.add(faults)
            continue
        made = making.with_part(PART_OF[stage], before)
        faults = _seen(stage, made, settings.seed) or await author.doubts(made.parts)
        log.add(faults)
        if not faults:
            return made, log.tally(stage, 1, number)
        if stage == "intents" and number == settings.rounds:
            return _without(made, faults, settings, log, number)
    raise _failed(stage, faults, settings.rounds)


def checked(stage: str, made: Making, seed: int) -> list[Fault]:
    """The faults of a part, checked in the process that has limits."""
    try:
        found: list[Fault] = SHARED.run(CHECKS[stage], dict(made.parts), seed, seconds=CHECK_SECONDS)
    except TooMuch as err:
        return [Fault("too much", str(err), entry=str(err).partition("intent '")[2].partition("'")[0])]
    except ConfigError as err:
        return [Fault("invalid", str(err))]
    except _ODD as err:  # no rule here says what is wrong with it, and it is wrong all the same
        return [Fault("odd", f"{SHARED.place}: {type(err).__name__}: {err!s:.300}")]
    return found


def _seen(stage: str, made: Making, seed: int) -> list[Fault]:
    """What a model's part is sent back for: its faults, and what the lint of the whole spec is certain of. A person
    reads that in the report."""
    return checked(stage, made, seed) or (spec_lint.faults(made.parts, seed) if stage == "intents" else [])


async def reconsidered(
    making: Making, author: LlmAuthor, faults: Sequence[Fault], settings: SynthesisSettings, number: int
) -> Making | None:
    """The intents as their author writes them once it was shown what a reader made of them; None where it leaves them
    as they are, or where the new ones do not hold."""
    parts = {name: text for name, text in making.parts.items() if name != PART_OF["intents"]}
    before = making.parts[PART_OF["intents"]]
    asked = PartRequest("intents", parts, READER_ROUND + number, before[:MOST_BEFORE], tuple(faults))
    try:
        text = await author.write(asked)
    except Unusable:
        return None
    made = making.with_part(PART_OF["intents"], text)
    return None if text == before or _seen("intents", made, settings.seed) else made


REWORDED = 12
"""Requests that are said anew in one answer."""


async def reword(making: Making, model: LlmAuthor, reader: LlmAuthor) -> tuple[Making, Tally]:
    """More wordings of each request, under `more`: those that say the same values, and in which the reader sees
    the same request. Drafts do not know of them, so tasks stay as they are but for their words."""
    log, kept = _FaultLog(), 0
    entries = [dict(entry) for entry in _entries(making.parts["intents.yaml"])]
    for at in range(0, len(entries), REWORDED):
        batch = {str(entry["intent"]): entry for entry in entries[at : at + REWORDED]}
        said = {name: entry["say"] for name, entry in batch.items()}
        try:
            offered = await model.wordings(said)
        except Unusable as err:
            log.add([err.fault])
            continue
        anew = {name: _alike(says, offered.get(name, []), log) for name, says in said.items()}
        doubted = await reader.differing(said, anew) if any(anew.values()) else []
        log.add(doubted)
        other = {fault.seen for fault in doubted}
        if other - {text for texts in anew.values() for text in texts}:
            continue  # what it means is not known of any
        for name, texts in anew.items():
            batch[name]["more"] = [*batch[name].get("more", ()), *(text for text in texts if text not in other)]
            kept += len(set(texts) - other)
    made = making.with_part("intents.yaml", untrusted_answers.dumped(entries))
    return made, log.tally("reword", kept, 0)


def _alike(says: Sequence[str], offered: Sequence[str], log: _FaultLog) -> list[str]:
    """The offered wordings that say the same values as one of the request's own."""
    fit = [one for one in dict.fromkeys(offered) if one not in says]
    wrong = [one for one in fit if not any(same_holes(say, one) for say in says)]
    log.add([Fault("other values", one) for one in wrong])
    return [one for one in fit if one not in wrong][:MOST_WORDINGS]


def without_more(making: Making, intents: Collection[str]) -> Making:
    """The spec without the new wordings of some intents."""
    entries = [dict(entry) for entry in _entries(making.parts["intents.yaml"])]
    for entry in entries:
        if entry["intent"] in intents:
            entry.pop("more", None)
    return making.with_part("intents.yaml", untrusted_answers.dumped(entries))


def _listed(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{fault.reason}: {fault.seen}" for fault in faults)


def _failed(stage: str, faults: Sequence[Fault], rounds: int) -> StageFailed:
    return StageFailed(f"stage {stage}: still wrong after {rounds} rounds of repair: {_listed(faults[:3])}")


def _without(
    made: Making, faults: list[Fault], settings: SynthesisSettings, log: _FaultLog, number: int
) -> tuple[Making, Tally]:  # fmt: skip
    """The intents that are right, when the others were not mended in time."""
    dropped: list[str] = []
    while faults:
        bad = {fault.entry for fault in faults if fault.entry}
        entries = [dict(entry) for entry in _entries(made.parts["intents.yaml"])]
        kept = [entry for entry in entries if entry["intent"] not in bad]
        if not bad or len(kept) == len(entries) or len(kept) < LEAST_INTENTS:
            raise _failed("intents", faults, settings.rounds)
        dropped += sorted(bad)
        made = made.with_part("intents.yaml", untrusted_answers.dumped(kept))
        faults = _seen("intents", made, settings.seed)
        log.add(faults)
    return made, log.tally("intents", 1, number, f"intents left out: {', '.join(dropped)}")


def _entries(text: str) -> list[Any]:
    return list(parsed(text, Path("intents.yaml")))
