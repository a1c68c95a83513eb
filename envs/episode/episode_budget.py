"""An episode's budget: what the agent is told of it, and what an episode above it is worth.

The budget counts what the agent spends: its own tokens, its experts and its tools. Judges and simulated users are the
experiment's cost, not the agent's.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Context

from toolorchestra.envs.base.types import Message, Outcome
from toolorchestra.envs.episode.rules import CHARACTERS_PER_TOKEN, Limits
from toolorchestra.envs.money.ledger import Ledger
from toolorchestra.envs.money.prices import EXPERT, NANO, REWARDED_ROLES, PriceSheet, Tokens, Usage, in_digits, plain
from toolorchestra.envs.tools import Toolbox

_TWO_DIGITS = Context(prec=2, rounding=ROUND_DOWN)


def left_nano_usd(limits: Limits, ledger: Ledger) -> int:
    """What is left of the budget; below 0 where more was spent."""
    return round((limits.usd or 0.0) * NANO) - ledger.nano_usd_of(REWARDED_ROLES)


def told(limits: Limits, least: dict[str, float]) -> str:
    """For the system message: the budget, what ends above it is worth, and what each call costs at least."""
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
