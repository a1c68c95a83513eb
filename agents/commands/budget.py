"""What a run will take, before anything is loaded or spent: a GPU's memory, the seconds of a step, dollars of experts.

toolorchestra budget --preset 8b-h100
toolorchestra budget --preset 8b-h100 --shape models/mine/config.json --gigabytes 141
toolorchestra budget --tasks data/train.parquet --rollouts 8

Memory and seconds are arithmetic, from the model's shape and the machine of the preset. With --tasks some tasks of that
file are played in the simulated worlds instead, by the cheapest and by the strongest routing, and billed by the price
sheet of each row: a pass will hardly cost less than the one, or more than the other.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.adapters.prompt_rows import Row, job_of_row, read_rows
from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.commands.train import Settings, preset_named
from toolorchestra.agents.configuration.presets import MACHINES, TargetMachine
from toolorchestra.agents.engines.gpu_arithmetic import (
    SERVER_SHARE,
    SHAPES,
    Shape,
    StepPlan,
    StepSeconds,
    budget,
    served_tokens,
    step_seconds,
)
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline, players
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR

OPENING_TOKENS, RESULT_TOKENS = 1_000, 3_000
"""What an episode begins with, and what tools add to it: HLE-v0 and FRAMES-v0 begin with at most 1,093 tokens."""
UTILISATION = (0.25, 0.4)
"""Share of a GPU's peak that a trainer reaches, from below to above: a guess."""
BILLED = ("cheapest", "strongest")
BILLED_TASKS = 40
"""Tasks of a file that are played to estimate by."""


@dataclass(frozen=True)
class BudgetOptions:
    """What `toolorchestra budget` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    shape: str = ""
    """A model's config.json, or one of: qwen3-8b, qwen3-0.6b; "" is the preset's."""
    gigabytes: float = 0.0
    """Memory of the device, 10^9 bytes each; 0 is that of the preset's machine."""
    sampled_tokens: int = 0
    """The model writes in an episode, thoughts and all; 0 takes a quarter of the run's max_context."""
    tasks: Path | None = None
    """A file of `toolorchestra export prompts`: what one pass over it costs, the policy's own tokens left out."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> BudgetOptions:
        return BudgetOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(BudgetOptions, run, words, about=__doc__, default=default)


def run(given: BudgetOptions) -> int:
    """Print the bill of a file, or memory and seconds. A run that does not fit is refused."""
    if given.tasks is not None:
        say(bill(given.tasks, given.settings.rollouts))
        return DONE
    machine = MACHINES.get(given.settings.preset, TargetMachine("a machine of your own"))
    say(memory(given, machine))
    if machine.gpus:
        say(f"\n{seconds(given, machine)}")
    return DONE


# -- memory ------------------------------------------------------------------------------------------------------------


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


# -- seconds -----------------------------------------------------------------------------------------------------------


def seconds(given: BudgetOptions, machine: TargetMachine) -> str:
    """The table of a step's seconds; each has a range, since nobody knows the rates before the first step."""
    slow, fast = (step_seconds(step_plan(given, machine, quick=quick)) for quick in (False, True))
    made = step_plan(given, machine, quick=True)
    steps = given.settings.steps
    hours = [sum(found) * steps / 3600 for found in (fast, slow)]
    rows = [f"| {name} | {_range(*both)} |" for name, *both in zip(StepSeconds._fields, fast, slow, strict=True)]
    return "\n".join(
        [
            f"{machine.about}: {made.episodes} episodes of {made.length:,} tokens a step, {made.sampled_tokens:,} of "
            f"them sampled; {made.sampling_gpus} GPU to sample, {made.training_gpus} to train\n",
            "| part of a step | seconds, by arithmetic |\n|---|---|",
            *rows,
            f"| together | {_range(sum(fast), sum(slow))} |",
            f"\n{steps} steps: {hours[0]:.0f} to {hours[1]:.0f} hours at the least: evaluations, experts and the wait "
            "for the longest episodes come on top",
        ]
    )


def step_plan(given: BudgetOptions, machine: TargetMachine, *, quick: bool) -> StepPlan:
    """One step by the higher or the lower of the guesses."""
    config = given.settings.config
    if given.sampled_tokens < 0:
        raise ConfigError(f"--sampled-tokens must not be negative, got {given.sampled_tokens}")
    sampled = given.sampled_tokens or config.max_context // 4
    return StepPlan(
        shape=Shape.read(shape_named(given.shape or machine.shape)),
        episodes=config.groups * config.rollouts,
        length=OPENING_TOKENS + sampled + RESULT_TOKENS,
        sampled_tokens=sampled,
        sampled_per_second=machine.sampled_per_second[quick],
        sampling_gpus=machine.sampling,
        training_gpus=max(1, machine.gpus - machine.sampling),
        tflops=machine.tflops,
        utilisation=UTILISATION[quick],
        lora_rank=config.model.lora_rank,
        checkpointing=config.model.gradient_checkpointing,
        reference=bool(config.loss.kl_weight),
        drops_weights=config.model.sampler == "vllm",
    )


def _range(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}" if f"{low:.0f}" != f"{high:.0f}" else f"{low:.0f}"


# -- dollars -----------------------------------------------------------------------------------------------------------


def bill(file: Path, rollouts: int) -> str:
    """What one pass over a file of tasks costs in experts and tools, by role."""
    if not file.is_file():
        raise ConfigError(f"{file} is not there; write it with: toolorchestra export prompts")
    rows = read_rows(file)
    some = rows[:: max(1, len(rows) // BILLED_TASKS)][:BILLED_TASKS]
    count = len(rows) * rollouts
    lines = [f"{len(rows):,} tasks x {rollouts} rollouts, by simulated plays of {len(some)} tasks, by role:"]
    for player in BILLED:
        usd, calls, waited = episode_bill(some, player)
        roles = ", ".join(f"{role} {value * count:,.2f}" for role, value in usd.items())
        total = sum(usd.values()) * count
        lines.append(
            f"  {player}: $ {total:,.2f} ({roles}); {calls * count:,.0f} calls; {waited:.0f} s of tools an episode"
        )
    return "\n".join(lines)


def episode_bill(rows: Sequence[Row], player: str) -> tuple[Mapping[str, float], float, float]:
    """Dollars by role, calls and seconds of a mean episode, the policy's own tokens left out."""
    nano: Counter[str] = Counter()
    calls, waited = 0, 0.0
    for row in rows:
        job = job_of_row(row)
        if player not in players(job.factory.source):
            raise ConfigError(
                f"nobody knows a {player} way through {row['gym_id']}, so no simulated play says what it costs; play "
                "some tasks first: toolorchestra evaluate --estimate FOLDER"
            )
        episode = played(job.factory, baseline(player, job.seed), job.seed, job.options)
        for charge in episode.ledger:
            if charge.usage.role != ORCHESTRATOR:
                nano[charge.usage.role] += charge.nano_usd
        calls += sum(episode.calls.values())
        waited += episode.ledger.seconds
    size = max(1, len(rows))
    return {role: value / NANO / size for role, value in nano.items()}, calls / size, waited / size
