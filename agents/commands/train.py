"""Train an orchestrator; without options the tiny one, on this machine, offline.

Every setting of a run is an option, grouped below by what it is about; --preset says what they start from. With
--router, a router of numbers is trained by RLlib instead: train --router --help.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from toolorchestra.agents.algorithms import algorithm_of
from toolorchestra.agents.commands.console import DONE, STOPPED, check_folder, command, say
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig, with_environments
from toolorchestra.agents.configuration.presets import PRESETS, preset
from toolorchestra.agents.engines.base import Kind, LossParams
from toolorchestra.agents.reports.training_report import episodes_of_report, write_report
from toolorchestra.agents.training.build import build, default_folder, follow, follows, with_room
from toolorchestra.agents.training.demonstrations import check_file
from toolorchestra.agents.training.saved_model import base_name, saved_model
from toolorchestra.agents.training.spending import counted, estimate_of, paid_by_one
from toolorchestra.agents.training.trainer import train
from toolorchestra.agents.training.training_run import TrainingRun, claimed, found_in

ROUTER = "--router"
STOPPED_SAYS = "stopped; with --resume the run goes on from its last checkpoint, or begins anew where there is none yet"


@dataclass(frozen=True)
class Loss(LossParams):
    """The loss as options. What it is of a step, and at which temperature its data were sampled, the loop says."""

    kind: tyro.conf.Suppress[Kind] = "ppo"
    temperature: tyro.conf.Suppress[float] = 1.0


@dataclass(frozen=True)
class Settings(TrainConfig):
    """A run's settings as options. The environments have options of their own."""

    environments: tyro.conf.Suppress[tuple[EnvMix, ...]] = ()
    loss: Loss = field(default_factory=Loss)

    @classmethod
    def of(cls, config: TrainConfig) -> Settings:
        """The settings of a training configuration, as command-line options."""
        loss = Loss(**{f.name: getattr(config.loss, f.name) for f in fields(LossParams)})
        return cls(**{**{f.name: getattr(config, f.name) for f in fields(config)}, "loss": loss})

    @property
    def config(self) -> TrainConfig:
        """The options as a configuration."""
        loss = LossParams(**{f.name: getattr(self.loss, f.name) for f in fields(LossParams)})
        return TrainConfig(**{**{f.name: getattr(self, f.name) for f in fields(TrainConfig)}, "loss": loss})


@dataclass(frozen=True)
class TrainOptions:
    """What `toolorchestra train` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """Train on this instead of the preset's environments: an id, then NAME=VALUE for gym.make and for the mix (weight,
    max_tokens, max_context, train, validation, test); once for each environment. For example: --env ToolScale-v0
    domain=finance weight=2"""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, for all environments. For example: --set max_turns=5 prices=mine.json"""
    out: Path | None = None
    """The run's folder; runs/PRESET-seedN by default."""
    resume: bool = False
    """Go on from the last checkpoint in the run's folder; begin where there is none."""
    no_report: bool = False
    """Write no report when the run has ended."""

    estimate: tuple[Path, ...] | None = None
    """Say what the run would pay to real models, and spend nothing: by simulated plays of its tasks, or by evaluations
    whose folders are named."""

    def __post_init__(self) -> None:
        check_folder("--out", self.out)

    @property
    def config(self) -> TrainConfig:
        """The configuration of the run that the options describe."""
        config = self.settings.config
        return with_environments(config, self.env, self.set) if self.env or self.set else config


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)
    if ROUTER in words:
        from toolorchestra.agents.commands import train_router

        return train_router.main([word for word in words if word != ROUTER])
    return command(TrainOptions, run, words, about=__doc__, default=lambda: defaults(words), stopped=STOPPED_SAYS)


def defaults(words: Sequence[str]) -> TrainOptions:
    """What the options start from: the preset that is named among them."""
    return TrainOptions(Settings.of(preset_named(words, next(iter(PRESETS)))))


def preset_named(words: Sequence[str], otherwise: str) -> TrainConfig:
    """The preset behind --preset. It is looked up first, since it is what the other options start from."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset", nargs="?", const="", default=otherwise)
    return preset(first.parse_known_args(words)[0].preset)


def run(given: TrainOptions) -> int:
    """Train, and write the report."""
    config = given.config
    if given.estimate is not None:
        say(estimate_of(config, given.estimate, 0 if given.no_report else episodes_of_report(config)))
        return DONE
    if follows():
        follow(config)
        return DONE
    with claimed(folder := given.out or default_folder(config)):
        ended = trained(config, folder, resume=given.resume, report=not given.no_report)
    if ended.stopping:
        say("stopped after a whole step, which is saved; go on with --resume")
    return STOPPED if ended.stopping else DONE


def trained(config: TrainConfig, folder: Path, *, resume: bool, report: bool = True) -> TrainingRun:
    """Train to the end, or to the first Ctrl-C, and write the report."""
    # A folder by its whole path: elsewhere a hub would be asked for a model of that name.
    config = replace(config, model=replace(config.model, path=base_name(config.model.path)))
    config = paid_by_one(with_room(config, say), say)
    # What is refused is refused before torch is loaded.
    algorithm_of(config)
    _, state = found_in(folder, config, resume=resume, say=lambda _: None)
    if (start := config.warm_start).steps and start.trajectories and not state.get("warm"):
        check_file(Path(start.trajectories))
    if config.init_from and not state:
        saved_model(Path(config.init_from))
    engine, chat = build(config, say)
    try:
        with counted(config.environments, config.spend_cap, folder, say):
            made = train(config, folder, engine, chat, resume=resume, say=say)
            with closing(made.rollouts):
                if report and not made.stopping:
                    say(f"report: {write_report(made, say)}")
    finally:
        engine.close()
    return made
