"""Train a router of numbers by RLlib, here or on a Ray cluster, and save it in a folder.

It sees features of an episode and chooses its calls by number; it reads no text. It plays wherever policies do, without
Ray: `toolorchestra evaluate --policy router:FOLDER cheapest strongest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.policies.router import PREFIX
from toolorchestra.agents.training.router_training import RouterTraining, train_router
from toolorchestra.envs.adapters.rllib import EMBEDDED
from toolorchestra.envs.base.errors import ConfigError


@dataclass(frozen=True)
class TrainRouterOptions:
    """What `toolorchestra train-router` takes."""

    algo: str = RouterTraining.algo
    """RLlib's algorithm: PPO or APPO."""
    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """An id, then NAME=VALUE for gym.make; once for each environment. HLE-v0 and FRAMES-v0 when left out. One router
    learns all of them."""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, for all environments. For example: --set usd_weight=5"""
    address: str = ""
    """A Ray cluster that this machine is a node of: auto or HOST:PORT. Ray is started on this machine when left out."""
    runners: int = RouterTraining.runners
    """How many processes play episodes."""
    envs_per_runner: int = RouterTraining.envs_per_runner
    """How many episodes each of these processes plays in turn."""
    steps: int = RouterTraining.steps
    """How many turns the router learns from in all."""
    batch: int = RouterTraining.batch
    """How many turns are played between two updates of the weights."""
    learning_rate: float = RouterTraining.learning_rate
    """The learning rate at the start. It falls to a tenth by the end."""
    hidden: tuple[int, ...] = RouterTraining.hidden
    """How wide each layer of the network is."""
    seed: int = RouterTraining.seed
    """Seed of the weights, of the tasks and of the draws."""
    out: Path | None = None
    """The router's folder; runs/router-ALGO-seedN by default."""

    @property
    def training(self) -> RouterTraining:
        """The options as a training."""
        chosen = chosen_envs(self.env or [[name] for name in EMBEDDED], self.set)
        own = ("algo", "address", "runners", "envs_per_runner", "steps", "batch", "learning_rate", "hidden", "seed")
        environments = {one.env_id: one.arguments for one in chosen}
        if len(environments) < len(chosen):
            raise ConfigError("--env names an environment twice; name each once")
        return RouterTraining(environments=environments, **{name: getattr(self, name) for name in own})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(TrainRouterOptions, run, given, about=__doc__)


def run(given: TrainRouterOptions) -> int:
    """Train, save, and say how to play it."""
    training = given.training
    folder = given.out or Path("runs") / f"router-{training.algo}-seed{training.seed}"
    check_folder("--out", folder)
    router = train_router(training, folder, say)
    say(f"digest {router.digest}; compare it: toolorchestra evaluate --policy {PREFIX}{folder} cheapest strongest")
    return DONE
