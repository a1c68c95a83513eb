"""Train a router of numbers by RLlib's PPO, here or on a Ray cluster, and save it in a folder.

It sees features of an episode and chooses its calls by number; it reads no text. It plays wherever policies do, without
Ray: `toolorchestra evaluate --policy router:FOLDER cheapest strongest`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.commands.train import STOPPED_SAYS
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.policies.router import PREFIX
from toolorchestra.agents.training.router_training import RouterTraining, train_router
from toolorchestra.agents.training.spending import paid_for
from toolorchestra.envs.adapters.learner_env import EMBEDDED
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class TrainRouterOptions:
    """Options of `toolorchestra train --router`."""

    settings: Annotated[RouterTraining, tyro.conf.arg(name="")] = field(default_factory=RouterTraining)
    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """An id, then NAME=VALUE for gym.make; once for each environment. HLE-v0 and FRAMES-v0 when left out. One router
    learns all of them."""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, for all environments. For example: --set 'reward={"usd": 5}'"""
    out: Path | None = None
    """The router's folder; runs/router-seedN by default."""

    resume: bool = False
    """Go on from the last checkpoint in the router's folder; begin where there is none."""

    estimate: tuple[Path, ...] | None = None
    """Say what the run would pay to real models, and spend nothing: by simulated plays of its tasks, or by evaluations
    whose folders are named."""

    @property
    def training(self) -> RouterTraining:
        """The options as a training."""
        chosen = chosen_envs(self.env or [[name] for name in EMBEDDED], self.set)
        environments = {one.env_id: one.arguments for one in chosen}
        if len(environments) < len(chosen):
            raise ConfigError("--env names an environment twice; name each once")
        return replace(self.settings, environments=environments)


def run(given: TrainRouterOptions) -> int:
    """Train, save, and say how to play it."""
    training = given.training
    if given.estimate is not None:
        paid = paid_for(training.mixes, training.seed, given.estimate, lambda one: training.steps / max(1.0, one.calls))
        say(f"{training.steps:,} turns: {paid}")
        return DONE
    folder = given.out or Path("runs") / f"router-seed{training.seed}"
    check_folder("--out", folder)
    router = train_router(training, folder, say, resume=given.resume)
    say(f"digest {router.digest}; compare it: toolorchestra evaluate --policy {PREFIX}{folder} cheapest strongest")
    return DONE


main = partial(command, TrainRouterOptions, run, about=__doc__, stopped=STOPPED_SAYS)
