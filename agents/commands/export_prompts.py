"""Tasks as a file for trainers that read their prompts from one, such as SkyRL's:

toolorchestra export prompts --env HLE-v0 --tasks 4096 --out data/train.parquet
toolorchestra export prompts --env HLE-v0 --tasks 128 --split validation --out data/validation.parquet

A row has the first messages, the environment's id and arguments, the task, the seed and the user's preference. Several
--env share the tasks evenly. Validation and test have tools, prices and wordings that training never sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from toolorchestra.agents.adapters.prompt_rows import prompt_rows, write_rows
from toolorchestra.agents.commands.console import DONE, check_counts, check_folder, command, say
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class ExportPromptsOptions:
    """What `toolorchestra export prompts` takes."""

    out: Path
    """The file to write: .parquet, or .jsonl."""
    env: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """An id and NAME=VALUE of gym.make's arguments; may come again. For example: --env HLE-v0 max_turns=50"""
    tasks: int = 1024
    """How many rows the file has in all."""
    split: Literal["train", "validation", "test"] = "train"
    """Split that the rows' tasks are of."""
    seed: int = 0
    """Seed of the choice of tasks, and of all that is drawn in their episodes."""


def run(given: ExportPromptsOptions) -> int:
    """Writes the tasks to the file that `out` names."""
    check_counts(given, {"tasks": 1})
    check_folder("--out", given.out.parent)
    if not given.env:
        raise ConfigError("--env is missing: name an environment, for example --env HLE-v0")
    mixes = [EnvMix(one.env_id, arguments=one.arguments) for one in chosen_envs(given.env)]
    rows = []
    for number, mix in enumerate(mixes):
        share = len(range(number, given.tasks, len(mixes)))
        rows += list(prompt_rows(mix, given.split, share, given.seed))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    write_rows(rows, given.out)
    say(f"{given.out}: {len(rows)} tasks of {', '.join(mix.env_id for mix in mixes)}, split {given.split}")
    return DONE


main = partial(command, ExportPromptsOptions, run, about=__doc__)
