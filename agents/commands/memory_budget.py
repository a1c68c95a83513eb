"""What a preset takes of a GPU's memory, from the model's shape alone: no GPU and no weights are needed.

toolorchestra memory-budget --preset small-gpu
toolorchestra memory-budget --preset 8b-h100 --shape models/mine/config.json --gigabytes 141

A preset names the machine that it is made for; --shape and --gigabytes ask about another model or another GPU.
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
from toolorchestra.agents.configuration.presets import MACHINES, Machine
from toolorchestra.agents.engines.memory import SERVER_SHARE, Shape, budget, served_tokens
from toolorchestra.agents.engines.shapes import SHAPES
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError


def read_shape(path: Path) -> Mapping[str, Any]:
    """Reads a model's config.json. Raises ConfigError where the path names none."""
    if not path.is_file():
        raise ConfigError(f"{path} is no file; name a model's config.json, or one of: {', '.join(SHAPES)}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ConfigError(f"{path} is not JSON: {err}; name a config.json, or one of: {', '.join(SHAPES)}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: a JSON object expected, got {found!r:.60}")
    return found


@dataclass(frozen=True)
class MemoryBudgetOptions:
    """What `toolorchestra memory-budget` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    shape: str = ""
    """A model's config.json, or one of: qwen3-8b, qwen3-1.7b, qwen3-0.6b; "" is the preset's."""
    gigabytes: float = 0.0
    """Of the device, 10^9 bytes each; 0 is that of the preset's machine."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> MemoryBudgetOptions:
        return MemoryBudgetOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(MemoryBudgetOptions, run, words, about=__doc__, default=default)


def run(given: MemoryBudgetOptions) -> int:
    """Print the budget; a run that does not fit is refused."""
    machine = machine_of(given.settings.preset)
    shape = shape_named(given.shape or machine.shape)
    gigabytes = given.gigabytes or machine.gigabytes
    if gigabytes <= 0:
        raise ConfigError(f"--gigabytes is above 0 and says how much memory the GPU has, got {given.gigabytes!r}")
    device_bytes = int(gigabytes * 1e9)
    made = budget(plan(given.settings.config, shape, device_bytes))
    made.check()
    say(made.table())
    most = f"{given.settings.max_context:,} are an episode's most"
    if made.cached_tokens:
        say(f"\nthe sampler's cache holds {made.cached_tokens:,} tokens, {most}")
    if given.settings.model.sampler == "served":
        held = served_tokens(Shape.read(shape), device_bytes)
        say(f"\na server with {SERVER_SHARE:.0%} of a GPU like this one has a cache of {held:,} tokens, {most}")
    return DONE


def machine_of(name: str) -> Machine:
    """The machine that a preset is made for; an empty one for settings of another name."""
    return MACHINES.get(name, Machine("a machine of your own"))


def shape_named(name: str) -> Mapping[str, Any]:
    """A model's shape by its short name, or from its config.json."""
    if not name:
        raise ConfigError(f"--shape says which model it is about: a config.json, or one of: {', '.join(SHAPES)}")
    return SHAPES.get(name) or read_shape(Path(name))
