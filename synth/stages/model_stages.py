"""The stages in which a model works on rows and single tasks: what it proposes is run, and kept where it holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from toolorchestra.synth.authors import Unusable
from toolorchestra.synth.authors.task_author import TaskAuthor
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.proof import text_diversity
from toolorchestra.synth.proof.solvers import SCRIPTED, Arena
from toolorchestra.synth.stages import evolved_tasks, proposed_rows, reworded_tasks
from toolorchestra.synth.stages.limited_work import SHARED
from toolorchestra.synth.stages.stage_values import Making, SynthesisSettings, Tally, counted
from toolorchestra.synth.stages.task_drafts import Shape

SECONDS, SECONDS_A_TASK = 120.0, 2.0
"""How long the checks of a stage may take, and for each task."""
REPAIRS = 1
"""Rounds in which a request that was of no use is asked for again, with the reason."""


class _Log:
    """What was of no use, by reason, with the first of each."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, reason: str, seen: str) -> None:
        self.dropped[reason] += 1
        self.examples.setdefault(reason, seen[:400])

    def tally(self, stage: str, kept: int, *notes: str) -> Tally:
        return Tally(stage, kept, 0, counted(self.dropped), self.examples, notes)


async def records(making: Making, author: TaskAuthor, settings: SynthesisSettings) -> tuple[Making, Tally]:
    """Rows that a model proposes, in rows.yaml."""
    about = SHARED.run(proposed_rows.about, making, settings.seed, seconds=SECONDS)
    log = _Log()
    if not about["tables"]:
        return making, log.tally("records", 0, "no table has a column that a record may give")
    try:
        proposed = await author.records(about, settings.proposed_rows)
    except Unusable as err:
        log.add(err.fault.reason, err.fault.seen)
        return making, log.tally("records", 0)
    listed = {str(name): rows for name, rows in proposed.items()}
    text, dropped, examples = SHARED.run(
        proposed_rows.accepted, making, settings.seed, listed, settings.proposed_rows, seconds=5 * SECONDS
    )
    log.dropped.update(dropped)
    log.examples.update(examples)
    written = sum(len(rows) for rows in listed.values() if isinstance(rows, list))
    return making.with_part("rows.yaml", text), log.tally("records", written - dropped.total())


async def evolve(making: Making, author: TaskAuthor, settings: SynthesisSettings) -> tuple[Making, Tally]:
    """Single tasks with one more request of a model's, where it measures harder."""
    log, harder = _Log(), 0
    for number in range(settings.evolve_tasks):
        shapes = list(making.shapes)
        seconds = SECONDS + SECONDS_A_TASK * len(shapes)
        abouts = SHARED.run(evolved_tasks.about, making, settings.seed, shapes, seconds=seconds)
        open_ = {place: () for place, about in enumerate(abouts) if about is not None}
        faults: dict[int, tuple[Fault, ...]] = dict(open_)
        for repair in range(REPAIRS + 1):
            asked = number * (REPAIRS + 1) + repair
            entries = await _entries(author, shapes, abouts, faults, asked)
            usable = [(place, entry) for place, entry in entries.items() if not isinstance(entry, Fault)]
            wanted = [(shapes[place], entry) for place, entry in usable]
            made = SHARED.run(evolved_tasks.checked, making, settings.seed, wanted, seconds=seconds)
            faults = {place: (entry,) for place, entry in entries.items() if isinstance(entry, Fault)}
            for (place, _), new in zip(usable, made, strict=True):
                if isinstance(new, tuple):
                    faults[place] = (Fault(*new),)
                else:
                    shapes[place] = {**new, "toolscale": {**new["toolscale"], "split": _split(shapes[place])}}
                    harder += 1
            making = _with(making, shapes)
        for found in faults.values():
            log.add(found[0].reason, found[0].seen)
    return making, log.tally("evolve tasks", len(making.shapes), f"made harder by a model: {harder}")


async def _entries(
    author: TaskAuthor,
    shapes: Sequence[Shape],
    abouts: Sequence[Any],
    faults: dict[int, tuple[Fault, ...]],
    number: int,
) -> dict[int, Any]:
    """The requests that a model adds, by the task's place; a Fault where the answer was of no use."""

    async def one(place: int, seen: Sequence[Fault]) -> Any:
        try:
            return await author.evolved(shapes[place]["id"], abouts[place], number, seen)
        except Unusable as err:
            return err.fault

    found = await _all([one(place, seen) for place, seen in faults.items()])
    return dict(zip(faults, found, strict=True))


async def reword(
    making: Making, author: TaskAuthor, settings: SynthesisSettings, arena_of: Any
) -> tuple[Making, Tally]:  # fmt: skip
    """Tasks in a model's words. `arena_of` gives the arena of tasks, for the oracle's try at the new ones."""
    log, spec = _Log(), making.spec

    async def one(shape: Shape) -> Any:
        try:
            return await author.reworded(shape["id"], reworded_tasks.asked(spec, shape))
        except Unusable as err:
            return err.fault

    answers = await _all([one(shape) for shape in making.shapes])
    wanted = []
    for shape, answer in zip(making.shapes, answers, strict=True):
        if isinstance(answer, Fault):
            log.add(answer.reason, answer.seen)
        else:
            wanted.append((shape, answer))
    seconds = SECONDS + SECONDS_A_TASK * len(wanted)
    made = SHARED.run(reworded_tasks.checked, making, settings.seed, wanted, seconds=seconds)
    new: dict[str, Shape] = {}
    for (shape, _), result in zip(wanted, made, strict=True):
        if isinstance(result, tuple):
            log.add(*result)
        else:
            new[shape["id"]] = result
    candidate = _with(making, [new.get(shape["id"], shape) for shape in making.shapes])
    arena: Arena = arena_of(candidate)
    for task_id in list(new):
        if not await arena.passes(SCRIPTED["oracle"], task_id, 1):
            log.add("the oracle fails", new.pop(task_id)["user_scenario"]["instructions"]["reason_for_call"])
    kept = _with(making, [new.get(shape["id"], shape) for shape in making.shapes])
    before, after = text_diversity.measure(making.shapes), text_diversity.measure(kept.shapes)
    notes = (f"worded anew: {len(new)} of {len(making.shapes)}", f"before: {before.text()}", f"after: {after.text()}")
    return kept, log.tally("reword", len(kept.shapes), *notes)


async def _all(asks: Sequence[Any]) -> list[Any]:
    """All answers; all calls end before an error is raised, so that what was paid for is kept."""
    found = await asyncio.gather(*asks, return_exceptions=True)
    if failed := next((one for one in found if isinstance(one, BaseException)), None):
        raise failed
    return found


def _split(shape: Shape) -> Any:
    return shape["toolscale"]["split"]


def _with(making: Making, shapes: Sequence[Shape]) -> Making:
    return Making(making.parts, tuple(shapes), making.passes)
