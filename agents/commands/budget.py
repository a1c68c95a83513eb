"""What a run will take of a GPU's memory, before anything is loaded: `toolorchestra budget --preset 8b-h100`.

toolorchestra budget --preset 8b-h100 --shape models/mine/config.json --gigabytes 141

It is arithmetic, from the model's shape and the machine of the preset. A run that does not fit is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.commands.train import Settings, preset_named
from toolorchestra.agents.configuration.presets import MACHINES, TargetMachine
from toolorchestra.agents.engines.gpu_arithmetic import (
    SERVER_SHARE,
    SHAPES,
    Shape,
    budget,
    served_tokens,
)
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class BudgetOptions:
    """What `toolorchestra budget` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    shape: str = ""
    """A model's config.json, or one of: qwen3-8b, qwen3-0.6b; "" is the preset's."""
    gigabytes: float = 0.0
    """Memory of the device, 10^9 bytes each; 0 is that of the preset's machine."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> BudgetOptions:
        return BudgetOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(BudgetOptions, run, words, about=__doc__, default=default)


def run(given: BudgetOptions) -> int:
    """Print the table. A run that does not fit is refused."""
    say(memory(given, MACHINES.get(given.settings.preset, TargetMachine("a machine of your own"))))
    return DONE


def memory(given: BudgetOptions, machine: TargetMachine) -> str:
    """The table of a GPU's memory, and how many tokens the sampler's cache holds."""
    shape = shape_named(given.shape or machine.shape)
    gigabytes = given.gigabytes or machine.gigabytes
    if gigabytes <= 0:
        raise ConfigError(f"--gigabytes is above 0 and says how much memory the GPU has, got {given.gigabytes!r}")
    device_bytes = int(gigabytes * 1e9)
    made = budget(plan(given.settings.config, shape, device_bytes))
    made.check()
    lines = [made.table()]
    most = f"{given.settings.max_context:,} are an episode's most"
    if made.cached_tokens:
        lines.append(f"the sampler's cache holds {made.cached_tokens:,} tokens, {most}")
    if given.settings.model.sampler == "served":
        held = served_tokens(Shape.read(shape), device_bytes)
        lines.append(f"a server with {SERVER_SHARE:.0%} of a GPU like this one has a cache of {held:,} tokens, {most}")
    return "\n\n".join(lines)


def shape_named(name: str) -> Mapping[str, Any]:
    """A model's shape by its short name, or from its config.json."""
    if not name:
        raise ConfigError(f"--shape says which model it is about: a config.json, or one of: {', '.join(SHAPES)}")
    if name in SHAPES:
        return SHAPES[name]
    valid = f"name a model's config.json, or one of: {', '.join(SHAPES)}"
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{path} is no file; {valid}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ConfigError(f"{path} is not JSON: {err}; {valid}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: a JSON object expected, got {found!r:.60}; {valid}")
    return found
