"""Variants of tasks to train on: which tools there are, what they are called, what experts cost, what the user prefers.

Each variant is checked by rules before it is kept: the gold calls of its task run under it, its preference weighs what
the tools have, and the instruction says what the vector weighs.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.base import preference
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.base.types import freeze
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.experts import NAME, OFFERS
from toolorchestra.envs.domains.toolscale.known_costs import zipped
from toolorchestra.envs.money.prices import PriceSheet, load_sheet
from toolorchestra.envs.tools.tool_config import Half, sample_prices

FILE = "variants.jsonl.gz"
SHEET = "paper-2025-11"
SPARE_SHARE = 0.5
"""Of the tools that a task does not need, so many stay on average."""
_TRIES = 20


class Variant(NamedTuple):
    """One way to set a task."""

    task_id: str
    number: int
    half: Half
    tools: list[str]
    """Names of the tools that are there; hand them to reset as options["tools"]."""
    aliases: dict[str, str]
    """Expert alias -> the model behind it."""
    sheet_id: str
    prices: dict[str, list[int]]
    """Model -> pico-dollars per token of input, cached input, output and reasoning."""
    instruction: str
    """What the user says of their wishes, added to the task."""
    preference: dict[str, float]
    """The weights that the instruction stands for."""


def variant(domain: SqlDomain, task: SqlTask, number: int, half: Half, rng: random.Random) -> Variant:
    """One variant, not yet checked."""
    needed = {action.name for path in (task.actions, *task.alternatives) for action in path}
    tools = [n for n, t in domain.tools.items() if n in needed or t.transfers or rng.random() < SPARE_SHARE]
    backing = [offer.model for offer in OFFERS]
    rng.shuffle(backing)
    shown = rng.randint(1, len(backing))
    aliases = {offer.alias: model for offer, model in zip(OFFERS[:shown], backing, strict=False)}
    sheet = sample_prices(load_sheet(SHEET), sorted(aliases.values()), rng, half)
    keys = [*tools, NAME]
    wish = preference.sample(rng, keys, "heldout" if half == "heldout" else "train")
    return Variant(
        task.task_id, number, half, keys, aliases, sheet.sheet_id, _prices(sheet, aliases.values()), wish.sentence,
        {name: weight for name, weight in wish.weights().items() if weight},
    )  # fmt: skip


def _prices(sheet: PriceSheet, models: Any) -> dict[str, list[int]]:
    return {model: list(sheet.price(model).pico_usd_per_token or ()) for model in sorted(models)}


# -- the rules -----------------------------------------------------------------------------------------------------


def reachable(_domain: SqlDomain, task: SqlTask, made: Variant) -> str:
    """Some gold path uses only tools that are there."""
    paths = (task.actions, *task.alternatives)
    if any(all(action.name in made.tools for action in path) for path in paths):
        return ""
    return "no gold path runs with these tools"


def priced(_domain: SqlDomain, _task: SqlTask, made: Variant) -> str:
    """Every alias has a model, no two the same one, and every model a price above nothing."""
    if len(set(made.aliases.values())) != len(made.aliases):
        return "two aliases hide one model"
    if missing := [m for m in made.aliases.values() if not any(made.prices.get(m, ()))]:
        return f"no price for {missing[0]}"
    return ""


def weighed(_domain: SqlDomain, _task: SqlTask, made: Variant) -> str:
    """The vector weighs something, and only tools that are there."""
    tools = [name for name in made.preference if name not in preference.GENERAL]
    if unknown := [name for name in tools if name not in made.tools]:
        return f"it weighs {unknown[0]}, which is not there"
    return "" if any(made.preference.values()) else "it weighs nothing"


def agreeing(_domain: SqlDomain, _task: SqlTask, made: Variant) -> str:
    """The instruction names each tool that the vector weighs, and no other tool of the domain."""
    weighed_tools = [name for name in made.preference if name not in preference.GENERAL]
    if unsaid := [name for name in weighed_tools if name not in made.instruction]:
        return f"the instruction does not name {unsaid[0]}, which is weighed"
    if not made.instruction.strip():
        return "no instruction"
    words = set(made.instruction.replace(",", " ").replace(".", " ").replace("`", " ").split())
    extra = [name for name in made.tools if "_" in name and name in words and name not in weighed_tools]
    return f"the instruction names {extra[0]}, which is not weighed" if extra else ""


RULES: Mapping[str, Callable[[SqlDomain, SqlTask, Variant], str]] = {
    "reachable": reachable,
    "priced": priced,
    "weighed": weighed,
    "agreeing": agreeing,
}
"""Name -> rule, which gives what is wrong or ""."""


class Augmented(NamedTuple):
    """The variants of a domain's tasks."""

    variants: list[Variant]
    dropped: Counter[str]
    examples: dict[str, str]


def augment(domain: SqlDomain, each: int, seed: int, half: Half = "train") -> Augmented:
    """So many variants of each task, no two the same."""
    made = Augmented([], Counter(), {})
    for task in domain.tasks.values():
        rng = random.Random(f"{seed}/{domain.name}/{task.task_id}/variants")
        seen: set[Any] = set()
        for _ in range(each * _TRIES):
            if len(seen) == each:
                break
            one = variant(domain, task, len(seen), half, rng)
            rule, why = fault(domain, task, one)
            key = freeze(one._replace(number=0)._asdict()).__repr__()
            if not rule and key in seen:
                rule, why = "different", "an earlier variant is the same"
            if rule:
                made.dropped[rule] += 1
                made.examples.setdefault(rule, f"{task.task_id}: {why}")
                continue
            seen.add(key)
            made.variants.append(one)
    return made


def fault(domain: SqlDomain, task: SqlTask, made: Variant) -> tuple[str, str]:
    """The first rule that a variant breaks, and what was seen."""
    return next(((name, why) for name, rule in RULES.items() if (why := rule(domain, task, made))), ("", ""))


def wish(made: Variant) -> Preference:
    """The variant's preference, as reset takes it."""
    weights = dict(made.preference)
    outcome, usd, seconds = (weights.pop(name, 0.0) for name in preference.GENERAL)
    return Preference(outcome, usd, seconds, tools=weights, sentence=made.instruction)


def sheets(variants: Sequence[Variant]) -> dict[str, dict[str, list[int]]]:
    """Every schedule that some variant has."""
    return {one.sheet_id: one.prices for one in variants}


def packed(made: Sequence[Variant]) -> bytes:
    """The file's bytes, one line a variant."""
    return zipped("".join(json.dumps(one._asdict(), ensure_ascii=False) + "\n" for one in made).encode())
