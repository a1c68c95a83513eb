"""Runs of the whole path with scripted authors, for tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from toolorchestra.envs.models import ChatRequest, ScriptedModel
from toolorchestra.envs.money.prices import PriceSheet, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.synth.authors.model_author import LlmAuthor, ScriptedParts, Slip
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages import pipeline
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.storage import Journal, PaidModel, StageStore

SPEC = "public_library"
SMALL = SynthesisSettings(tasks=12, rounds=2)
FILES = ("domain.json", "schema.sql", "rows.jsonl.gz", "tools.json", "policy.md", "tasks.jsonl.gz")


def texts() -> dict[str, str]:
    """The six texts of the spec that stand-ins write."""
    return specs.texts(SPEC)


def sheet() -> PriceSheet:
    """The paper's prices, and one for the scripted author."""
    paper = load_sheet("paper-2025-11")
    return replace(paper, prices={**paper.prices, "scripted": paper.price("gpt-5")})


def paid_model(folder: Path, reply: Callable[[ChatRequest], str], cap: SpendCap | None = None) -> PaidModel:
    """A paid_model over a scripted model, its journal in the folder."""
    return PaidModel(ScriptedModel(reply), "scripted", sheet(), Journal(folder / "calls.jsonl"), cap)


def made(
    folder: Path,
    reply: Callable[[ChatRequest], str] | None = None,
    settings: SynthesisSettings = SMALL,
    *,
    cap: SpendCap | None = None,
) -> tuple[pipeline.Made, PaidModel]:
    """One run, or the rest of one that was stopped."""
    work = StageStore(folder / "work", resume=True)
    spent = paid_model(work.folder, reply or ScriptedParts(texts()), cap)
    author = LlmAuthor("a library", spent)
    run = pipeline.SynthesisRun(author, settings, work, folder / "out")
    return asyncio.run(pipeline.make(run)), spent


_SCRATCH = tempfile.TemporaryDirectory()


@cache
def honest() -> tuple[Path, pipeline.Made, PaidModel]:
    """The folder of one run by an author who makes no mistake, made once for all tests; and the run."""
    folder = Path(_SCRATCH.name) / "honest"
    return folder, *made(folder)


def copied(folder: Path) -> Path:
    """A copy of that run's folder."""
    shutil.copytree(honest()[0], folder)
    return folder


def slipping(stage: str, slip: Slip, *, always: bool = False) -> ScriptedParts:
    """A stand-in that spoils one stage."""
    return ScriptedParts(texts(), {stage: slip}, always=always)


def read(folder: Path) -> dict[str, bytes]:
    """A domain folder's bytes."""
    return {name: (folder / name).read_bytes() for name in FILES}
