"""Make a domain, from a spec without a model or from a sentence with one; every task of it is checked by running it.

    toolorchestra synth make public_library --tasks 300 --out DIR
    toolorchestra synth make "a public library" --model openai:gpt-5 --spend-cap 5 --tasks 300 --out DIR

Each stage's result and each answer of a model is kept in the folder OUT.work as it comes: a run that was stopped goes
on with --resume, and no answer is paid twice. The report is report.md in that folder.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import (
    DONE,
    check_counts,
    check_folder,
    check_spend_cap,
    command,
    say,
    say_aside,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import write_whole
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain_files import FILES
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.synth.authors import model_author
from toolorchestra.synth.authors.model_author import LlmAuthor
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.solvers import ModelSolver
from toolorchestra.synth.stages import pipeline
from toolorchestra.synth.stages.pipeline import Made
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.storage import Journal, PaidModel, StageStore

AUTHOR_READS = "author"
WIDTH = 24
"""Characters of a bar of progress."""


@dataclass(frozen=True)
class MakeOptions:
    """What `toolorchestra synth make` takes."""

    what: Annotated[str, tyro.conf.Positional]
    """A spec that a person wrote (a folder, a YAML file, or the name of a shipped one), or the subject of a new domain
    in words, which a model writes."""
    model: str = ""
    """Author that writes a domain from words: openai:NAME, or standin:SPEC, a script in a model's place."""
    backends: Path | None = None
    """TOML file of servers, for openai:NAME."""
    prices: str = "paper-2025-11"
    """Price sheet that bills models."""
    price_as: str = ""
    """Bill models as this item of the sheet."""
    tasks: int = 450
    """How many tasks the domain gets."""
    seed: int = 1
    """Seed of all that is drawn."""
    out: Path | None = None
    """The new domain's folder; a shipped one's spec needs none."""
    resume: bool = False
    """Go on with what OUT.work holds."""
    rounds: int = 3
    """How many times a part that a model wrote may be repaired."""
    reader: str = ""
    """A second reader, which solves tasks from the text alone: openai:NAME, or author for the model of --model."""
    reword: str = ""
    """Model that says requests in more ways, tried by the oracle: openai:NAME, standin:SPEC, or author."""
    reader_tasks: int = 40
    """How many tasks it reads, spread evenly, three times each; 0: all."""
    spend_cap: float | None = None
    """Dollars: stop before a call once so much is spent."""
    at_once: int = 4
    """How many calls of models run at the same time."""
    strict: bool = False
    """Make nothing where the lint sees by running that requests are answered with another row than they name."""
    replay: Path | None = None
    """Answer from this file, the calls.jsonl of an earlier run; a call that is not in it is an error."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "at_once": 1, "rounds": 0, "reader_tasks": 0})
        check_spend_cap(self.spend_cap)
        check_folder("--out", self.out)
        if self.spec is None and not self.model:
            raise ConfigError(
                f"no spec {self.what!r}; name a folder, a YAML file or one of {', '.join(specs.shipped())}, or say with"
                " --model who writes a domain on this subject"
            )
        if self.spec is None and not self.out:
            raise ConfigError("a domain on a subject needs a place: --out DIR")
        if self.spec is not None and self.model:
            raise ConfigError(f"{self.what} is a spec, which no model writes; leave --model out, or describe a subject")
        for option in ("reader", "reword", "resume"):
            if getattr(self, option) and not self.out:
                raise ConfigError(
                    f"{option} needs a folder for the domain, beside which its answers are kept; without one they go"
                    " when the run ends",
                    command_line=f"--{option} with --out DIR",
                )
        for option in ("reader", "reword"):
            if getattr(self, option) == AUTHOR_READS and not self.model:
                raise ConfigError(f"--{option} author takes the model of --model, and there is none")

    @property
    def spec(self) -> str | None:
        """The spec that is named, where one is."""
        known = self.what in specs.shipped() or os.path.exists(self.what) or self.what.endswith(".yaml")
        return self.what if known else None


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(MakeOptions, run, given, about=__doc__, stopped="stopped; go on with --resume, if there is an --out")


def run(given: MakeOptions) -> int:
    """Make the domain, and print the report."""
    started = time.perf_counter()
    with _interruptible(), tempfile.TemporaryDirectory() as scratch:
        spec = specs.load(given.spec) if given.spec else None
        if spec is not None and given.out is None and spec.folder.resolve().parent != specs.SHIPPED.resolve():
            raise ConfigError(f"{spec.folder} is not the spec of a shipped domain; say where it goes: --out DIR")
        out = given.out or loader.SHIPPED / (spec.name if spec else "")
        beside = out.resolve().with_name(f"{out.resolve().name}.work")  # also where it is "."
        if given.out and not beside.exists():  # what a run was stopped in has no domain.json either
            _check_place(out)
        work = StageStore(beside if given.out else Path(scratch), resume=given.resume)
        models = _models(given, work.folder)
        made = asyncio.run(_made(_run(given, spec, work, out, models)))
        report = report_of(made, next(iter(models.values()), None))
        keep_report(work.folder, report)
        say(report_text(report))
        say(f"  written to {made.domain.folder}, {time.perf_counter() - started:.1f} s")
    return DONE


def _check_place(out: Path) -> None:
    """Refuse a folder that holds files of a domain's names and is none."""
    found = [name for name in FILES if (out / name).exists()]
    if found and not (out / "domain.json").exists():
        raise ConfigError(
            f"{out} has no domain.json and so is no domain, and its {found[0]} would be lost; name another folder"
        )


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


async def _made(run: pipeline.SynthesisRun) -> pipeline.Made:
    """The run, and the connections closed after it."""
    try:
        return await pipeline.make(run)
    finally:
        for one in (run.author, run.reader, run.reworder):
            if isinstance(one, LlmAuthor | ModelSolver):
                await one.paid_model.close()


def _models(given: MakeOptions, folder: Path) -> dict[str, PaidModel]:
    """The models that are named, over one journal, one cap and one sheet, which has the prices of all of them."""
    wanted = [one for one in (given.model, given.reader, given.reword) if one not in ("", AUTHOR_READS)]
    silent = given.replay is not None
    loaded = {
        name: model_author.load(name, given.prices, given.price_as, given.backends, silent=silent) for name in wanted
    }
    if not loaded:
        return {}
    first, *others = loaded.values()
    prices = {item: price for backend in (*others, first) for item, price in backend.sheet.prices.items()}
    journal = Journal(given.replay or folder / "calls.jsonl", replay=silent)
    cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
    sheet = replace(first.sheet, prices=prices)
    made = PaidModel(first.models, first.model, sheet, journal, cap, given.at_once, _note)
    return {name: made if b is first else made.beside(b.models, b.model) for name, b in loaded.items()}


def _run(
    given: MakeOptions, spec: specs.Spec | None, work: StageStore, out: Path, models: Mapping[str, PaidModel]
) -> pipeline.SynthesisRun:
    settings = SynthesisSettings(
        tasks=given.tasks, seed=given.seed, rounds=given.rounds, reader_tasks=given.reader_tasks
    )
    beside = {"reader": given.reader, "reword": given.reword}
    work.agree({"what": given.what, "model": given.model, "spec": spec and spec.digest, **beside, **asdict(settings)})
    reads = given.model if given.reader == AUTHOR_READS else given.reader
    reader = ModelSolver(models[reads]) if reads else None
    author = spec or LlmAuthor(given.what, models[given.model])
    rewords = given.model if given.reword == AUTHOR_READS else given.reword
    reworder = LlmAuthor(spec.head["subject"] if spec else given.what, models[rewords]) if rewords else None
    return pipeline.SynthesisRun(author, settings, work, out, reader, reworder, _progress, given.strict)


def _progress(stage: str, done: int, of: int) -> None:
    """Tell how far a run is: a bar that is drawn over on a terminal, a line for each finished stage elsewhere."""
    ended = done >= of == 1
    if sys.stderr.isatty():
        full = WIDTH * done // max(1, of)
        sys.stderr.write(f"\r{stage:10} [{'#' * full:.<{WIDTH}}] {done}/{of}   " + "\n" * ended)
        sys.stderr.flush()
    elif ended:
        say_aside(f"{stage} done")


def _note(text: str) -> None:
    """Tell what is waited for, on a line of its own."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    say_aside(text)


# -- the report: texts in it may be a model's --------------------------------------------------------------------------

MOST_TEXT = 300
DISAGREEMENTS = "disagreements.txt"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MARKS = re.compile(r"([\\`*_\[\]|~#!])")


def escaped(text: str) -> str:
    """A text that stays text wherever the report is shown."""
    plain = _CONTROL.sub(" ", text[:MOST_TEXT])
    return _MARKS.sub(r"\\\1", html.escape(plain, quote=False))


def report_of(made: Made, paid_model: PaidModel | None) -> dict[str, Any]:
    """The report of a run as a dict of plain values, to be written as JSON."""
    tasks = made.domain.tasks.values()
    spent = paid_model.ledger.usd if paid_model else 0.0
    return {
        "domain": made.domain.name,
        "tasks": len(tasks),
        "stages": [asdict(tally) for tally in made.tallies],
        "difficulty": {str(level): n for level, n in sorted(Counter(task.difficulty for task in tasks).items())},
        "nothing_to_be_done": sum(task.idle for task in tasks),
        "usd": spent,
        "usd_by_stage": paid_model.usd_by_stage() if paid_model else {},
        "usd_a_kept_task": spent / max(1, len(tasks)),
        "calls": {"made_now": paid_model.paid, "answered": len(paid_model.ledger)} if paid_model else {},
    }


def report_text(report: Mapping[str, Any]) -> str:
    """The report in Markdown, made from what report_of() gave."""
    lines = [f"# {report['domain']}: {report['tasks']} tasks kept", ""]
    lines += ["| stage | kept | rounds of repair | dropped or sent back |", "|---|---|---|---|"]
    for row in report["stages"]:
        why = ", ".join(f"{escaped(reason)}: {n}" for reason, n in row["dropped"].items())
        lines.append(f"| {row['stage']} | {row['kept']} | {row['rounds']} | {why or '-'} |")
    lines.append("")
    for row in report["stages"]:
        seen = ((why, row["examples"][why]) for why in row["dropped"] if why in row["examples"])
        lines += [f"- {row['stage']}, {escaped(why)}: {escaped(first)}" for why, first in seen]
        lines += [f"- {row['stage']}: {escaped(note)}" for note in row["notes"]]
    levels = ", ".join(f"{level}: {n}" for level, n in report["difficulty"].items())
    lines += ["", f"Tasks by difficulty (measured by gold calls): {levels}"]
    lines.append(f"Tasks whose right answer is to do nothing: {report['nothing_to_be_done']}")
    by_stage = ", ".join(f"{stage} {usd:.6f}" for stage, usd in report["usd_by_stage"].items())
    calls = report["calls"] or {"answered": 0, "made_now": 0}
    lines.append(f"Model calls: {calls['answered']}, of them made now: {calls['made_now']}")
    paid = by_stage or "no model was asked"
    lines.append(f"Dollars: {report['usd']:.6f} ({paid}); per kept task {report['usd_a_kept_task']:.6f}")
    return "\n".join(lines) + "\n"


def keep_report(folder: Path, report: Mapping[str, Any]) -> None:
    """report.json and report.md, and disagreements.txt with the conversations where a second reader differs from
    gold."""
    notes = [note for row in report["stages"] if row["stage"] == "reader" for note in row["notes"][1:]]
    (folder / DISAGREEMENTS).unlink(missing_ok=True)
    if notes:
        lines = "\n\n".join(notes).split("\n")
        write_whole(folder / DISAGREEMENTS, "".join(_CONTROL.sub(" ", line) + "\n" for line in lines).encode())
    write_whole(folder / "report.json", (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(folder / "report.md", report_text(report).encode())


if __name__ == "__main__":
    sys.exit(main())
