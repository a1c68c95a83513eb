"""How long a training step of a preset takes on the machine that it names, by arithmetic: nothing of it was measured.

toolorchestra step-seconds --preset 8b-h100
toolorchestra step-seconds --preset 8b-node --sampled-tokens 4000 --utilisation 0.3

Each figure has a range, since nobody knows the rates before the first step. Experts and tools come on top: what an
episode waits for them is told by `toolorchestra epoch-bill`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.commands.memory_budget import machine_of, shape_named
from toolorchestra.agents.commands.train import Settings, preset_named
from toolorchestra.agents.engines.memory import Shape
from toolorchestra.agents.engines.step_time import StepPlan, StepSeconds, step_seconds
from toolorchestra.envs.base.errors import NOT_NEGATIVE, POSITIVE, SHARE, ConfigError, require


@dataclass(frozen=True)
class StepSecondsOptions:
    """What `toolorchestra step-seconds` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    opening_tokens: int = 1_000
    """An episode begins with: docs/results/prompts.md has the environments'."""
    sampled_tokens: int = 0
    """The model writes in an episode, thoughts and all; 0 takes a quarter of the run's max_context."""
    result_tokens: int = 3_000
    """Tools add to an episode."""
    sampled_per_second: float = 0.0
    """Tokens that one GPU samples in a second; 0 takes the two guesses of the preset's machine."""
    utilisation: float = 0.0
    """Share of the GPU's peak that the trainer reaches; 0 takes 0.25 and 0.4."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> StepSecondsOptions:
        return StepSecondsOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(StepSecondsOptions, run, words, about=__doc__, default=default)


def run(given: StepSecondsOptions) -> int:
    """Print the table."""
    slow, fast = (step_seconds(plan_of(given, quick=quick)) for quick in (False, True))
    made = plan_of(given, quick=True)
    config, machine = given.settings.config, machine_of(given.settings.preset)
    say(
        f"{machine.about}: {made.episodes} episodes of {made.length:,} tokens a step, {made.sampled_tokens:,} of them "
        f"sampled; {made.sampling_gpus} GPU to sample, {made.training_gpus} to train\n\n"
        "| part of a step | seconds, by arithmetic |\n|---|---|"
    )
    for name in ("rollouts", "training", "handover", "together"):
        say(f"| {name} | {_range(name, fast, slow)} |")
    hours = [found.together * config.steps / 3600 for found in (fast, slow)]
    say(f"\n{config.steps} steps: {hours[0]:.0f} to {hours[1]:.0f} hours, without evaluations and without experts")
    return DONE


def plan_of(given: StepSecondsOptions, *, quick: bool) -> StepPlan:
    """One step by the higher or the lower of the guesses."""
    config, machine = given.settings.config, machine_of(given.settings.preset)
    if not machine.gpus:
        raise ConfigError(
            f"the preset {given.settings.preset!r} is for a CPU, and these are figures of GPUs; "
            "docs/results/training.md has measured ones of the tiny preset"
        )
    require(given, POSITIVE, "opening_tokens", "result_tokens", where="--")
    require(given, NOT_NEGATIVE, "sampled_tokens", "sampled_per_second", where="--")
    require(given, SHARE, "utilisation", where="--")
    rate = given.sampled_per_second or machine.sampled_per_second[quick]
    return StepPlan(
        shape=Shape.read(shape_named(machine.shape)),
        episodes=config.groups * config.rollouts,
        opening_tokens=given.opening_tokens,
        sampled_tokens=given.sampled_tokens or config.max_context // 4,
        result_tokens=given.result_tokens,
        sampled_per_second=rate,
        sampling_gpus=machine.sampling,
        training_gpus=max(1, machine.gpus - machine.sampling),
        tflops=machine.tflops,
        utilisation=given.utilisation or (0.25, 0.4)[quick],
        lora_rank=config.model.lora_rank,
        checkpointing=config.model.gradient_checkpointing,
        reference=bool(config.loss.kl),
        drops_weights=config.model.sampler == "vllm",
    )


def _range(name: str, fast: StepSeconds, slow: StepSeconds) -> str:
    low, high = getattr(fast, name), getattr(slow, name)
    return f"{low:.0f} to {high:.0f}" if f"{low:.0f}" != f"{high:.0f}" else f"{low:.0f}"
