"""What a run has trained, for other programs: `toolorchestra export model runs/tiny-seed0 models/mine`.

Writes a folder that transformers and vLLM load: weights, configuration, tokenizer and chat template. Of a run's folder
the best checkpoint is written, with the averaged weights where the run kept an average: those that its report is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.training.saved_model import export_model


@dataclass(frozen=True)
class ExportModelOptions:
    """What `toolorchestra export model` takes."""

    run: tyro.conf.Positional[Path]
    """A run's folder, or one of its checkpoints."""
    folder: tyro.conf.Positional[Path]
    """The new folder. One that is not empty is refused."""
    adapter: bool = False
    """Write the LoRA adapter alone, as peft does; without it the adapter is merged into the weights."""
    dtype: Literal["", "float32", "bfloat16", "float16"] = ""
    """Type of the weights; "" keeps the run's own."""


def run(given: ExportModelOptions) -> int:
    """Write the folder, and say what it holds and how it is used."""
    how = export_model(given.run, given.folder, adapter=given.adapter, dtype=given.dtype)
    told = "averaged weights" if how.averaged else "weights"
    told += f" of an adapter of rank {how.lora_rank} on {how.base}" if how.lora_rank else ""
    say(f"{given.folder}: {told} of step {how.step}")
    say(f"play it here: toolorchestra play --policy checkpoint:{given.folder}")
    return DONE


main = partial(command, ExportModelOptions, run, about=__doc__)
