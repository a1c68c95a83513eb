"""What each stage of training brought, on held-out tasks: `toolorchestra stages runs/lm-cpu-seed0 --tasks 100`.

The same test tasks are played by the model as it was before any training, after its supervised start, and by the run's
best checkpoint; and by cheapest, strongest, a cascade and the oracle. What was played is kept in report/stages.json of
the run and is not played again, so `toolorchestra stages RUN RUN` puts runs together that were played side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, check_runs, command, say
from toolorchestra.agents.evaluation.stages import as_markdown, together
from toolorchestra.agents.training.stages_of_a_run import stages_of
from toolorchestra.envs.base.errors import AT_LEAST_ONE, require


@dataclass(frozen=True)
class StagesOptions:
    """What `toolorchestra stages` takes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs that have begun reinforcement learning."""
    tasks: int = 100
    """How many of the run's own test tasks are played in each environment."""
    again: bool = False
    """Play again what was kept from an earlier call."""

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "tasks")


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(StagesOptions, run, given, about=__doc__)


def run(given: StagesOptions) -> int:
    """Play what is missing, and print the tables of each run and of all together."""
    check_runs(given.runs, "stages")
    found = [stages_of(folder, given.tasks, again=given.again, say=say) for folder in given.runs]
    for folder, played in zip(given.runs, found, strict=True):
        say(f"\n## {folder.name}\n\n{as_markdown(played)}")
    if len(found) > 1:
        say(f"\n## All runs\n\n{as_markdown(together(found))}")
    return DONE
