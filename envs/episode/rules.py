"""What is the same for every episode of an environment: limits, history, how the policy is billed and rewarded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    """The budget: what the agent itself may spend."""
    seconds: float | None = None
    rule: Literal["strict", "stop"] = "strict"
    """What a budget does. "strict": an episode that ends above it has not solved its task. "stop": it ends the episode,
    and a last call that goes beyond it still counts."""

    def __post_init__(self) -> None:
        if self.rule not in ("strict", "stop"):
            raise ConfigError(no_such("budget_rule", self.rule, ("strict", "stop")))
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
    count_tokens: Callable[[str], int] | None = None
    """Counts the policy's tokens; None: estimated from characters, and the charge says so."""
    reward: Literal["outcome", "scalar"] = "outcome"
    """"scalar" subtracts usd_weight * dollars + seconds_weight * seconds at each step; what judges and simulated users
    cost is no part of it."""
    usd_weight: float = 1.0
    seconds_weight: float = 0.0
    spend_cap: SpendCap | None = None
    terms: tuple[RewardTerm, ...] = ()
    """The user's own, added to the last step's reward."""
    only_turns: bool = field(init=False)
    """Whether turns are all that limits an episode, which is quick to check."""

    def __post_init__(self) -> None:
        limits = self.limits
        others = (limits.context_tokens, limits.usd, limits.seconds, self.spend_cap)
        object.__setattr__(self, "only_turns", all(other is None for other in others))

    def as_tokens(self, size: int) -> int:
        """A size (of tokens where they are counted, of characters where not) in tokens."""
        return size if self.count_tokens else -(-size // CHARACTERS_PER_TOKEN)

    def policy_usage(self, size: int, text: str) -> Usage:
        """What the policy used to write `text` after reading something of this size, when nobody else counted."""
        count = self.count_tokens
        if count is None:
            into, out = -(-size // CHARACTERS_PER_TOKEN), -(-len(text) // CHARACTERS_PER_TOKEN)
        else:
            into, out = size, count(text)
        tokens = build(Tokens, (into, 0, out, 0))
        return build(Usage, (self.orchestrator, ORCHESTRATOR, tokens, 0, 0.0, count is None))
