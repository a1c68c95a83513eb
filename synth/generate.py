"""Makes a domain, from a spec without a model or from a sentence with one, and proves every task of it.

    python synth/generate.py --spec public_library --tasks 300 --out DIR
    python synth/generate.py --domain "public library" --model openai:gpt-5 --tasks 300 --out DIR

Each stage's result is kept in a work folder (by default OUT.work), so that a run that was stopped goes on with
--resume; answers of models are kept as they come and are never paid twice. The report is run_report.md in that folder.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.option_types import count, count_or_none, dollars, folder
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.domains.sql import loader
from toolorchestra.envs.money.ledger import SpendCap
from toolorchestra.synth.authors import author_models
from toolorchestra.synth.authors.given_spec import GrammarAuthor
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.console.progress import Bars
from toolorchestra.synth.formats import export
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.solvers import GRADED, SCRIPTED, ModelSolver, named
from toolorchestra.synth.runs.paid_calls import Journal, PaidModel
from toolorchestra.synth.runs.stage_store import StageStore, key
from toolorchestra.synth.stages import cost_estimate, pipeline, run_report
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.stages.task_filters import Band

BATCHES = 3
"""Calls over which a model's intents are spread."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--spec", nargs="+", help="folders, YAML files, or names of: " + ", ".join(specs.shipped()))
    who.add_argument("--domain", help="a subject in words, for a model to write")
    parser.add_argument("--model", help="who writes: openai:NAME, or standin:SPEC, a script in a model's place")
    parser.add_argument("--endpoints", type=Path, help="TOML file of servers, for openai:NAME")
    parser.add_argument("--prices", default="paper-2025-11", help="price sheet that bills the model")
    parser.add_argument("--price-as", default="", help="bill the model as this item of the sheet")
    parser.add_argument("--tasks", type=count, default=450)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=folder, help="the new domain's folder; a shipped one's spec needs none")
    parser.add_argument("--work", type=folder, help="where stages are kept; by default OUT.work")
    parser.add_argument("--resume", action="store_true", help="go on with what the work folder holds")
    parser.add_argument("--stage", choices=pipeline.STAGES, help="make this stage anew, and what follows from it")
    parser.add_argument(
        "--evolve", type=count_or_none, help="rounds of making harder; default 0 with --spec, 1 with --domain"
    )
    parser.add_argument("--solvers", nargs="*", default=[], help="for pass@k: " + ", ".join(SCRIPTED))
    parser.add_argument("--solver-model", help="a served model as one more solver: openai:NAME")
    parser.add_argument("--k", type=count, default=8, help="tries a task and solver")
    parser.add_argument("--band", type=float, nargs=2, default=(0.05, 0.95), metavar=("LOW", "HIGH"))
    parser.add_argument("--sift", action="store_true", help="drop near-duplicates and what trivial policies solve")
    parser.add_argument("--no-costs", dest="costs", action="store_false", help="do not measure what tasks cost")
    parser.add_argument(
        "--variants", type=count_or_none, default=0, help="of each task: tools, aliases, prices, preference"
    )
    parser.add_argument("--rounds", type=count_or_none, default=3, help="of repair, for each part that a model writes")
    parser.add_argument("--budget-usd", type=dollars, help="stop before a call once so much is spent")
    parser.add_argument("--concurrency", type=count, default=4, help="model calls at a time")
    parser.add_argument("--dry-run", action="store_true", help="print calls and dollars to be expected, and stop")
    tape = parser.add_mutually_exclusive_group()
    tape.add_argument("--record", type=Path, help="keep answered calls here instead of in the work folder")
    tape.add_argument("--replay", type=Path, help="answer from this cassette; a call that is not in it is an error")
    parser.add_argument("--export", nargs="*", default=[], choices=export.FORMATS, help="written beside OUT")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = arguments()
    given = parser.parse_args(argv)
    if given.spec and (given.model or given.replay):
        parser.error("--spec needs no model; --domain does")
    if given.domain and not (given.model and given.out):
        parser.error("--domain needs --model and --out")
    if given.spec and len(given.spec) > 1 and (given.out or given.work):
        parser.error("--out and --work name one folder; give one --spec with them")
    try:
        named(given.solvers)
        with _interruptible():
            for name in given.spec or [None]:
                _one(given, name)
    except (ConfigError, SpendCapReached) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; go on with --resume" if given.out or given.work else ""
        print(f"\nstopped{kept}" if sys.stderr.isatty() else f"stopped{kept}", file=sys.stderr)
        return 130
    return 0


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


def _settings(given: argparse.Namespace) -> SynthesisSettings:
    low, high = given.band
    written = given.domain is not None
    return SynthesisSettings(
        tasks=given.tasks, seed=given.seed, evolve=int(written) if given.evolve is None else given.evolve,
        solvers=tuple(given.solvers), band=Band(low, high, given.k), sift=given.sift or written,
        costs=given.costs, variants=given.variants, rounds=given.rounds if written else 0,
    )  # fmt: skip


def _one(given: argparse.Namespace, name: str | None) -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        if given.dry_run:
            _expected(given, _purse(given, Path(scratch)))
            return
        spec = specs.load(name) if name else None
        if spec is not None and given.out is None and spec.folder.resolve().parent != specs.SHIPPED.resolve():
            raise ConfigError(f"{spec.folder} is not the spec of a shipped domain; say where it goes: --out DIR")
        out = given.out or loader.SHIPPED / (spec.name if spec else "")
        kept = given.work or (out.with_name(f"{out.name}.work") if given.out else Path(scratch))
        work = StageStore(kept, resume=given.resume)
        purse = _purse(given, kept)
        made = asyncio.run(_made(_run(given, spec, work, out, purse), purse))
        told = run_report.rows(made, purse)
        run_report.store(kept, told)
        print(run_report.text(told))
        for form in given.export:
            print(f"  {form}: {export.write(form, made.domain, out.with_name(f'{out.name}.{form}'))}")
        print(f"  written to {made.domain.folder}, {time.perf_counter() - started:.1f} s", flush=True)


async def _made(run: pipeline.SynthesisRun, purse: PaidModel | None) -> pipeline.Made:
    """The run, and the connections closed after it."""
    try:
        return await pipeline.make(run)
    finally:
        players = [solver.purse for solver in run.extra_solvers if isinstance(solver, ModelSolver)]
        for open_ in [purse, *players]:
            if open_ is not None:
                await open_.close()


def _purse(given: argparse.Namespace, folder: Path) -> PaidModel | None:
    """The writer's, or the solver's where a spec is written already."""
    wanted = given.model or given.solver_model
    if wanted is None:
        return None
    backend = _backend(given, wanted)
    sheet = backend.sheet
    if given.solver_model:
        other = _backend(given, given.solver_model)
        sheet = replace(sheet, prices={**other.sheet.prices, **sheet.prices})
    journal = Journal(given.replay or given.record or folder / "calls.jsonl", replay=given.replay is not None)
    cap = SpendCap(given.budget_usd) if given.budget_usd is not None else None
    return PaidModel(backend.models, backend.model, sheet, journal, cap, given.concurrency)


def _backend(given: argparse.Namespace, named: str) -> author_models.Backend:
    silent = given.replay is not None or given.dry_run
    return author_models.load(named, given.prices, given.price_as, given.endpoints, silent=silent)


def _run(
    given: argparse.Namespace, spec: specs.Spec | None, work: StageStore, out: Path, purse: PaidModel | None
) -> pipeline.SynthesisRun:
    settings = _settings(given)
    solvers = []
    if given.solver_model and purse is not None:
        backend = _backend(given, given.solver_model)
        solvers = [ModelSolver(purse.beside(backend.models, backend.model), backend.model)]
    bars = Bars(sys.stderr)
    if spec is None:
        assert purse is not None
        takes = _takes(given, work, {"domain": given.domain, "model": purse.model, **asdict(settings)})
        author = LlmAuthor(given.domain, purse, batches=BATCHES, takes=takes)
        identity = key(given.domain, purse.model)
        return pipeline.SynthesisRun(author, settings, work, out, identity, solvers, takes, bars)
    takes = _takes(given, work, {"spec": spec.digest, **asdict(settings)})
    texts = specs.texts(spec.folder)
    return pipeline.SynthesisRun(GrammarAuthor(spec, texts), settings, work, out, spec.digest, solvers, takes, bars)


def _takes(given: argparse.Namespace, work: StageStore, settings: Mapping[str, Any]) -> dict[str, int]:
    """The takes, with the one that is asked for. A run that is refused leaves none: a take is paid for."""
    work.agree(settings)
    if given.stage:
        work.take(given.stage)
    return work.takes()


def _expected(given: argparse.Namespace, purse: PaidModel | None) -> None:
    settings = _settings(given)
    if purse is None:
        print(f"no model is asked: 0 calls, 0 $; graded solvers that may be named: {', '.join(s.name for s in GRADED)}")
        return
    if given.model:
        print("author: " + cost_estimate.author(given.domain, purse.model, purse.sheet, settings, BATCHES).text())
    if given.solver_model:
        backend = _backend(given, given.solver_model)
        print("solver: " + cost_estimate.solver(backend.model, backend.sheet, settings).text())


if __name__ == "__main__":
    sys.exit(main())
