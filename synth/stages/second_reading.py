"""The stage in which a second reader solves the tasks from their text, and the author hears where it ends elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.proof.second_reader import Reading, SecondReader, sample
from toolorchestra.synth.proof.solvers import Arena
from toolorchestra.synth.stages.domain_folder import Seen
from toolorchestra.synth.stages.stage_values import Tally, counted

MOST_FAULTS = 6
"""Disagreements that an author is shown at a time."""
KINDS = {
    "agrees": "solved by the reader",
    "differs": "tries agree with each other, not with gold",
    "unsure": "no try ends as gold does, and they differ",
}


class ReaderSettings(NamedTuple):
    """How many tasks the second reader solves, and how often it tries each."""

    tasks: int = 0
    """How many tasks, spread evenly; 0: all."""
    tries: int = 3


async def readings(
    arena: Arena, reader: SecondReader, settings: ReaderSettings, seen: Seen | None = None
) -> list[Reading]:  # fmt: skip
    """The sampled tasks, each read several times."""
    ids = sample(list(arena.domain.tasks), settings.tasks)
    made = []
    for number, task_id in enumerate(ids, 1):
        made.append(await reader.read(arena, task_id))
        if seen is not None:
            seen(number, len(ids))
    return made


def faults(made: Sequence[Reading], known: Collection[str]) -> list[Fault]:
    """One for each intent that is suspected, with the transcript: those where the tries agree with each other first. An
    intent of a task that was solved elsewhere is suspected less than others of the same task."""
    cleared = {name for one in made if one.kind == "agrees" for name in one.intents}
    found: dict[str, Fault] = {}
    for one in sorted((one for one in made if one.kind != "agrees"), key=lambda one: (one.kind, len(one.intents))):
        named = [name for name in one.intents if name in known]  # not what a model added to one task
        suspects = [name for name in named if name not in cleared] or named
        for name in suspects:
            text = f"{one.text()}\nThe reader's conversation:\n{one.shown.transcript}"
            found.setdefault(name, Fault("second reader", text, name))
    return list(found.values())[:MOST_FAULTS]


def tally(made: Sequence[Reading], rounds: int = 0) -> Tally:
    """For the report: how many tasks agree, and every disagreement with its transcript."""
    kinds = Counter(KINDS[one.kind] for one in made)
    notes = [f"{one.text()}\n{one.shown.transcript}" for one in made if one.kind != "agrees"]
    head = f"{len(made)} tasks read, {sum(one.solved for one in made)} of {sum(one.tries for one in made)} tries solved"
    dropped = counted(Counter({kind: n for kind, n in kinds.items() if kind != KINDS["agrees"]}))
    return Tally("reader", kinds[KINDS["agrees"]], rounds, dropped, {}, (head, *notes))
