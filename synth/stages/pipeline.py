"""A domain from an author's first sentence to its folder: the stages in order, each kept as it is done."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain import SqlDomain
from toolorchestra.envs.domains.toolscale.known_costs import KnownCost
from toolorchestra.envs.domains.toolscale.source import forget
from toolorchestra.synth import lint
from toolorchestra.synth.authors import PART_OF, Author
from toolorchestra.synth.authors.task_author import TaskAuthor
from toolorchestra.synth.formats import task_variants
from toolorchestra.synth.proof import cheapest_solutions
from toolorchestra.synth.proof.second_reader import SecondReader
from toolorchestra.synth.proof.solvers import Arena, Solver, named
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages import (
    domain_folder,
    model_stages,
    second_reading,
    spec_lint,
    written_parts,
)
from toolorchestra.synth.stages.domain_folder import Seen
from toolorchestra.synth.stages.harder_tasks import Evolved, evolve
from toolorchestra.synth.stages.limited_work import SHARED
from toolorchestra.synth.stages.stage_values import Making, Progress, SynthesisSettings, Tally, counted
from toolorchestra.synth.stages.task_filters import TaskFilter
from toolorchestra.synth.storage.stage_store import StageStore, key
from toolorchestra.synth.storage.stage_store import replace as write_file

VERSION = "2"
"""Of the stages. Raise it when the same inputs give other results; work folders of older runs are then made anew."""
MACHINE = ("harder", "lint", "tasks", "evolve", "evolve tasks", "reword", "reader", "filters")
_PARTS = tuple(PART_OF)
STAGES = (*_PARTS[: _PARTS.index("tools")], "records", *_PARTS[_PARTS.index("tools") :], *MACHINE)
LEAST_TASKS = 10
MOST_LINT = 30
"""Findings that the report shows."""
TASKS_SECONDS, SECONDS_A_TASK = 120.0, 2.0
"""How long the making of tasks may take, and for each of them."""


@dataclass
class SynthesisRun:
    """One run: who writes, with which settings, and where."""

    author: Author
    settings: SynthesisSettings
    work: StageStore
    out: Path
    identity: str
    """Of the author: a spec's digest, or a domain's sentence and its model."""
    extra_solvers: Sequence[Solver] = ()
    task_author: TaskAuthor | None = None
    """The model that proposes rows, evolves and rewords tasks, where the settings ask for it."""
    reader: SecondReader | None = None
    takes: dict[str, int] = field(default_factory=dict)
    progress: Progress | None = None

    def seen(self, stage: str) -> Seen | None:
        """A function that reports one stage's progress; None where the run reports none."""
        progress = self.progress
        return None if progress is None else (lambda done, of: progress(stage, done, of))


@dataclass(frozen=True)
class Made:
    """What came of a run."""

    domain: SqlDomain
    tallies: tuple[Tally, ...]
    known: tuple[KnownCost, ...]
    """The cheapest known solution of each task."""
    variants: int


Stage = Callable[[Making, SynthesisRun], Awaitable[tuple[Making, Tally]]]


async def make(run: SynthesisRun) -> Made:
    """All stages, or those that are not yet done, and the domain folder."""
    state, tallies = Making(), []
    for name in STAGES:
        wanted = key(VERSION, name, _inputs(run, name), state.digest)
        result = run.work.kept(name, wanted)
        if result is None:
            if run.progress is not None:
                run.progress(name, 0, 1)
            state, tally = await _STAGES[name](state, run)
            run.work.keep(name, wanted, {"making": state.row(), "tally": tally.row()})
        else:
            state, tally = Making.read(result["making"]), Tally.read(result["tally"])
        tallies.append(tally)
        if run.progress is not None:
            run.progress(name, 1, 1)
    return await _finish(run, state, tallies)


def _inputs(run: SynthesisRun, name: str) -> Any:
    """What a stage follows from besides what the stages before it made."""
    own = asdict(run.settings)
    shared = ("seed", "rounds")
    used = {
        "harder": ("evolve", *shared),
        "tasks": ("tasks", "seed", "sift", "solvers", "oversample"),
        "evolve": ("evolve", "seed"),
        "records": ("proposed_rows", "seed"),
        "tools": ("tool_drafts", "diverse", *shared),
        "intents": ("diverse", *shared),
        "subjects": ("diverse", *shared),
        "evolve tasks": ("evolve_tasks", "seed"),
        "reword": ("reword", "seed"),
        "reader": ("reader", "reader_tasks", "reader_tries", "tasks", "oversample", *shared),
        "filters": ("tasks", "seed", "sift", "solvers", "band"),
    }.get(name, shared)
    who: Any = run.identity if name in PART_OF or name == "harder" else [s.name for s in run.extra_solvers]
    if name in ("records", "evolve tasks", "reword"):
        who = run.task_author.paid_model.model if run.task_author else ""
    return [{key_: own[key_] for key_ in used}, who, run.takes.get(name, 0)]


def _writes(stage: str) -> Stage:
    async def run_stage(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
        return await written_parts.write(stage, state, run.author, run.settings)

    return run_stage


async def _harder(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    if run.author.trusted:
        return state, Tally("harder")
    return await written_parts.evolve(state, run.author, run.settings)


async def _lint(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    """What its author should look at. Nothing is dropped for it."""
    found = spec_lint.of_parts(state.parts, run.settings.seed)
    counts = counted(Counter(f"{one.check}{'' if one.certain else ' (perhaps)'}" for one in found))
    return state, Tally("lint", 0, 0, counts, {}, tuple(lint.lines(found[:MOST_LINT])))


def _nobody(_done: int, _of: int) -> None:
    """Hears how far a stage is, and says nothing."""


def _drafted(
    state: Making, seed: int, count: int, least: int | None, seen: Seen | None = None
) -> tuple[list[Any], domain_folder.YieldReport]:
    """The tasks that passed every check; in the process that has limits."""
    spec = state.spec
    domain, _ = domain_folder.skeleton(spec, seed)
    return domain_folder.tasks(spec, domain, count, seed, least=least, seen=seen)


def _evolved(state: Making, seed: int, rounds: int) -> Evolved:
    """The tasks made harder; in the process that has limits."""
    spec = state.spec
    domain, _ = domain_folder.skeleton(spec, seed)
    return evolve(spec, DomainPlayer(domain), state.shapes, rounds, random.Random(f"{seed}/{spec.name}/evolve"))


async def _tasks(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    settings = run.settings
    filtered = settings.filtered or bool(run.extra_solvers)
    count = round(settings.tasks * settings.oversample) if filtered else settings.tasks
    least = min(LEAST_TASKS, count) if filtered or not run.author.trusted else None
    seconds = TASKS_SECONDS + SECONDS_A_TASK * count
    shapes, report = SHARED.run(
        _drafted, state, settings.seed, count, least, seconds=seconds, seen=run.seen("tasks") or _nobody
    )
    rare = ", ".join(f"{name} {n}" for name, n in report.intents.most_common()[:-6:-1])
    notes = [f"intents used: {len(report.intents)}; rarest: {rare}"]
    for name in report.unused:
        notes.append(f"intent {name} is never used: {report.examples.get(f'intent {name}', 'never fitted')}")
    tally = Tally("tasks", len(shapes), 0, counted(report.dropped), report.examples, tuple(notes))
    return replace(state, shapes=tuple(shapes)), tally


async def _evolve(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    settings = run.settings
    if not settings.evolve:
        return state, Tally("evolve", len(state.shapes))
    spec = state.spec
    seconds = TASKS_SECONDS + SECONDS_A_TASK * len(state.shapes) * settings.evolve
    done: Evolved = SHARED.run(_evolved, state, settings.seed, settings.evolve, seconds=seconds)
    shapes = domain_folder.numbered(done.shapes, spec, settings.seed)
    notes = (
        "made harder: " + ", ".join(f"{way} {n}" for way, n in sorted(done.harder.items())),
        f"by difficulty: {dict(sorted(done.before.items()))} before, {dict(sorted(done.after.items()))} after",
    )
    return replace(state, shapes=tuple(shapes)), Tally("evolve", len(shapes), 0, counted(done.dropped), {}, notes)


async def _records(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    if run.author.trusted or run.task_author is None or not run.settings.proposed_rows:
        return state, Tally("records")
    return await model_stages.records(state, run.task_author, run.settings)


async def _evolve_tasks(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    if run.task_author is None or not run.settings.evolve_tasks:
        return state, Tally("evolve tasks", len(state.shapes))
    return await model_stages.evolve(state, run.task_author, run.settings)


async def _reword(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    if run.task_author is None or not run.settings.reword:
        return state, Tally("reword", len(state.shapes))
    return await model_stages.reword(state, run.task_author, run.settings, lambda one: Arena(str(_candidate(one, run))))


async def _reader(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    """Reads the tasks. A model that wrote the intents is shown where the reader ends elsewhere, and may write them
    anew; the tasks are then made again from them and read again. A person reads it in the report."""
    if run.reader is None:
        return state, Tally("reader")
    settings = run.settings
    wanted = second_reading.ReaderSettings(settings.reader_tasks, settings.reader_tries)
    for number in range(settings.rounds + 1):
        arena = Arena(str(_candidate(state, run)))
        made = await second_reading.readings(arena, run.reader, wanted, run.seen("reader"))
        found = second_reading.faults(made, {entry["intent"] for entry in state.spec.intents})
        if run.author.trusted or not found or number == settings.rounds:
            break
        changed = await written_parts.reconsidered(state, run.author, found, settings, number)
        if changed is None:
            break
        state = changed
        for remake in (_tasks, _evolve, _evolve_tasks, _reword):
            state, _ = await remake(state, run)
    return state, second_reading.tally(made, number)


async def _filters(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    settings = run.settings
    solvers = [*named(settings.solvers), *run.extra_solvers]
    if not settings.filtered and not solvers:
        return state, Tally("filters", len(state.shapes))
    arena = Arena(str(_candidate(state, run)))
    sifted = await TaskFilter(arena, solvers, settings.band, run.seen("filters")).sift(state.shapes)
    kept = sifted.kept[: settings.tasks]
    if len(kept) < min(LEAST_TASKS, settings.tasks):
        seen = "; ".join(f"{reason}: {n}" for reason, n in sifted.dropped.most_common())
        raise ConfigError(
            f"the filters left {len(kept)} tasks ({seen}); widen band, or add intents", command_line="a wider --band"
        )
    before = [shape["id"] for shape in kept]
    shapes = domain_folder.numbered([_copied(shape) for shape in kept], state.spec, settings.seed)
    passes = {s["id"]: sifted.passes[old] for s, old in zip(shapes, before, strict=True) if old in sifted.passes}
    notes = () if len(kept) == settings.tasks else (f"{settings.tasks} tasks were asked for",)
    over = len(sifted.kept) - len(kept)
    dropped = counted(sifted.dropped) | ({"more than asked for": over} if over else {})
    tally = Tally("filters", len(shapes), 0, dropped, sifted.examples, notes)
    return replace(state, shapes=tuple(shapes), passes=passes), tally


def _copied(shape: Any) -> Any:
    return {**shape, "toolscale": dict(shape["toolscale"])}


def _candidate(state: Making, run: SynthesisRun) -> Path:
    """The tasks as a domain folder, to be tried through the environment. Its name follows from what it holds."""
    spec = state.spec
    folder = run.work.folder / f"candidate-{state.digest[:12]}"
    domain, tools = domain_folder.skeleton(spec, run.settings.seed)
    domain_folder.write(spec, domain, tools, list(state.shapes), run.settings.seed, folder)
    return folder


async def _finish(run: SynthesisRun, state: Making, tallies: Sequence[Tally]) -> Made:
    """The domain folder, read back and compared by its hash; what goes beside it; and the candidates' removal."""
    spec, settings = state.spec, run.settings
    skeleton, tools = domain_folder.skeleton(spec, settings.seed)
    domain_folder.write(spec, skeleton, tools, list(state.shapes), settings.seed, run.out)
    known: list[KnownCost] = []
    if settings.costs:
        measured = await cheapest_solutions.measure(run.out, state.passes, settings.band.k, run.seen("costs"))
        cheapest_solutions.store(run.out, *measured)
        known = measured[1]
    forget()
    domain = loader.read(run.out, verify=True)
    variants = 0
    if settings.variants:
        made = task_variants.augment(domain, settings.variants, settings.seed)
        write_file(run.out / task_variants.FILE, task_variants.packed(made.variants))
        variants = len(made.variants)
        tallies = [*tallies, Tally("augment", variants, 0, counted(made.dropped), made.examples)]
    for folder in run.work.folder.glob("candidate-*"):
        shutil.rmtree(folder)
    return Made(domain, tuple(tallies), tuple(known), variants)


def check_stage(name: str) -> None:
    """Refuse a stage that there is not."""
    if name not in STAGES:
        raise ConfigError(no_such("stage", name, STAGES))


_STAGES: dict[str, Stage] = {
    **{stage: _writes(stage) for stage in PART_OF},
    "records": _records,
    "harder": _harder,
    "lint": _lint,
    "tasks": _tasks,
    "evolve": _evolve,
    "evolve tasks": _evolve_tasks,
    "reword": _reword,
    "reader": _reader,
    "filters": _filters,
}
