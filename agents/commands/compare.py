"""Runs of `toolorchestra evaluate` beside each other: `toolorchestra compare runs/before runs/after`.

Differences are of pairs: the same trial of the same task, under the same seed and prices. One run alone compares its
own policies. docs/evaluation.md says what each figure is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.evaluation.comparison import compare_runs, read_runs
from toolorchestra.agents.evaluation.comparison_tables import comparison_markdown, comparison_text
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class CompareOptions:
    """What `toolorchestra compare` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs. Each policy is compared with the same policy of the first run, or with its first policy."""
    against: str = ""
    """A policy of the first run that all others are compared with."""
    single: tuple[str, ...] = ()
    """Policies that always ask one model: the best single policy is sought among them. All policies when left out."""
    format: Literal["text", "markdown", "json"] = "text"
    """How the comparison is printed."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(CompareOptions, run, given, about=__doc__)


def run(given: CompareOptions) -> int:
    """Print the comparison."""
    if not given.runs:
        raise ConfigError("compare takes folders of `toolorchestra evaluate --out FOLDER`, got none")
    runs = read_runs(given.runs)
    compared = compare_runs(runs, given.against, given.single)
    if given.format == "json":
        say(json.dumps(compared.to_json(), allow_nan=False, indent=1))
    else:
        say((comparison_text if given.format == "text" else comparison_markdown)(compared))
    return DONE
