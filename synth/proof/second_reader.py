"""A second reader: a model that solves tasks from the text alone, several times, through the environment.

It sees what an agent under test sees: the policy, the tools and the conversation. Where none of its tries ends as the
gold path does, either the task is hard, or its words mean something else than its gold path. If the tries agree with
each other and not with gold, the second is likely. The author is shown the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.domain import GoldCall
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.proof.solvers import Arena, Solver

MOST_SHOWN = 6_000
"""Characters of a transcript that are kept."""
MOST_FAULTS = 6
"""Disagreements that an author is shown at a time."""
Kind = Literal["agrees", "differs", "unsure"]
"""Some try ends as gold does; no try does, and all made the same changes; no try does, and they differ."""
KINDS = {
    "agrees": "solved by the reader",
    "differs": "tries agree with each other, not with gold",
    "unsure": "no try ends as gold does, and they differ",
}


@dataclass(frozen=True)
class Reading:
    """All tries at one task, beside its gold path."""

    task_id: str
    intents: tuple[str, ...]
    kind: Kind
    solved: int
    tries: int
    gold: tuple[str, ...]
    """The changes that the gold path makes, as `tool(arguments)`."""
    changed: tuple[str, ...]
    """Those of the first try that is not solved, or of the first."""
    missing: tuple[str, ...]
    """What gold has told or touched, and that try has not."""
    transcript: str
    """That try's."""

    def text(self) -> str:
        """The reading in a sentence or two, and the transcript."""
        did, gold = ("; ".join(calls) or "nothing" for calls in (self.changed, self.gold))
        lacks = f"; not told or looked at: {', '.join(self.missing)}" if self.missing else ""
        agreed = ", and the tries agree with each other" if self.kind == "differs" and self.tries > 1 else ""
        return (
            f"task {self.task_id} ({', '.join(self.intents)}): {self.solved} of {self.tries} tries end as gold does"
            f"{agreed}. Gold changes: {gold}. The reader changed: {did}{lacks}\nThe reader's"
            f" conversation:\n{self.transcript}"
        )


async def readings(
    arena: Arena, reader: Solver, count: int, tries: int, seen: Callable[[int, int], None] | None = None
) -> list[Reading]:  # fmt: skip
    """So many tasks, spread evenly (0: all), each read several times. Raises SpendCapReached."""
    ids, made = list(arena.domain.tasks), []
    if 0 < count < len(ids):
        ids = [ids[place * len(ids) // count] for place in range(count)]
    for number, task_id in enumerate(ids, 1):
        made.append(await _reading(arena, reader, task_id, tries))
        if seen is not None:
            seen(number, len(ids))
    return made


async def _reading(arena: Arena, reader: Solver, task_id: str, tries: int) -> Reading:
    task = arena.domain.tasks[task_id]
    made = [await arena.play(reader, task_id, seed) for seed in range(tries)]
    writes = [_written(arena, one.calls) for one in made]
    solved = sum(one.solved for one in made)
    kind: Kind = "agrees" if solved else "differs" if len(set(writes)) == 1 else "unsure"
    shown = next((number for number, one in enumerate(made) if not one.solved), 0)
    return Reading(
        task_id, tuple(request.intent for request in task.requests), kind, solved, tries,
        _written(arena, task.actions), writes[shown], made[shown].missing, _transcript(made[shown].messages),
    )  # fmt: skip


def _written(arena: Arena, calls: Sequence[GoldCall]) -> tuple[str, ...]:
    """The calls that change something, in an order that does not depend on theirs."""
    shown = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False, sort_keys=True)})"
        for call in calls
        if arena.domain.tools[call.name].kind == "write"
    ]
    return tuple(sorted(shown))


def _transcript(messages: Sequence[Message]) -> str:
    """What was said and called, without the policy, from the end where it is long."""
    text = "\n".join(f"{m['role']}: {m['content']}" for m in messages if m["role"] != "system")
    return text if len(text) <= MOST_SHOWN else f"[...]{text[-MOST_SHOWN:]}"


def faults(made: Sequence[Reading], known: Collection[str]) -> list[Fault]:
    """One for each intent that is suspected, with the transcript: those where the tries agree with each other first. An
    intent of a task that was solved elsewhere is suspected less than others of the same task."""
    cleared = {name for one in made if one.kind == "agrees" for name in one.intents}
    found: dict[str, Fault] = {}
    for one in sorted((one for one in made if one.kind != "agrees"), key=lambda one: (one.kind, len(one.intents))):
        named = [name for name in one.intents if name in known]  # a request that follows another has no intent alone
        for name in [name for name in named if name not in cleared] or named:
            found.setdefault(name, Fault("second reader", one.text(), name))
    return list(found.values())[:MOST_FAULTS]
