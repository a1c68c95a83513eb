"""Algorithms by name: small files behind two hooks, how a group is scored and what advantage each turn gets.

The hooks are agents.rollouts.grpo.Algorithm; the trainer knows no more of an algorithm than these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.rollouts.grpo import Algorithm
from toolorchestra.envs.base.errors import ConfigError, no_such

ALGORITHMS: Mapping[str, str] = {
    "grpo": "toolorchestra.agents.rollouts.grpo:Grpo",
    "leave-one-out": "toolorchestra.agents.algorithms.leave_one_out:LeaveOneOut",
    "gated": "toolorchestra.agents.algorithms.gated:Gated",
    "critic": "toolorchestra.agents.algorithms.critic:Critic",
}
"""The classes by name. Each is made with the settings of `advantage`."""


def algorithm_of(config: TrainConfig) -> Algorithm:
    """The algorithm that a configuration names, or that it names as module:Class."""
    name = config.algorithm
    if name not in ALGORITHMS and ":" not in name:
        raise ConfigError(
            f"{no_such('algorithm', name, ALGORITHMS)} Or name a class of yours: your.module:YourAlgorithm"
        )
    try:
        made: Any = resolve_name(ALGORITHMS.get(name, name))(config.advantage)
    except (ImportError, AttributeError, TypeError, ValueError) as err:
        raise ConfigError(
            f"algorithm={name} cannot be made ({err}); name a class that takes the settings of `advantage`, as "
            "your.module:YourAlgorithm"
        ) from None
    if lacking := [hook for hook in ("score", "advantages") if not callable(getattr(made, hook, None))]:
        raise ConfigError(
            f"algorithm={name} has no {', '.join(lacking)}; agents.rollouts.grpo.Algorithm says what it does"
        )
    found: Algorithm = made
    return found
