"""A domain from an author's first sentence to its folder: the stages in order, each kept as it is done."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain
from toolorchestra.synth.authors import PART_OF
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity, solvers
from toolorchestra.synth.proof.solvers import TRIVIAL, Arena, ModelSolver, Solver
from toolorchestra.synth.stages import domain_folder, spec_lint, written_parts
from toolorchestra.synth.stages.domain_folder import Seen
from toolorchestra.synth.stages.limited_work import SHARED
from toolorchestra.synth.stages.stage_values import Making, Progress, SynthesisSettings, Tally, counted
from toolorchestra.synth.stages.task_drafts import Shape
from toolorchestra.synth.stages.voices import voiced
from toolorchestra.synth.storage import StageStore

VERSION = "6"
"""Version of the stages. Raise it when the same inputs give other results: older work folders are then made anew."""
LEAST_TASKS = 10
PERHAPS = " (perhaps)"
MOST_LINT = 30
"""Findings that the report shows."""
TASKS_SECONDS, SECONDS_A_TASK = 120.0, 2.0
"""How long the making of tasks may take, and for each of them."""


def _nobody(_stage: str, _done: int, _of: int) -> None:
    """Hears how far a stage is, and says nothing."""


@dataclass
class SynthesisRun:
    """One run: who writes, with which settings, and where."""

    author: LlmAuthor | Spec
    """A model, or the spec that a person wrote."""
    settings: SynthesisSettings
    work: StageStore
    out: Path
    reader: Solver | None = None
    """The second reader."""
    reworder: LlmAuthor | None = None
    """Author of more wordings."""
    progress: Progress = _nobody
    strict: bool = False
    """Whether nothing is made of a spec whose lint has seen a fault by running it."""

    def seen(self, stage: str) -> Seen:
        """A function that reports one stage's progress."""
        return partial(self.progress, stage)

    @property
    def identity(self) -> str:
        """Name of the author: a spec's digest, or a hash of a domain's sentence and its model."""
        author = self.author
        return author.digest if isinstance(author, Spec) else digest(author.domain, author.paid_model.model)


@dataclass(frozen=True)
class Made:
    """What came of a run."""

    domain: SqlDomain
    tallies: tuple[Tally, ...]


Stage = Callable[[Making, SynthesisRun], Awaitable[tuple[Making, Tally]]]


async def make(run: SynthesisRun) -> Made:
    """All stages, or those that are not yet done, and the domain folder, read back and compared by its hash."""
    state, tallies = Making(), []
    models = [run.reader.name] if run.reader else []
    models += [f"reword {run.reworder.paid_model.model}"] if run.reworder else []
    given = [VERSION, run.identity, asdict(run.settings), models]
    for name, stage in STAGES.items():
        made_from = digest(given, name, state.digest)
        result = run.work.kept(made_from)
        if result is None:
            run.progress(name, 0, 1)
            state, tally = await stage(state, run)
            run.work.keep(name, made_from, {"making": asdict(state), "tally": asdict(tally)})
        else:
            state, tally = Making.read(result["making"]), Tally.read(result["tally"])
        tallies.append(tally)
        if run.strict and name == "lint" and (number := tally.dropped.get(spec_lint.FALSE_GOLD)):
            raise ConfigError(  # its tasks would prove themselves
                f"no task is made: by the lint, which has run them, {number} intents are answered with another row "
                f"than they name; the first: {tally.notes[0]}"
            )
        run.progress(name, 1, 1)
    _written(state, run, run.out)
    domain = loader.read(run.out, verify=True)
    for folder in run.work.folder.glob("candidate-*"):
        shutil.rmtree(folder)
    return Made(domain, tuple(tallies))


def _writes(stage: str) -> Stage:
    async def run_stage(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
        return await written_parts.write(stage, state, run.author, run.settings)

    return run_stage


async def _lint(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    """What its author should look at. Nothing is dropped for it."""
    found = spec_lint.of_parts(state.parts, run.settings.seed)
    counts = counted(Counter(f"{one.check}{'' if one.certain else PERHAPS}" for one in found))
    return state, Tally("lint", 0, 0, counts, {}, tuple(one.text() for one in found[:MOST_LINT]))


def _drafted(
    state: Making, seed: int, count: int, least: int | None, seen: Seen
) -> tuple[list[Any], domain_folder.YieldReport]:
    """The tasks that passed every check; in the process that has limits."""
    spec = state.spec
    domain = domain_folder.skeleton(spec, seed)
    return domain_folder.tasks(spec, domain, count, seed, least=least, seen=seen)


async def _tasks(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    settings = run.settings
    sifted = isinstance(run.author, LlmAuthor)
    count = round(settings.tasks * settings.oversample) if sifted else settings.tasks
    least = min(LEAST_TASKS, count) if sifted else None
    seconds = TASKS_SECONDS + SECONDS_A_TASK * count
    shapes, report = SHARED.run(_drafted, state, settings.seed, count, least, seconds=seconds, seen=run.seen("tasks"))
    rare = ", ".join(f"{name} {n}" for name, n in report.intents.most_common()[:-6:-1])
    notes = [f"intents used: {len(report.intents)}; rarest: {rare}"]
    for name in report.unused:
        notes.append(f"intent {name} is never used: {report.examples.get(f'intent {name}', 'never fitted')}")
    tally = Tally("tasks", len(shapes), 0, counted(report.dropped), report.examples, tuple(notes))
    return replace(state, shapes=tuple(shapes)), tally


async def _reword(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    """The tasks in more words, where the oracle, played on all of them, still passes. The work folder has the spec's
    intents with the new wordings."""
    if run.reworder is None:
        return state, Tally("reword")
    asked = run.reader.paid_model if isinstance(run.reader, ModelSolver) else run.reworder.paid_model
    state, tally = await written_parts.reword(state, run.reworder, LlmAuthor(run.reworder.domain, asked))
    arena, lost = _candidate(state, run), set[str]()
    for number, task in enumerate(arena.domain.tasks.values(), 1):
        if not await arena.passes(solvers.ORACLE, task.task_id):
            lost.update(request.intent.partition(".")[0] for request in task.requests)
        run.progress("reword", number, len(arena.domain.tasks))
    state = written_parts.without_more(state, lost) if lost else state
    notes = (
        (f"the oracle failed with new words of these, which are left out: {', '.join(sorted(lost))}",) if lost else ()
    )
    (run.work.folder / "intents.yaml").write_text(state.parts["intents.yaml"], encoding="utf-8")
    return state, replace(tally, notes=notes)


async def _reader(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    """Reads the tasks. A model that wrote the intents is shown where the reader ends elsewhere, and may write them
    anew; the tasks are then made again from them and read again. A person reads it in the report."""
    if run.reader is None:
        return state, Tally("reader")
    settings = run.settings
    for number in range(settings.rounds + 1):
        arena = _candidate(state, run)
        made = await solvers.readings(
            arena, run.reader, settings.reader_tasks, settings.reader_tries, run.seen("reader")
        )
        found = solvers.reader_faults(made, {entry["intent"] for entry in state.spec.intents})
        if isinstance(run.author, Spec) or not found or number == settings.rounds:
            break
        changed = await written_parts.reconsidered(state, run.author, found, settings, number)
        if changed is None:
            break
        state, _ = await _tasks(changed, run)
    kinds = Counter(solvers.KINDS[one.kind] for one in made)
    agree = kinds.pop(solvers.KINDS["agrees"], 0)
    head = f"{len(made)} tasks read, {sum(one.solved for one in made)} of {sum(one.tries for one in made)} tries solved"
    notes = (head, *(one.text() for one in made if one.kind != "agrees"))
    return state, Tally("reader", agree, number, counted(kinds), {}, notes)


async def _filters(state: Making, run: SynthesisRun) -> tuple[Making, Tally]:
    settings = run.settings
    if isinstance(run.author, Spec):
        return state, Tally("filters", len(state.shapes))
    found = TaskFilter(_candidate(state, run), run.seen("filters"))
    sifted = await found.sift(state.shapes)
    kept = sifted[: settings.tasks]
    if len(kept) < min(LEAST_TASKS, settings.tasks):
        seen = "; ".join(f"{reason}: {n}" for reason, n in found.dropped.most_common())
        raise ConfigError(f"the filters left {len(kept)} tasks ({seen}); ask for more tasks, or add intents")
    copies = [{**shape, "toolscale": dict(shape["toolscale"])} for shape in kept]
    # Each keeps its id: it seeds the voice in which the filters played it.
    shapes = domain_folder.divided(copies, state.spec, settings.seed)
    notes = [] if len(kept) == settings.tasks else [f"{settings.tasks} tasks were asked for"]
    over = len(sifted) - len(kept)
    dropped = counted(found.dropped) | ({"more than asked for": over} if over else {})
    return replace(state, shapes=tuple(shapes)), Tally("filters", len(shapes), 0, dropped, found.examples, tuple(notes))


@dataclass
class TaskFilter:
    """Filter of self-consistent tasks. Kept is what is not nearly the same as another, and not solved by doing nothing
    much."""

    arena: Arena
    seen: Seen
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    async def sift(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The tasks that all filters let through."""
        different, kept = self._different(shapes), []
        for number, shape in enumerate(different, 1):
            if not await self._trivial(shape):
                kept.append(shape)
            self.seen(number, len(different))
        return kept

    def _drop(self, reason: str, shape: Shape, seen: str) -> None:
        self.dropped[reason] += 1
        self.examples.setdefault(reason, f"{shape['description']['purpose']}: {seen}")

    def _different(self, shapes: Sequence[Shape]) -> list[Shape]:
        groups: dict[str, list[frozenset[str]]] = defaultdict(list)
        kept = []
        for shape in shapes:
            group, own = groups[similarity.calls(shape)], similarity.shingles(similarity.words(shape))
            if any(similarity.overlap(own, other) >= similarity.NEAR for other in group):
                self._drop("near-duplicate", shape, "an earlier task has the same calls in nearly the same words")
                continue
            group.append(own)
            kept.append(shape)
        return kept

    async def _trivial(self, shape: Shape) -> bool:
        if self.arena.domain.tasks[shape["id"]].idle:
            return False  # to change and tell nothing is what these ask for
        for solver in TRIVIAL:
            if await self.arena.passes(solver, shape["id"]):
                self._drop("solved by a trivial policy", shape, solver.name)
                return True
        return False


def _candidate(state: Making, run: SynthesisRun) -> Arena:
    """The tasks as a domain folder, to be tried through the environment. Its name follows from what it holds."""
    folder = run.work.folder / f"candidate-{state.digest[:12]}"
    _written(state, run, folder)
    return Arena(str(folder))


def _written(state: Making, run: SynthesisRun, folder: Path) -> None:
    spec, seed = state.spec, run.settings.seed
    seconds = TASKS_SECONDS + SECONDS_A_TASK * len(state.shapes)
    said = SHARED.run(_voiced, state, seconds=seconds)  # wordings become patterns, which can take for ever
    domain_folder.write(spec, domain_folder.skeleton(spec, seed), said, seed, folder)


def _voiced(state: Making) -> list[Any]:
    return voiced(state.spec, state.shapes)


STAGES: Mapping[str, Stage] = {
    **{stage: _writes(stage) for stage in PART_OF},
    "lint": _lint,
    "tasks": _tasks,
    "reword": _reword,
    "reader": _reader,
    "filters": _filters,
}
