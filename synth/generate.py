"""Makes a domain, from a spec without a model or from a sentence with one, and proves every task of it.

    python synth/generate.py --spec public_library --tasks 300 --out DIR
    python synth/generate.py --domain "public library" --model openai:gpt-5 --tasks 300 --out DIR

Each stage's result is kept in a work folder (by default OUT.work), so that a run that was stopped goes on with
--resume; answers of models are kept as they come and are never paid twice. The report is run_report.md in that folder.
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
from toolorchestra.synth.console.progress import Bars
from toolorchestra.synth.formats import export
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.solvers import GRADED, ModelSolver, named
from toolorchestra.synth.stages import cost_estimate, pipeline, run_report
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.stages.task_filters import Band
from toolorchestra.synth.storage.paid_calls import CALL_SECONDS, Journal, PaidModel
from toolorchestra.synth.storage.stage_store import StageStore, key

BATCHES = 3
"""Calls over which a model's intents are spread."""


@dataclass(frozen=True)
class SynthOptions:
    """What `toolorchestra synth` takes."""

    spec: tuple[str, ...] = ()
    """Folders, YAML files, or names of shipped specs; nobody but a person wrote them, so no model is asked."""
    domain: str = ""
    """A subject in words, for a model to write. Either this or --spec."""
    model: str = ""
    """Who writes: openai:NAME, or standin:SPEC, a script in a model's place."""
    backends: Path | None = None
    """TOML file of servers, for openai:NAME."""
    prices: str = "paper-2025-11"
    """Price sheet that bills the model."""
    price_as: str = ""
    """Bill the model as this item of the sheet."""
    tasks: int = 450
    """How many to make."""
    seed: int = 1
    """Of all that is drawn."""
    out: Path | None = None
    """The new domain's folder; a shipped one's spec needs none."""
    work: Path | None = None
    """Where stages are kept; OUT.work by default."""
    resume: bool = False
    """Go on with what the work folder holds."""
    stage: str = ""
    """Make this stage anew, and what follows from it; docs/synthesis.md lists the stages."""
    evolve: int | None = None
    """Rounds of making tasks harder; by default 0 with --spec, 1 with --domain."""
    solvers: tuple[str, ...] = ()
    """For pass@k: scripted solvers, by name."""
    solver_model: str = ""
    """A served model as one more solver: openai:NAME."""
    k: int = 8
    """Tries of each task and solver."""
    band: tuple[float, float] = (0.05, 0.95)
    """Tasks outside these shares of passed tries are dropped."""
    sift: bool = False
    """Drop near-duplicates and what trivial policies solve."""
    no_costs: bool = False
    """Do not measure what tasks cost."""
    variants: int = 0
    """Of each task: tools, aliases, prices, preference."""
    rounds: int = 3
    """Of repair, for each part that a model writes."""
    spend_cap: float | None = None
    """Dollars: stop before a call once so much is spent."""
    at_once: int = 4
    """Model calls at a time."""
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
        check_counts(self, {"tasks": 1, "k": 1, "at_once": 1, "evolve": 0, "variants": 0, "rounds": 0})
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
    )  # fmt: skip


def _one(given: SynthOptions, name: str | None) -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        if given.dry_run:
            _expected(given, _paid_model(given, Path(scratch)))
            return
        spec = specs.load(name) if name else None
        if spec is not None and given.out is None and spec.folder.resolve().parent != specs.ADDED.resolve():
            raise ConfigError(f"{spec.folder} is not the spec of a shipped domain; say where it goes: --out DIR")
        out = given.out or loader.shipped(2) / (spec.name if spec else "")
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
        for open_ in [paid_model, *players]:
            if open_ is not None:
                await open_.close()


def _paid_model(given: SynthOptions, folder: Path) -> PaidModel | None:
    """The writer's, or the solver's where a spec is written already."""
    wanted = given.model or given.solver_model
    if not wanted:
        return None
    backend = _backend(given, wanted)
    sheet = backend.sheet
    if given.solver_model:
        other = _backend(given, given.solver_model)
        sheet = replace(sheet, prices={**other.sheet.prices, **sheet.prices})
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
        backend = _backend(given, given.solver_model)
        solvers = [ModelSolver(paid_model.beside(backend.models, backend.model), backend.model)]
    bars = Bars(sys.stderr)
    if spec is None:
        assert paid_model is not None
        takes = _takes(given, work, {"domain": given.domain, "model": paid_model.model, **asdict(settings)})
        author = LlmAuthor(given.domain, paid_model, batches=BATCHES, takes=takes)
        identity = key(given.domain, paid_model.model)
        return pipeline.SynthesisRun(author, settings, work, out, identity, solvers, takes, bars)
    takes = _takes(given, work, {"spec": spec.digest, **asdict(settings)})
    texts = specs.texts(spec.folder)
    return pipeline.SynthesisRun(GrammarAuthor(spec, texts), settings, work, out, spec.digest, solvers, takes, bars)


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
