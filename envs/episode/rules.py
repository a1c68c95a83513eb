"""What is the same for every episode of an environment: limits, history, how the policy is billed and rewarded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import build
from toolorchestra.envs.episode.reward_terms import RewardTerm
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap

CHARACTERS_PER_TOKEN = 4


_LIMITS: Mapping[str, tuple[str, str]] = {
    "turns": ("max_turns", "a whole number from 1 up"),
    "context_tokens": ("max_context_tokens", "a whole number from 1 up, or None"),
    "usd": ("budget", "a number of dollars above 0, or None"),
    "seconds": ("max_seconds", "a number of seconds above 0, or None"),
}
"""Limit -> what gym.make calls it, and what it may be."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What cuts an episode off. Each is a truncation, named in info["truncated_by"]."""

    turns: int = 50
    context_tokens: int | None = None
    usd: float | None = None
    """The budget: what the agent itself may spend. An episode that ends above it has not solved its task."""
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, (argument, wanted) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{argument} must be {wanted}, got {value!r}; leave it out for the default")
        if self.usd is not None and not 1e-9 <= self.usd < math.inf:
            raise ConfigError(f"budget must be a finite number of dollars from 0.000000001 up, got {self.usd!r}")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for every episode of an environment; shared, so an idle episode stays small."""

    limits: Limits = Limits()
    history: Literal["full", "state"] = "full"
    orchestrator: str = "qwen3-8b"
    """The price sheet's item under which the policy's own tokens are billed."""
    costs: tuple[float, float] | None = None
    """What a dollar and a second take from each step's reward; what judges and simulated users cost is no part of it.
    None: the reward is the outcome."""
    spend_cap: SpendCap | None = None
    terms: tuple[RewardTerm, ...] = ()
    """The user's own, added to the last step's reward."""
    only_turns: bool = field(init=False)
    """Whether turns are all that limits an episode, which is quick to check."""

    def __post_init__(self) -> None:
        limits = self.limits
        others = (limits.context_tokens, limits.usd, limits.seconds, self.spend_cap)
        object.__setattr__(self, "only_turns", all(other is None for other in others))

    def policy_usage(self, size: int, text: str) -> Usage:
        """What the policy used to write `text` after reading something of this size, when nobody else counted."""
        tokens = build(Tokens, (as_tokens(size), 0, as_tokens(len(text)), 0))
        return build(Usage, (self.orchestrator, ORCHESTRATOR, tokens, 0, 0.0, True))


def as_tokens(characters: int) -> int:
    """Estimate how many tokens so many characters are."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def cost_weights(reward: str | Mapping[str, float]) -> tuple[float, float] | None:
    """What a dollar and a second take from the reward, as `gym.make(reward=...)` says it."""
    if isinstance(reward, str):
        if reward not in ("outcome", "scalar"):
            raise ConfigError(no_such("reward", reward, ("outcome", "scalar")))
        return (1.0, 0.0) if reward == "scalar" else None
    for name, weight in reward.items():
        if name not in ("usd", "seconds"):
            raise ConfigError(no_such("part of the reward", str(name), ("usd", "seconds")))
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"reward[{name!r}] must be a number from 0 up, got {weight!r}")
    return float(reward.get("usd", 0.0)), float(reward.get("seconds", 0.0))
