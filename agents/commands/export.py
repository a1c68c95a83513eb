"""A run of `toolorchestra evaluate` for other programs: `toolorchestra export runs/mine --format csv --table rows`.

Figures and rows are printed, or written to a file with --out. Of a run over Tau2-v0, `--format tau2 --out FOLDER`
writes the benchmark's own results files, and `--format tau2-submission` what its leaderboard takes. `--format inspect`
writes logs of Inspect AI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.evaluation.exports import rows_as_csv, rows_as_json, rows_as_markdown
from toolorchestra.agents.evaluation.figures import RunSummary
from toolorchestra.agents.evaluation.inspect_log import inspect_logs
from toolorchestra.agents.evaluation.rows import EvaluationRow, read_rows
from toolorchestra.agents.evaluation.run_files import RunFiles
from toolorchestra.agents.evaluation.summary import latest, read_planned, summarise
from toolorchestra.agents.evaluation.summary_tables import as_csv, as_markdown, as_text
from toolorchestra.agents.evaluation.tau2_results import tau2_results
from toolorchestra.agents.evaluation.tau2_submission import read_details, write_submission
from toolorchestra.envs.base.errors import ConfigError

FOLDERS = ("tau2", "tau2-submission", "inspect")
"""Formats that are files in a folder."""


@dataclass(frozen=True)
class ExportOptions:
    """What `toolorchestra export` takes."""

    run: tyro.conf.Positional[Path]
    """The folder of a run, as `toolorchestra evaluate --out FOLDER` made it."""
    format: Literal["text", "csv", "json", "markdown", "tau2", "tau2-submission", "inspect"] = "text"
    """How it is written; text is for the summary alone. The last three write a folder."""
    table: Literal["summary", "rows"] = "summary"
    """The figures, or the trials that they are made of."""
    baseline: str = ""
    """A policy of the run that preference scores are measured against."""
    policy: str = ""
    """Of the formats that write a folder: this policy's trials alone."""
    about: Path | None = None
    """Of tau2 and tau2-submission: a TOML or JSON file with model_name, organization, email, name, github, is_new,
    notes. What it lacks is to be filled in by hand."""
    out: Path | None = None
    """A file to write, or a new folder. Without it the terminal gets it, with what could steer one spelled out."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(ExportOptions, run, given, about=__doc__)


def run(given: ExportOptions) -> int:
    """Print it or write it."""
    if given.format in FOLDERS:
        return _write_folder(given)
    for option in ("policy", "about"):
        if getattr(given, option):
            raise ConfigError(f"--{option} goes with --format {', '.join(FOLDERS)}, got --format {given.format}")
    made = _exported(given)
    if given.out is None:
        say(made)
        return DONE
    if given.out.is_dir() or not given.out.parent.is_dir():
        raise ConfigError(f"--out: a file in a folder that is there expected, got {given.out}")
    given.out.write_text(made if made.endswith("\n") else made + "\n", encoding="utf-8")
    say(f"written: {given.out}")
    return DONE


def _exported(given: ExportOptions) -> str:
    rows = latest(read_rows(given.run))
    if given.table == "rows":
        forms: Mapping[str, Callable[[Sequence[EvaluationRow]], str]] = {
            "csv": rows_as_csv, "json": rows_as_json, "markdown": rows_as_markdown,
        }  # fmt: skip
        if given.format not in forms:
            raise ConfigError(f"--table rows: --format {', '.join(forms)} expected, got {given.format}")
        return forms[given.format](rows)
    planned = read_planned(given.run) if given.run.is_dir() else None
    written: Mapping[str, Callable[[RunSummary], str]] = {
        "text": as_text, "csv": as_csv, "markdown": as_markdown, "json": _as_json,
    }  # fmt: skip
    return written[given.format](summarise(rows, planned, given.baseline))


def _as_json(summary: RunSummary) -> str:
    return json.dumps(summary.to_json(), allow_nan=False, indent=1)


# -- other programs' files ---------------------------------------------------------------------------------------------


def _write_folder(given: ExportOptions) -> int:
    """Files of another program's format, in a folder of their own: it reads every file that it finds there."""
    out = given.out
    if out is None:
        raise ConfigError(f"--format {given.format} writes files: name a new folder with --out FOLDER")
    if given.table == "rows" or given.baseline:
        raise ConfigError(f"--table and --baseline are about figures; leave them out with --format {given.format}")
    if given.about is not None and given.format == "inspect":
        raise ConfigError("--about goes with --format tau2 and tau2-submission; leave it out")
    check_folder("--out", out)
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out: a new folder expected, and {out} has files in it; name another")
    files = RunFiles.read(given.run, given.policy)
    for line in _written_to(given, files, out):
        say(line)
    say(f"written: {out}")
    return DONE


def _written_to(given: ExportOptions, files: RunFiles, out: Path) -> list[str]:
    """Write, and give what is to be said of it."""
    if given.format == "inspect":
        return _write_each(out, dict(inspect_logs(files)))
    details = read_details(given.about)
    made = tau2_results(files, details.model_name)
    if given.format == "tau2":
        return [*_write_each(out, {one.name: one.data for one in made}), *(s for one in made for s in one.left_out)]
    return write_submission(made, details, out)


def _write_each(out: Path, made: Mapping[str, object]) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (out / name).write_text(json.dumps(data, allow_nan=False) + "\n", encoding="utf-8")
    return [*made]
