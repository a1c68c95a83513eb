"""Makes a domain, from a spec without a model or from a sentence with one; every task of it is checked by running it.

    python synth/generate.py --spec public_library --tasks 300 --out DIR
    python synth/generate.py --domain "public library" --model openai:gpt-5 --tasks 300 --out DIR

Each stage's result is kept in a work folder (by default OUT.work), so that a run that was stopped goes on with
--resume; answers of models are kept as they come and are never paid twice. The report is report.md in that folder.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.commands.console import DONE, check_counts, check_folder, check_spend_cap, command, say
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.synth.authors import author_models
from toolorchestra.synth.authors.given_spec import GrammarAuthor
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.authors.task_author import TaskAuthor
from toolorchestra.synth.console.progress import Bars
from toolorchestra.synth.formats import export
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.second_reader import SecondReader
from toolorchestra.synth.proof.solvers import GRADED, ModelSolver, named
from toolorchestra.synth.stages import cost_estimate, pipeline, run_report
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.stages.task_filters import Band
from toolorchestra.synth.storage.paid_calls import CALL_SECONDS, Journal, PaidModel
from toolorchestra.synth.storage.stage_store import StageStore, key

AUTHOR_READS = "author"
BATCHES = 3
"""Calls over which a model's intents are spread."""


@dataclass(frozen=True)
class SynthOptions:
    """What `toolorchestra synth` takes."""

    spec: tuple[str, ...] = ()
    """Folders, YAML files, or names of shipped specs. A person wrote them, so no model is asked."""
    domain: str = ""
    """The subject of a new domain in words; a model writes it. Give either this or --spec."""
    model: str = ""
    """Who writes: openai:NAME, or standin:SPEC, a script in a model's place."""
    backends: Path | None = None
    """TOML file of servers, for openai:NAME."""
    prices: str = "paper-2025-11"
    """Price sheet that bills the model."""
    price_as: str = ""
    """Bill the model as this item of the sheet."""
    tasks: int = 450
    """How many tasks the domain gets."""
    seed: int = 1
    """Seed of all that is drawn."""
    out: Path | None = None
    """The new domain's folder; a shipped one's spec needs none."""
    work: Path | None = None
    """Where stages are kept; OUT.work by default."""
    resume: bool = False
    """Go on with the stages that the work folder holds."""
    stage: str = ""
    """Make this stage anew, and what follows from it; docs/synthesis.md lists the stages."""
    evolve: int | None = None
    """Rounds of making tasks harder; by default 0 with --spec, 1 with --domain."""
    solvers: tuple[str, ...] = ()
    """For pass@k: scripted solvers, by name."""
    solver_model: str = ""
    """A served model as one more solver: openai:NAME."""
    reader_model: str = ""
    """A second reader, which solves tasks from the text alone: openai:NAME, or author for the model of --model."""
    reader_tasks: int = 40
    """How many tasks it reads, spread evenly; 0: all."""
    reader_tries: int = 3
    """How often it reads each."""
    task_model: str = ""
    """Who rewords and evolves single tasks, openai:NAME; with --domain the model of --model."""
    reword: bool = False
    """Have a model word the tasks anew."""
    evolve_tasks: int = 0
    """Rounds in which a model adds a harder request to each task."""
    propose_rows: int = 0
    """Records of each table that a model proposes, with --domain."""
    tool_drafts: int = 1
    """Drafts of the tools that are asked for and merged, with --domain."""
    diverse: bool = False
    """Vary prompts by places, customers and ways to speak, drawn from the seed."""
    paper: bool = False
    """All that a model can do in the paper's pipeline: --tool-drafts 3 --propose-rows 12 --evolve-tasks 1 --reword
    --diverse, with --domain."""
    k: int = 8
    """How many times each solver tries each task."""
    band: tuple[float, float] = (0.05, 0.95)
    """Tasks outside these shares of passed tries are dropped."""
    sift: bool = False
    """Drop tasks that are near-duplicates, and tasks that trivial policies solve."""
    no_costs: bool = False
    """Do not measure what tasks cost."""
    variants: int = 0
    """How many variants of each task are made, with other tools, aliases, prices and preferences."""
    rounds: int = 3
    """How many times a part that a model wrote may be repaired."""
    spend_cap: float | None = None
    """Dollars: stop before a call once so much is spent."""
    at_once: int = 4
    """How many calls of a model run at the same time."""
    call_seconds: float = CALL_SECONDS
    """How long one call of a model may take, with all its retries."""
    dry_run: bool = False
    """Print calls and dollars to be expected, and stop."""
    record: Path | None = None
    """Keep answered calls here instead of in the work folder."""
    replay: Path | None = None
    """Answer from this file; a call that is not in it is an error."""
    export: tuple[str, ...] = ()
    """Formats for other software, written beside OUT: tau2, rows, hf."""
    overwrite: bool = False
    """Let --export delete a folder that stands in its place and was not written by an export, or was changed since."""

    def __post_init__(self) -> None:
        check_counts(
            self,
            {
                "tasks": 1,
                "k": 1,
                "at_once": 1,
                "evolve": 0,
                "variants": 0,
                "rounds": 0,
                "reader_tasks": 0,
                "reader_tries": 1,
                "evolve_tasks": 0,
                "propose_rows": 0,
                "tool_drafts": 1,
            },
        )
        check_spend_cap(self.spend_cap)
        if not 0 < self.call_seconds < float("inf"):
            raise ConfigError(f"--call-seconds: a number of seconds above 0 expected, got {self.call_seconds!r}")
        check_folder("--out", self.out)
        check_folder("--work", self.work)
        if bool(self.spec) == bool(self.domain):
            raise ConfigError(
                f"give --spec NAME or --domain WORDS; specs that are shipped: {', '.join(specs.shipped())}"
            )
        if self.spec and (self.model or self.replay):
            raise ConfigError("--spec needs no model; --domain does")
        if self.domain and not (self.model and self.out):
            raise ConfigError("--domain needs --model and --out")
        self._check_models()
        if len(self.spec) > 1 and (self.out or self.work):
            raise ConfigError("--out and --work name one folder; give one --spec with them")
        if self.record and self.replay:
            raise ConfigError("--record writes a file of answers and --replay reads one; give one of them")
        if self.stage and self.stage not in pipeline.STAGES:
            raise ConfigError(no_such("stage", self.stage, pipeline.STAGES))
        for form in self.export:
            if form not in export.FORMATS:
                raise ConfigError(no_such("export", form, export.FORMATS))
        named(self.solvers)

    def _check_models(self) -> None:
        if self.spec and (self.propose_rows or self.tool_drafts > 1 or self.paper):
            raise ConfigError("--propose-rows, --tool-drafts and --paper are for a model that writes: give --domain")
        if (self.reword or self.evolve_tasks) and not (self.model or self.task_model):
            raise ConfigError("--reword and --evolve-tasks need a model: --task-model openai:NAME")
        if self.reader_model == AUTHOR_READS and not self.model:
            raise ConfigError("--reader-model author takes the model of --model, and there is none")


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(SynthOptions, run, given, about=__doc__, stopped="stopped; go on with --resume")


def run(given: SynthOptions) -> int:
    """Make the domains."""
    with _interruptible():
        for name in given.spec or [None]:
            _one(given, name)
    return DONE


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends a stage where it is: asyncio's own handler waits for the next wait, which may be minutes away."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as in a shell's background
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _settings(given: SynthOptions) -> SynthesisSettings:
    low, high = given.band
    written = bool(given.domain)
    return SynthesisSettings(
        tasks=given.tasks, seed=given.seed, evolve=int(written) if given.evolve is None else given.evolve,
        solvers=tuple(given.solvers), band=Band(low, high, given.k), sift=given.sift or written,
        costs=not given.no_costs, variants=given.variants, rounds=given.rounds if written else 0,
        proposed_rows=given.propose_rows or 12 * given.paper, diverse=given.diverse or given.paper,
        tool_drafts=3 if given.paper and given.tool_drafts == 1 else given.tool_drafts,
        evolve_tasks=given.evolve_tasks or int(given.paper), reword=given.reword or given.paper,
        reader=given.reader_model, reader_tasks=given.reader_tasks, reader_tries=given.reader_tries,
    )  # fmt: skip


def _one(given: SynthOptions, name: str | None) -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        if given.dry_run:
            _expected(given, _paid_model(given, Path(scratch)))
            return
        spec = specs.load(name) if name else None
        if spec is not None and given.out is None and spec.folder.resolve().parent != specs.SHIPPED.resolve():
            raise ConfigError(f"{spec.folder} is not the spec of a shipped domain; say where it goes: --out DIR")
        out = given.out or loader.SHIPPED / (spec.name if spec else "")
        for form in given.export:
            export.check_place(form, _export_place(out, form), overwrite=given.overwrite)
        kept = given.work or (out.with_name(f"{out.name}.work") if given.out else Path(scratch))
        work = StageStore(kept, resume=given.resume)
        paid_model = _paid_model(given, kept)
        made = asyncio.run(_made(_run(given, spec, work, out, paid_model), paid_model))
        told = run_report.rows(made, paid_model)
        run_report.store(kept, told)
        say(run_report.text(told))
        for form in given.export:
            place = _export_place(out, form)
            say(f"  {form}: {export.write(form, made.domain, place, overwrite=given.overwrite)}")
        say(f"  written to {made.domain.folder}, {time.perf_counter() - started:.1f} s")


def _export_place(out: Path, form: str) -> Path:
    return out.with_name(f"{out.name}.{form}")


async def _made(run: pipeline.SynthesisRun, paid_model: PaidModel | None) -> pipeline.Made:
    """The run, and the connections closed after it."""
    try:
        return await pipeline.make(run)
    finally:
        players = [solver.paid_model for solver in run.extra_solvers if isinstance(solver, ModelSolver)]
        players += [one.paid_model for one in (run.task_author, run.reader) if one is not None]
        for open_ in [paid_model, *players]:
            if open_ is not None:
                await open_.close()


def _paid_model(given: SynthOptions, folder: Path) -> PaidModel | None:
    """The writer's, or another's where a spec is written already."""
    named = [given.model, given.solver_model, given.task_model, given.reader_model]
    wanted = [one for one in named if one and one != AUTHOR_READS]
    if not wanted:
        return None
    backend = _backend(given, wanted[0])
    sheet = backend.sheet
    for name in wanted[1:]:
        sheet = replace(sheet, prices={**_backend(given, name).sheet.prices, **sheet.prices})
    journal = Journal(given.replay or given.record or folder / "calls.jsonl", replay=given.replay is not None)
    cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
    return PaidModel(
        backend.models, backend.model, sheet, journal, cap, given.at_once, given.call_seconds, Bars(sys.stderr).note
    )


def _backend(given: SynthOptions, named: str) -> author_models.Backend:
    silent = given.replay is not None or given.dry_run
    return author_models.load(named, given.prices, given.price_as, given.backends, silent=silent)


def _run(
    given: SynthOptions, spec: specs.Spec | None, work: StageStore, out: Path, paid_model: PaidModel | None
) -> pipeline.SynthesisRun:
    settings = _settings(given)
    solvers = []
    if given.solver_model and paid_model is not None:
        solver = _beside(given, paid_model, given.solver_model)
        solvers = [ModelSolver(solver, solver.model)]
    task_author, reader = _helpers(given, settings, spec, paid_model)
    bars = Bars(sys.stderr)
    if spec is None:
        assert paid_model is not None
        takes = _takes(given, work, {"domain": given.domain, "model": paid_model.model, **asdict(settings)})
        diverse = settings.seed if settings.diverse else None
        author = LlmAuthor(given.domain, paid_model, batches=BATCHES, takes=takes, diverse=diverse)
        identity = key(given.domain, paid_model.model)
        return pipeline.SynthesisRun(author, settings, work, out, identity, solvers, task_author, reader, takes, bars)
    takes = _takes(given, work, {"spec": spec.digest, **asdict(settings)})
    texts = specs.texts(spec.folder)
    return pipeline.SynthesisRun(
        GrammarAuthor(spec, texts), settings, work, out, spec.digest, solvers, task_author, reader, takes, bars
    )


def _beside(given: SynthOptions, paid_model: PaidModel, named: str) -> PaidModel:
    """Another model of the run, with the same journal and cap."""
    backend = _backend(given, named)
    return paid_model.beside(backend.models, backend.model)


def _helpers(
    given: SynthOptions, settings: SynthesisSettings, spec: specs.Spec | None, paid_model: PaidModel | None
) -> tuple[TaskAuthor | None, SecondReader | None]:
    """The models that work on single tasks: who rewords and evolves them, and who reads them."""
    if paid_model is None:
        return None, None
    subject = given.domain or (str(spec.head["subject"]) if spec else "")
    author: PaidModel | None = paid_model if given.model else None
    if given.task_model:
        author = _beside(given, paid_model, given.task_model)
    reader = None
    if given.reader_model:
        own = given.reader_model == AUTHOR_READS
        reads = paid_model if own else _beside(given, paid_model, given.reader_model)
        reader = SecondReader(reads, given.reader_tries)
    return TaskAuthor(subject, author, settings.seed) if author is not None else None, reader


def _takes(given: SynthOptions, work: StageStore, settings: Mapping[str, Any]) -> dict[str, int]:
    """The takes, with the one that is asked for. A run that is refused leaves none: a take is paid for."""
    work.agree(settings)
    if given.stage:
        work.take(given.stage)
    return work.takes()


def _expected(given: SynthOptions, paid_model: PaidModel | None) -> None:
    settings = _settings(given)
    if paid_model is None:
        say(f"no model is asked: 0 calls, 0 $; graded solvers that may be named: {', '.join(s.name for s in GRADED)}")
        return
    if given.model:
        say(
            "author: "
            + cost_estimate.author(given.domain, paid_model.model, paid_model.sheet, settings, BATCHES).text()
        )
    if given.solver_model:
        backend = _backend(given, given.solver_model)
        say("solver: " + cost_estimate.solver(backend.model, backend.sheet, settings).text())


if __name__ == "__main__":
    sys.exit(main())
