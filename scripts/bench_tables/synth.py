"""The synthesis table of the benchmarks: `python scripts/bench.py --table synth`. Wall times of one process.

Solvers are SIMULATED, and the model's path is written by a script in a model's place, so its dollars are SIMULATED too.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth import compare_solvers, prove
from toolorchestra.synth.authors import author_models
from toolorchestra.synth.authors.given_spec import GrammarAuthor
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof import diversity
from toolorchestra.synth.proof.solvers import GRADED
from toolorchestra.synth.stages import pipeline
from toolorchestra.synth.stages.run_report import cheapest, levels, passes
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.stages.task_filters import Band
from toolorchestra.synth.storage.paid_calls import Journal, PaidModel
from toolorchestra.synth.storage.stage_store import StageStore

TASKS = 300


def small() -> list[str]:
    return sorted(path.stem for path in (specs.SHIPPED / "extra").glob("*.yaml"))


def made(name: str, settings: SynthesisSettings, folder: Path) -> tuple[pipeline.Made, float]:
    """A domain from a spec, and its wall seconds."""
    started = time.perf_counter()
    spec = specs.load(name)
    author = GrammarAuthor(spec, specs.texts(spec.folder))
    run = pipeline.SynthesisRun(
        author, settings, StageStore(folder / "work", resume=False), folder / "out", spec.digest
    )
    return asyncio.run(pipeline.make(run)), time.perf_counter() - started


def plain() -> Iterator[tuple[str, str, str]]:
    for name in small():
        with tempfile.TemporaryDirectory() as scratch:
            done, seconds = made(name, SynthesisSettings(tasks=TASKS), Path(scratch))
            started = time.perf_counter()
            faults = prove.check_tasks(str(done.domain.folder), list(done.domain.tasks)).faults
            proof = time.perf_counter() - started
            drafts = next(tally for tally in done.tallies if tally.stage == "tasks")
            lines = len(specs.load(name).folder.read_text(encoding="utf-8").splitlines())
            beside = diversity.compare(done.domain)
            nearest = beside.distances[0]
            yield (
                f"{name}, {lines} lines to {len(done.domain.tasks)} tasks",
                f"{seconds:.1f} s",
                f"goal <= 180; {sum(drafts.dropped.values())} drafts dropped; proven again in {proof:.1f} s,"
                f" {len(faults)} faults; difficulty {dict(sorted(levels(done.domain).items()))};"
                f" words {nearest.words:.3f} from {nearest.other}",
            )


def measured() -> Iterator[tuple[str, str, str]]:
    settings = SynthesisSettings(
        tasks=100, evolve=2, solvers=("strong", "fair", "weak"), band=Band(0.05, 0.95, 8), variants=2
    )
    with tempfile.TemporaryDirectory() as scratch:
        done, seconds = made("gym_studio", settings, Path(scratch))
        told = "; ".join(f"{tally.stage}: {dict(tally.dropped)}" for tally in done.tallies if tally.dropped)
        yield "gym_studio, 100 tasks, 2 rounds harder, pass@8", f"{seconds:.1f} s", told
        shares = ", ".join(f"{name} {share:.1%}" for name, share in passes(done.known).items())
        yield "  tries passed in the band (SIMULATED)", shares, f"{done.variants} variants"
        known = cheapest(done.known, done.domain)
        yield (
            "  calls of the cheapest known solutions",
            f"{known['calls']}",
            f"of {known['gold_calls']} gold calls; {known['usd_a_task']:.5f} $ a task, estimated",
        )


def written() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        models, model, sheet = author_models.load("standin:public_library", "paper-2025-11")
        started = time.perf_counter()
        for again in (False, True):
            paid_model = PaidModel(models, model, sheet, Journal(folder / "calls.jsonl"))
            work = StageStore(folder / f"work{again}", resume=again)
            settings = SynthesisSettings(tasks=100, evolve=1, sift=True)
            run = pipeline.SynthesisRun(
                LlmAuthor("a public library", paid_model), settings, work, folder / "out", "bench"
            )
            done = asyncio.run(pipeline.make(run))
            seconds, started = time.perf_counter() - started, time.perf_counter()
            name = "a model's path (stand-in), " + ("again from its journal" if again else "100 tasks")
            a_task = paid_model.ledger.usd / len(done.domain.tasks)
            yield name, f"{seconds:.1f} s", f"{paid_model.paid} calls paid now; SIMULATED {a_task:.6f} $ a kept task"


def rows(_seconds: float = 1.0) -> Iterator[tuple[str, str, str]]:
    """The table."""
    yield from plain()
    yield from measured()
    yield from written()
    for name in loader.names():
        found = compare_solvers.measure(name, 90, 4)
        shares = ", ".join(f"{solver.name} {found.shares[solver.name]:.1%}" for solver in GRADED)
        yield f"{name}, tries passed (SIMULATED)", f"{found.tries} tries", shares
