"""Runs of `toolorchestra evaluate` beside each other: `toolorchestra compare runs/before runs/after`.

Differences are of pairs: the same trial of the same task, under the same seed and prices. One run alone compares its
own policies. With --reprice SHEET each run is billed under another price sheet first, and with --rescore its answers
are graded again: nothing is played, and the runs stay as they are, for new folders are written. Figures
of one run are printed with --table figures, and with --format tau2, tau2-submission or gaia it is written for other
programs. docs/evaluation.md says what each figure is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, check_spend_cap, command, say, say_aside
from toolorchestra.agents.commands.evaluation_setup import (
    FILE,
    EvaluateOptions,
    backend_words,
    played_envs,
    wanted_of,
)
from toolorchestra.agents.configuration.environment_options import pairs
from toolorchestra.agents.evaluation.comparison import compare_runs, read_runs
from toolorchestra.agents.evaluation.comparison_tables import comparison_markdown, comparison_text
from toolorchestra.agents.evaluation.gaia_submission import write_gaia
from toolorchestra.agents.evaluation.paper_tables import paper_tables
from toolorchestra.agents.evaluation.repricing import reprice
from toolorchestra.agents.evaluation.rescoring import Envs, Rescoring, rescore
from toolorchestra.agents.evaluation.rows import (
    PAID,
    Cell,
    EvaluationRow,
    read_learnt,
    read_manifest,
    rows_of,
    simulated_in,
)
from toolorchestra.agents.evaluation.run_files import RunFiles, whole_manifest
from toolorchestra.agents.evaluation.summary import PlannedTrials, read_planned, summarise
from toolorchestra.agents.evaluation.summary_tables import (
    aligned,
    as_markdown,
    as_text,
    piped,
)
from toolorchestra.agents.evaluation.tau2_results import tau2_results, write_submission
from toolorchestra.agents.reports.page import write_page
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.prices import NANO, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.backends import EMBEDDED, Backing

FOLDERS = ("tau2", "tau2-submission", "gaia")
"""Formats that are files in a folder."""
SHOWN_CHANGES = 40
GRADED_AT_ONCE = 64


@dataclass(frozen=True)
class CompareOptions:
    """What `toolorchestra compare` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs. Each policy is compared with the same policy of the first run, or with its first policy."""
    against: str = ""
    """A policy of the first run that all others are compared with. Of figures: whom preference scores are measured
    against."""
    seeds: tuple[str, ...] = ()
    """Trainings that are compared as one policy: NAME=POLICY,POLICY, of whatever run. Intervals then hold what another
    training may come to. For example: --seeds mine=checkpoint:runs/seed-0,checkpoint:runs/seed-1"""
    single: tuple[str, ...] = ()
    """Policies that always ask one model: the best single policy is sought among them. All policies when left out."""
    reprice: str = ""
    """Bill the runs anew first: the name of a price sheet that comes with the package, or a JSON file."""
    rescore: bool = False
    """Grade the answers of the runs again first."""
    backends: tuple[str, ...] = ()
    """Backends for --rescore, as evaluate takes them, in place of what the run says. For example: --backends
    judge=gpt-5"""
    dataset: tuple[str, ...] = ()
    """Place of the questions now, for --rescore; where they were when left out."""
    spend_cap: float | None = None
    """Dollars that grading all runs may cost, for --rescore. What it does not pay for keeps its outcome."""
    table: Literal["comparison", "paper", "figures"] = "comparison"
    """The comparison; the paper's tables, beside its own numbers; or the figures of one run."""
    format: Literal["text", "markdown", "json", "tau2", "tau2-submission", "gaia"] = "text"
    """How it is written. The last three write a folder: the results files of τ²-Bench
    and what its leaderboard takes, of a run over Tau2-v0; and what GAIA's leaderboard takes."""
    policy: str = ""
    """One policy, whose trials alone are written, for the formats that write a folder."""
    out: Path | None = None
    """A file to write, or a new folder. Without it the terminal gets it, with what could steer one spelled out. With
    --reprice or --rescore the new run's folder; beside the run's when left out."""

    def __post_init__(self) -> None:
        check_spend_cap(self.spend_cap)


def run(given: CompareOptions) -> int:
    """Bill or grade anew where that is asked; then print or write."""
    _check(given)
    if given.format in FOLDERS:
        return _write_folder(given)
    runs, anew = given.runs, bool(given.reprice or given.rescore)
    if anew:
        cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
        runs = tuple(_made_anew(given, folder, cap) for folder in given.runs)
    made = {"comparison": _comparison, "paper": _paper, "figures": _figures}[given.table](given, runs)
    if given.out is None or anew:
        say(made)
        return DONE
    if given.out.is_dir() or not given.out.parent.is_dir():
        raise ConfigError(f"--out: a file in a folder that is there expected, got {given.out}")
    given.out.write_text(made if made.endswith("\n") else made + "\n", encoding="utf-8")
    say(f"written: {given.out}")
    return DONE


main = partial(command, CompareOptions, run, about=__doc__)


def _check(given: CompareOptions) -> None:
    """Refuse options that do not go together."""
    if not given.runs:
        raise ConfigError("compare takes folders of `toolorchestra evaluate --out FOLDER`, got none")
    if given.reprice and given.rescore:
        raise ConfigError("--reprice and --rescore: one after the other; the second takes the folder of the first")
    grading = [name for name in ("backends", "dataset", "spend_cap") if getattr(given, name)]
    if grading and not given.rescore:
        raise ConfigError(f"--{grading[0].replace('_', '-')} goes with --rescore; leave it out")
    alone = given.table == "figures" or given.format in FOLDERS
    if alone and len(given.runs) > 1:
        raise ConfigError(f"--table and --format {', '.join(FOLDERS)} are of one run, got {len(given.runs)}")
    if given.policy and given.format not in FOLDERS:
        raise ConfigError(f"--policy goes with --format {', '.join(FOLDERS)}, got --format {given.format}")


# -- tables ------------------------------------------------------------------------------------------------------------


def _comparison(given: CompareOptions, runs: Sequence[Path]) -> str:
    seeds = {name: policies.split(",") for name, policies in pairs("--seeds", given.seeds).items()}
    compared = compare_runs(read_runs(runs), given.against, given.single, seeds)
    if given.format == "json":
        return json.dumps(compared.to_json(), allow_nan=False, indent=1)
    return (comparison_text if given.format == "text" else comparison_markdown)(compared)


def _paper(given: CompareOptions, runs: Sequence[Path]) -> str:
    """The paper's tables of the runs together. A policy has its run's name before it where several are there."""
    if given.format not in ("text", "markdown"):
        raise ConfigError(f"--table paper: --format text or markdown expected, got {given.format}")
    rows: list[EvaluationRow] = []
    planned: dict[Cell, PlannedTrials] = {}
    named = read_runs(runs)
    labels = [f"{run.name}: " if len(runs) > 1 else "" for run in named]
    for folder, label, run in zip(runs, labels, named, strict=True):
        rows += [replace(row, policy=f"{label}{row.policy}") for row in run.rows]
        plan = read_planned(folder) if folder.is_dir() else None
        planned |= {(env, split, f"{label}{policy}"): n for (env, split, policy), n in (plan or {}).items()}
    text = given.format == "text"
    unreal = [f"{run.name}: {run.simulated} " for run in named if run.simulated]
    parts = [f"{''.join(unreal)}No comparison with the paper's."] if unreal else []
    against = f"{labels[0]}{given.against}" if given.against else ""
    for title, table in paper_tables(rows, planned, against):
        parts += [title, aligned(table)] if text else [f"### {title}", piped(table)]
    return "\n\n".join(parts)


def _figures(given: CompareOptions, runs: Sequence[Path]) -> str:
    """The figures of the one run."""
    (run,) = runs
    planned, unreal = (read_planned(run), simulated_in(read_manifest(run))) if run.is_dir() else (None, "")
    summary = summarise(rows_of(run), planned, given.against, read_learnt(run), unreal)
    if given.format == "json":
        return json.dumps(summary.to_json(), allow_nan=False, indent=1)
    return (as_text if given.format == "text" else as_markdown)(summary)


# -- other programs' files ---------------------------------------------------------------------------------------------


def _write_folder(given: CompareOptions) -> int:
    """Files of another program's format, in a folder of their own: it reads every file that it finds there."""
    out = given.out
    if out is None:
        raise ConfigError(f"--format {given.format} writes files: name a new folder with --out FOLDER")
    if given.table != "comparison" or given.against or given.reprice or given.rescore:
        raise ConfigError(f"--format {given.format} takes a run as it is, with --policy alone; leave the others out")
    check_folder("--out", out)
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out: a new folder expected, and {out} has files in it; name another")
    files = RunFiles.read(given.runs[0], given.policy)
    if given.format == "tau2-submission":
        told = write_submission(tau2_results(files), out)
    elif given.format == "gaia":
        told = write_gaia(files, out)
    else:
        made = tau2_results(files)
        out.mkdir(parents=True, exist_ok=True)
        for one in made:
            (out / one.name).write_text(json.dumps(one.data, allow_nan=False) + "\n", encoding="utf-8")
        told = [*(one.name for one in made), *(sentence for one in made for sentence in one.left_out)]
    for line in (*told, f"written: {out}"):
        say(line)
    return DONE


# -- billed anew, and graded again -------------------------------------------------------------------------------------


def _made_anew(given: CompareOptions, folder: Path, cap: SpendCap | None) -> Path:
    """A run under another price sheet, or with its answers graded again: a new folder, with its page."""
    sheet = load_sheet(given.reprice) if given.reprice else None
    place = folder.resolve()
    out = place.with_name(f"{place.name}-{sheet.sheet_id.replace('/', '-') if sheet else 'rescored'}")
    if given.out is not None:
        out = given.out if len(given.runs) == 1 else given.out / place.name
    told = reprice(folder, sheet, out).sentences() if sheet else _rescored(given, folder, out, cap)
    write_page(out)
    for line in (*told, f"written: {out}\n"):
        (say if given.format == "text" else say_aside)(line)
    return out


def _rescored(given: CompareOptions, folder: Path, out: Path, cap: SpendCap | None) -> list[str]:
    """Grade a run's answers again, into a new folder; what is to be said of it. The cap is of all runs together."""
    manifest = whole_manifest(folder)
    asked = _asked(manifest["asked"], given, folder)
    backing = _backing(asked)
    paid, before = out.with_name(f"{out.name}-{PAID}"), 0
    for charge in chain(*SpendJournal.left(paid).values()):
        before += charge.nano_usd
        if cap is not None:
            cap.add(charge.nano_usd, unconfirmed=charge.usage.unconfirmed)
    told = {"of_run": manifest["run_id"], "judges": list(backing.wanted.judges) if backing else []}

    async def graded() -> Rescoring:
        JOURNAL.set(SpendJournal(paid, cap))
        try:
            if backing is not None and backing.wanted.judges:
                await backing.check()
            return await rescore(folder, out, envs, GRADED_AT_ONCE, cap, told)
        finally:
            if backing is not None:
                await backing.aclose()

    try:
        envs = {(env.label, env.split): env.made for env in played_envs(asked, backing, None)}
        made = asyncio.run(graded())
    finally:
        if backing is not None:
            backing.close()
    paid.unlink(missing_ok=True)  # the new rows say what grading has cost
    broken = [f"Grading that was broken off before had cost {before / NANO:.9f} $ at most."] if before else []
    return [*_other_tasks(manifest, envs), *changes_table(made), *made.sentences(), *broken]


def _asked(before: Any, given: CompareOptions, folder: Path) -> EvaluateOptions:
    """What was asked of the run, with what is named otherwise now."""
    names = {one.name for one in fields(EvaluateOptions)}
    try:
        made = EvaluateOptions(**{name: _tupled(value) for name, value in before.items() if name in names})
    except TypeError as err:
        raise ConfigError(f"{folder} does not say what was asked of it ({err!s:.80})") from None
    words = backend_words(made.backends) | backend_words(given.backends)
    named = [words.pop(FILE)] if FILE in words else []
    backends = (*named, *(f"{name}={value}" for name, value in words.items()))
    return replace(made, backends=backends, dataset=given.dataset or made.dataset)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _backing(asked: EvaluateOptions) -> Backing | None:
    """The run's models and judges, without what grading does not ask: index, web and sandbox. A recording is not
    written again; a replay and a cache answer as they did."""
    if (named := wanted_of(asked)) is None:
        return None
    wanted = replace(named, index=EMBEDDED, web=False, sandbox="")
    return Backing(replace(wanted, cassette="", mode="") if wanted.mode == "record" else wanted)


def _other_tasks(manifest: dict[str, Any], envs: Envs) -> list[str]:
    """Where the tasks are of another version now."""
    before = manifest.get("task_versions") or {}
    now = {label: getattr(made.source, "version", "") for (label, _), made in envs.items()}
    return [
        f"{label} was played on tasks of version {before[label]}, and is graded by those of {version}."
        for label, version in now.items()
        if version and before.get(label, version) != version
    ]


def changes_table(made: Rescoring) -> list[str]:
    """The trials whose outcome is another one: task, trial, what it was and what it is."""
    if not made.changed:
        return []
    cells = [["task", "trial", "policy", "was", "is"]]
    for before, now in made.changed[:SHOWN_CHANGES]:
        cells.append([now.task, str(now.trial), now.policy, _outcome(before), _outcome(now)])
    lines = [aligned(cells)]
    if (more := len(made.changed) - SHOWN_CHANGES) > 0:
        lines.append(f"and {more} more: `rescored` in rows.jsonl says what each was")
    return [*lines, ""]


def _outcome(row: EvaluationRow) -> str:
    return row.status if row.right is None else f"{row.right:g}"
