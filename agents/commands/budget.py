"""What a run will take of a GPU's memory, of hours and of dollars, before anything is loaded.

toolorchestra budget --preset 8b-h100 --shape models/mine/config.json --gigabytes 141
toolorchestra budget --preset 8b-node --model.cache fp8
toolorchestra budget --machines             # all presets for GPUs, in one table

It is arithmetic, from the model's shape, the machine of the preset and rates measured on one GPU. A run that does not
fit is refused.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.commands.train import Settings, preset_named
from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.presets import MACHINES, TargetMachine, preset
from toolorchestra.agents.engines.gpu_arithmetic import SERVER_SHARE, SHAPES, Shape, budget, served_tokens
from toolorchestra.agents.engines.step_time import GPUS, Episodes, StepPlan, StepSeconds, step_seconds
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError

CLUSTER = TargetMachine(80.0, 16, 8, "qwen3-8b")
"""Two nodes of eight H100. Half of them train, half sample, in turns."""


@dataclass(frozen=True)
class BudgetOptions:
    """What `toolorchestra budget` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    shape: str = ""
    """A model's config.json, or one of: qwen3-8b, qwen3-0.6b; "" is the preset's."""
    gigabytes: float = 0.0
    """Memory of the device, 10^9 bytes each; 0 is that of the preset's machine."""
    machines: bool = False
    """A table of the presets for GPUs, in place of one of them."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> BudgetOptions:
        return BudgetOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(BudgetOptions, run, words, about=__doc__, default=default)


def run(given: BudgetOptions) -> int:
    """Print the table. A run that does not fit is refused."""
    if given.machines:
        say(machines())
        return DONE
    machine = MACHINES.get(given.settings.preset, TargetMachine())
    if given.gigabytes:
        machine = replace(machine, gigabytes=given.gigabytes)
    config, shape = given.settings.config, shape_named(given.shape or machine.shape)
    say(memory(config, machine, shape))
    if machine.gigabytes in GPUS:
        say(f"\n{told(config, machine, shape)}")
    return DONE


def memory(config: TrainConfig, machine: TargetMachine, shape: Mapping[str, Any]) -> str:
    """The table of a GPU's memory, and how many tokens the sampler's cache holds."""
    if not 0 < machine.gigabytes < math.inf:
        raise ConfigError(f"--gigabytes, the memory of the GPU, is a number above 0, got {machine.gigabytes!r}")
    made = budget(plan(config, shape, int(machine.gigabytes * 1e9), max(1, machine.training)))
    made.check()
    lines = [made.table()]
    most = f"{config.max_context:,} are an episode's most"
    if made.cached_tokens:
        lines.append(f"the sampler's cache holds {made.cached_tokens:,} tokens, {most}")
    if config.model.sampler == "served":
        held = served_tokens(Shape.read(shape), int(machine.gigabytes * 1e9), _cache_width(config))
        lines.append(f"a server with {SERVER_SHARE:.0%} of a GPU like this one has a cache of {held:,} tokens, {most}")
    return "\n\n".join(lines)


def _cache_width(config: TrainConfig) -> int:
    return 1 if config.model.cache == "fp8" else 2


def seconds(config: TrainConfig, machine: TargetMachine, shape: Mapping[str, Any]) -> StepSeconds:
    """How long a step takes."""
    read, wanted, size = Shape.read(shape), config.model, int(machine.gigabytes * 1e9)
    width = _cache_width(config)
    cached = served_tokens(read, size, width)
    if wanted.sampler == "vllm":  # it trains in turns with it, in what that leaves
        cached = budget(plan(config, shape, size, max(1, machine.training))).cached_tokens
    return step_seconds(
        StepPlan(
            read,
            GPUS[machine.gigabytes],
            config.groups * config.rollouts,
            sampling=machine.sampling,
            training=machine.training,
            cached=cached,
            rows=wanted.rows,
            lora=bool(wanted.lora_rank),
            checkpointing=wanted.gradient_checkpointing,
            reference=bool(config.loss.kl_weight),
            ahead=config.max_staleness > 0,
            kv_width=width,
        ),
        Episodes(most=config.max_tokens, context=config.max_context),
    )


def told(config: TrainConfig, machine: TargetMachine, shape: Mapping[str, Any]) -> str:
    """A step's seconds and the run's hours in words."""
    took, played = seconds(config, machine, shape), config.groups * config.rollouts
    hours, dollars = took.together * config.steps / 3600, GPUS[machine.gigabytes].dollars
    return (
        f"a step of {played:,} episodes: {took.training:,.0f} s of training, {took.playing:,.0f} s of playing (the "
        f"cache has {took.hits:.0%} of the prompts' tokens), {took.together:,.0f} s in all; {config.steps} steps: "
        f"{hours:,.0f} hours, $ {hours * machine.gpus * dollars:,.0f} at {dollars:g} $ an hour for each GPU. What "
        "experts are paid is told by `toolorchestra train --estimate`"
    )


def machines() -> str:
    """The presets for GPUs, and a cluster of two nodes, as a table in Markdown."""
    rows = [(name, preset(name), machine) for name, machine in MACHINES.items()]
    rows.append(("paper, by SkyRL", preset("paper"), CLUSTER))
    lines = ["| preset | GPUs | plays a step | trains, s | plays, s | step, s | steps | hours | $ |", "|---" * 9 + "|"]
    for name, config, machine in rows:
        took = seconds(config, machine, SHAPES[machine.shape])
        hours = took.together * config.steps / 3600
        cells = (
            f"`{name}`", f"{machine.gpus} x {machine.gigabytes:.0f} GB", f"{config.groups} x {config.rollouts}",
            f"{took.training:,.0f}", f"{took.playing:,.0f}", f"{took.together:,.0f}", config.steps, f"{hours:,.0f}",
            f"{hours * machine.gpus * GPUS[machine.gigabytes].dollars:,.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def shape_named(name: str) -> Mapping[str, Any]:
    """A model's shape by its short name, or from its config.json."""
    if name in SHAPES:
        return SHAPES[name]
    valid = f"name a model's config.json, or one of: {', '.join(SHAPES)}"
    if not name:
        raise ConfigError(f"--shape: the preset's model has none that is known; {valid}")
    try:
        return dict(json.loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as err:
        raise ConfigError(f"--shape: {err}; {valid}") from None
