"""Train with SkyRL on a Ray cluster: python -m toolorchestra.agents.adapters.skyrl_train KEY=VALUE ...

The keys are SkyRL's own, and `toolorchestra.` for what it has no name for; deploy/skyrl has files of them.
"""

# Annotations are types here and not strings: SkyRL reads them.
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from toolorchestra.agents.adapters.skyrl import (  # first: it says what is missing before skyrl is imported
    AsyncTrainer,
    RolloutSettings,
    SimulatedTrainer,
    ToolOrchestraGenerator,
    Trainer,
    check_algorithm,
)

# isort: split
import ray
from skyrl.train.config import BaseConfig, SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray

from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.agents.training.ray_address import check_address
from toolorchestra.envs.base.errors import ConfigError, one_of


@dataclass
class OurSettings(BaseConfig):  # type: ignore[misc]
    """Our settings, which are given on the command line as `toolorchestra.NAME=VALUE`."""

    advantage: dict[str, Any] = field(default_factory=dict)
    """Settings of AdvantageParams by name, where they differ from its defaults."""
    baselines: list[str] = field(default_factory=list)
    concurrency: int = RolloutSettings.concurrency
    deadline_seconds: float = RolloutSettings.deadline_seconds

    def rollout(self) -> RolloutSettings:
        """The settings that the generator of rollouts takes. Raises ConfigError where a baseline is unknown."""
        for name in self.baselines:
            one_of("toolorchestra.baselines", name, NAMES)
        own = {f.name: getattr(self, f.name) for f in fields(RolloutSettings)}
        return RolloutSettings(**{**own, "baselines": tuple(self.baselines)})

    def advantages(self) -> AdvantageParams:
        """The settings by which the trainer computes advantages. Raises ConfigError where a name is unknown."""
        valid = asdict(AdvantageParams())
        for name in self.advantage:
            one_of("toolorchestra.advantage", name, valid)
        return AdvantageParams(**self.advantage)


@dataclass
class Config(SkyRLTrainConfig):  # type: ignore[misc]
    """SkyRL's configuration, with our settings under `toolorchestra`."""

    toolorchestra: OurSettings = field(default_factory=OurSettings)


class Experiment(BasePPOExp):  # type: ignore[misc]
    """SkyRL's experiment with our generator and our advantages."""

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> ToolOrchestraGenerator:
        """Make our generator, which plays the rollouts, in place of SkyRL's."""
        return ToolOrchestraGenerator(cfg, tokenizer, inference_engine_client, cfg.toolorchestra.rollout())

    def get_trainer(self, *given: Any, **named: Any) -> Any:
        """Make SkyRL's trainer, with our advantages before it."""
        kind = trainer_kind(self.cfg)
        made = kind(*given, **named)
        made.advantage = self.cfg.toolorchestra.advantages()
        return made


def trainer_kind(cfg: Any) -> type[Any]:
    """Synchronous, fully asynchronous, or that without a model to train."""
    asynchronous = cfg.trainer.fully_async
    if not asynchronous.enabled:
        return Trainer
    return SimulatedTrainer if asynchronous.simulate_training else AsyncTrainer


def read_config(words: Sequence[str]) -> Any:
    """A configuration that SkyRL and we agree to."""
    cfg = Config.from_cli_overrides(list(words))
    check_algorithm(cfg)
    cfg.toolorchestra.rollout()
    cfg.toolorchestra.advantages()
    validate_cfg(cfg)
    return cfg


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def run_experiment(words: Sequence[str]) -> None:
    """Run on the cluster. The words are read again here, which also registers what this module registers."""
    Experiment(read_config(words)).run()


def main() -> int:
    """The command line."""
    try:
        cfg = read_config(sys.argv[1:])
        if "://" not in os.environ.get("RAY_ADDRESS", ""):
            check_address("auto", start="start one with `ray start --head`, or set RAY_ADDRESS=local", option="")
    except (ConfigError, ValueError, AssertionError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    initialize_ray(cfg)
    ray.get(run_experiment.remote(sys.argv[1:]))
    return 0


if __name__ == "__main__":
    from toolorchestra.agents.adapters import skyrl_train  # what Ray sends to its workers is found by its name there

    sys.exit(skyrl_train.main())
