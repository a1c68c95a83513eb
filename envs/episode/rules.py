"""What is the same for every episode of an environment: limits, history, how the policy is billed and rewarded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, Context
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.types import Message, Outcome, build
from toolorchestra.envs.money.ledger import Ledger
from toolorchestra.envs.money.prices import (
    CHARACTERS_PER_TOKEN,
    EXPERT,
    NANO,
    ORCHESTRATOR,
    REWARDED_ROLES,
    PriceSheet,
    Tokens,
    Usage,
    in_digits,
    plain,
)
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools import Toolbox

if TYPE_CHECKING:
    from toolorchestra.envs.episode.episode import Episode

WHERE = "reward term"
"""Where an episode failed whose term raised."""


class RewardTerm(NamedTuple):
    """A function with the name that its number has in `info`."""

    name: str
    of: Callable[[Episode], float]


def reward_terms(given: str | Callable[[Episode], float] | Sequence[Any]) -> tuple[RewardTerm, ...]:
    """The terms that gym.make is given: "module:function", a function, or several of them."""
    several = given if isinstance(given, Collection) and not isinstance(given, str) else (given,) if given else ()
    made: dict[str, RewardTerm] = {}
    for one in several:
        what: Any = one
        if isinstance(one, str):
            module, colon, name = one.partition(":")
            try:
                what = resolve_name(one) if module and colon and name else None
            except (ImportError, AttributeError, ValueError) as err:
                raise ConfigError(
                    f"reward term {one!r} cannot be loaded: {err}. Write module:function, and let Python find the "
                    "module: PYTHONPATH=. before a command"
                ) from err
        if not callable(what):
            raise ConfigError(f'a reward term is "module:function" or a function of an episode, got {one!r:.60}')
        called = str(getattr(what, "__name__", type(what).__name__))
        if called in made:
            raise ConfigError(f"reward_terms has {called!r} twice: each term needs a name of its own in info")
        made[called] = RewardTerm(called, what)
    return tuple(made.values())


def values_of(episode: Episode, terms: Sequence[RewardTerm]) -> dict[str, float]:
    """What each term gives for an ended episode. Raises what a term raises, and where it gives no finite number."""
    made = {}
    for name, of in terms:
        value = of(episode)
        if isinstance(value, str) or not math.isfinite(value):
            raise ValueError(f"reward term {name!r} gives a finite number, got {value!r:.60}")
        made[name] = float(value) + 0.0  # no -0.0
    return made


LIMITS: Mapping[str, tuple[str, str]] = {
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
        for name, (argument, wanted) in LIMITS.items():
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
        return build(Usage, (self.orchestrator, ORCHESTRATOR, tokens, 0, 0.0, True, False, None))


def as_tokens(characters: int) -> int:
    """Estimate how many tokens so many characters are."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def cost_weights(reward: str | Mapping[str, float]) -> tuple[float, float] | None:
    """What a dollar and a second take from the reward, as `gym.make(reward=...)` says it."""
    if isinstance(reward, str):
        one_of("reward", reward, ("outcome", "scalar"))
        return (1.0, 0.0) if reward == "scalar" else None
    if not isinstance(reward, Mapping):
        raise ConfigError(f'reward is "outcome", "scalar" or a mapping such as {{"usd": 2.0}}, got {reward!r:.60}')
    for name, weight in reward.items():
        one_of("part of the reward", str(name), ("usd", "seconds"))
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"reward[{name!r}] must be a number from 0 up, got {weight!r}")
    return float(reward.get("usd", 0.0)), float(reward.get("seconds", 0.0))


# -- an episode's budget: what the agent is told of it, and what an episode above it is worth --------------------------


_TWO_DIGITS = Context(prec=2, rounding=ROUND_DOWN)


def left_nano_usd(limits: Limits, ledger: Ledger) -> int:
    """What is left of the budget; below 0 where more was spent."""
    return round((limits.usd or 0.0) * NANO) - ledger.nano_usd_of(REWARDED_ROLES)


def budget_text(limits: Limits, least: dict[str, float]) -> str:
    """Tell the system message the budget, what ends above it is worth, and what each call costs at least."""
    lines = [f"Budget: ${in_digits(limits.usd or 0.0)}.", "An episode that costs more is not solved."]
    if least:
        costs = ", ".join(f"{key} ${in_digits(usd)}" for key, usd in least.items())
        lines.append(f"A call costs at least: {costs}.")
    return " ".join(lines)


def with_left(message: Message, nano_usd: int) -> Message:
    """A message with what is left of the budget as its last line."""
    content = f"{message['content']}\n[Budget left: ${plain(max(0, nano_usd), 9)}]"
    return Message({**message, "content": content})


def least_usd(toolbox: Toolbox, sheet: PriceSheet, task_characters: int) -> dict[str, float]:
    """What a call that runs costs at least, by its countable key, in two digits, rounded down. A model reads the task
    at least and writes a token; a service is used once. What may cost nothing is left out."""
    read = Tokens(task_characters // CHARACTERS_PER_TOKEN, 0, 1, 0)
    least: dict[str, int] = {}
    for tool in toolbox:
        if tool.offers:
            for offer in tool.offers:
                least[offer.alias] = _nano(sheet, offer.model, read)
        elif tool.bills:
            least[tool.name] = min(sheet.price(item).nano_usd_per_unit or 0 for item in tool.bills)
    return {key: float(_TWO_DIGITS.create_decimal(nano) / NANO) for key, nano in least.items() if nano}


def _nano(sheet: PriceSheet, model: str, tokens: Tokens) -> int:
    price = sheet.price(model)
    if price.free or price.pico_usd_per_token is None:
        return 0
    cached = tokens._replace(input=0, cached=tokens.input)
    return min(price.nano_usd(Usage(model, EXPERT, used)) for used in (tokens, cached))


def held_to(outcome: Outcome, over_nano_usd: int) -> Outcome:
    """The outcome of an episode that ended above its budget."""
    over = {"over_budget_usd": over_nano_usd / NANO, "value_without_budget": outcome.value}
    return replace(outcome, value=0.0, evidence={**outcome.evidence, **over})
