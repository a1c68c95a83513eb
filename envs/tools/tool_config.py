"""Tool configurations: which tools and aliases exist, what backs each, what is said of them; and sampled variants."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError, no_such, one_of
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Offer
from toolorchestra.envs.tools.mcp_servers import McpServer

Half = Literal["train", "validation", "heldout"]
HALVES: tuple[Half, ...] = get_args(Half)
"""Variants to learn from, to pick a checkpoint by, and to report on: none stands in two of them."""
Kind = Literal["search", "enhance_reasoning", "answer", "ask", "web_search", "local_search", "python", "submit", "mcp"]
KINDS: Mapping[Kind, bool] = {
    "search": True, "enhance_reasoning": True, "answer": True, "ask": True,
    "web_search": False, "local_search": False, "python": False, "submit": False, "mcp": False,
}  # fmt: skip
"""Kind of tool -> whether it offers a choice of models."""
ENDING = ("answer", "submit")
# On the packaged price sheet no price of one half reads like one of another, to the two digits that a brief description
# shows: "search-2 0.62 16" is never seen in training.
FACTORS: Mapping[Half, Sequence[str]] = {
    "train": (
        "0.25 0.26 0.27 0.28 0.29 0.32 0.33 0.34 0.37 0.38 0.4 0.42 0.43 0.45 0.47 0.49 0.55 0.57 0.59 0.62 0.69 0.72 "
        "0.75 0.78 0.81 0.88 0.91 0.95 0.99 1 1.03 1.07 1.11 1.58 1.64 1.92 2 2.08 2.16 2.43 2.53 2.84 2.96 3.08 3.46 "
        "3.6 3.74 3.89 4.05"
    ).split(),
    "validation": "0.35 0.52 0.86 1.25 1.8 2.7".split(),
    "heldout": "0.3 0.41 0.66 1.45 2.3 3.3".split(),
}
_OF_TEN: Mapping[int, Half] = {0: "heldout", 5: "validation"}
_TRIES = 100


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One tool of a configuration."""

    kind: Kind
    """What a call does; see the kinds above."""
    name: str
    """What the agent calls it."""
    description: str = ""
    """What the agent is told of it. Prices and times are added."""
    offers: tuple[Offer, ...] = ()
    """The models to choose from, for kinds that offer models."""
    seconds: float = 0.0
    """Nominal time of a tool without models."""
    mcp: str | McpServer = ""
    """The server whose tools these are, for kind "mcp": its command line or address, or its settings."""

    def __post_init__(self) -> None:
        if (self.kind == "mcp") != bool(self.mcp):
            raise ConfigError('kind "mcp" names its server, mcp = "COMMAND" or an address; other kinds name none')
        if not all((self.name, *(text for offer in self.offers for text in offer[:2]))):
            raise ConfigError("a tool needs a name, and an offer an alias and a model, got an empty one")
        if KINDS[self.kind] != bool(self.offers):
            raise ConfigError(f"kind {self.kind!r} {'needs' if KINDS[self.kind] else 'takes no'} offers")
        if len({offer.alias for offer in self.offers}) != len(self.offers):
            raise ConfigError("two offers have one alias")
        if min((self.seconds, *(offer.seconds for offer in self.offers))) < 0:
            raise ConfigError("seconds are numbers from 0 up, got one below")


@dataclass(frozen=True, slots=True)
class ToolConfig:
    """A named set of tools."""

    name: str
    tools: tuple[ToolEntry, ...]
    style: Literal["full", "brief"] = "full"
    """How descriptions are worded: "brief" names aliases with price and latency only, for small models."""
    sampled: bool = field(default=False, compare=False)
    of_simulated: bool = False
    """Whether its notes and times are those of the simulated models. They are not shown of real ones."""

    def __post_init__(self) -> None:
        if not any(entry.kind in ENDING for entry in self.tools):
            raise ConfigError(f"no tool ends the task; add one of kind {' or '.join(ENDING)}")

    @classmethod
    def read(cls, data: Any, where: str) -> ToolConfig:
        """Read parsed JSON; errors name the tool."""
        if isinstance(data, Mapping):
            data = {"name": where, **data}
        return shapes.read(cls, data, where, style="full", sampled=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ToolConfig:
        """Read a file whose shape is known, as that of a packaged one is."""
        tools = ({**row, "offers": tuple(Offer(**one) for one in row.get("offers", ()))} for row in data["tools"])
        return cls(**{**data, "tools": tuple(ToolEntry(**row) for row in tools)})

    @property
    def models(self) -> list[str]:
        """The models behind it, each once."""
        return list(dict.fromkeys(o.model for e in self.tools for o in e.offers))

    def only(self, names: Sequence[str]) -> ToolConfig:
        """Keeps the named tools, or tools with the named aliases alone: "answer", "search-3"."""
        valid = [e.name for e in self.tools] + [o.alias for e in self.tools for o in e.offers]
        for name in names:
            one_of("tool or alias", name, valid)
        kept = []
        for entry in self.tools:
            offers = tuple(o for o in entry.offers if o.alias in names)
            if entry.name in names:
                kept.append(entry)
            elif offers:
                kept.append(replace(entry, offers=offers))
        if not any(e.kind in ENDING for e in kept):
            ending = [e.name for e in self.tools if e.kind in ENDING]
            raise ConfigError(f"tools {list(names)} leave none that ends the task; add {' or '.join(ending)}")
        return replace(self, tools=tuple(kept))


def names() -> list[str]:
    """The configurations that come with the package."""
    folder = resources.files("toolorchestra.envs") / "data" / "toolsets"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load(name: str | Path | ToolConfig) -> ToolConfig:
    """A configuration by its name, by the path of a JSON file, or as it is."""
    if isinstance(name, ToolConfig):
        return name
    if str(name) in names():
        packaged = resources.files("toolorchestra.envs") / "data" / "toolsets" / f"{name}.json"
        return ToolConfig.of(json.loads(packaged.read_bytes()))
    if not str(name).endswith(".json"):
        said = f"{no_such('tool configuration', name, names())} Or name a file, FILE.json"
        if name in tuple(KINDS) or not isinstance(name, str):
            said += '. Single tools are kept at reset: reset(options={"tools": [...]})'
        raise ConfigError(said)
    if not Path(name).is_file():
        raise ConfigError(f"no file {str(name)!r}; name a tool configuration's file, or one of: {', '.join(names())}")
    try:
        data = json.loads(Path(name).read_bytes())
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"tool configuration {name} is not valid JSON: {err}") from None
    return ToolConfig.read(data, str(name))


VARIED = ("tools", "aliases", "prices")
"""What a sampled variant may vary: which models each tool offers, which alias hides which, what they cost."""


def check_half(diversify: object) -> None:
    """Refuse a value of `diversify` that there is not."""
    if diversify not in (None, *HALVES):
        raise ConfigError(no_such("diversify", diversify, (*HALVES, "None")))


def variation(seed: int) -> random.Random:
    """Random numbers for what `diversify` draws anew for an episode: apart from those that draw its task."""
    return random.Random(seed ^ 0xD1FF)


def sample(config: ToolConfig, rng: random.Random, half: Half = "train", vary: Sequence[str] = VARIED) -> ToolConfig:
    """A variant: for each tool some of its models, and which alias hides which. Of ten variants one is held out, and
    another is for validation."""
    for _ in range(_TRIES):
        variant = replace(config, tools=tuple(_vary(e, rng, vary) for e in config.tools), sampled=True)
        shape = str([[(o.alias, o.model) for o in e.offers] for e in variant.tools])
        if half_of(shape) == half:
            break
    return variant  # a configuration with hardly a choice in it may have no variant of this half


def half_of(shape: str) -> Half:
    """The half that a variant belongs to, by how it is written."""
    return _OF_TEN.get(hashlib.blake2b(shape.encode(), digest_size=4).digest()[0] % 10, "train")


def _vary(entry: ToolEntry, rng: random.Random, vary: Sequence[str]) -> ToolEntry:
    if len(entry.offers) < 2:
        return entry
    every = range(len(entry.offers))
    kept = sorted(rng.sample(every, rng.randint(2, len(every)))) if "tools" in vary else every
    backing = [entry.offers[i] for i in kept]
    if "aliases" not in vary:
        return replace(entry, offers=tuple(backing))
    groups: dict[str, list[Offer]] = {}
    for offer in backing:  # `answer-math-1` stays a mathematician: aliases are exchanged within one stem only
        groups.setdefault(offer.alias.rstrip("0123456789"), []).append(offer)
    hidden: dict[str, Offer] = {}
    for group in groups.values():
        aliases = [o.alias for o in group]
        rng.shuffle(aliases)
        hidden.update(dict(zip(aliases, group, strict=True)))
    return replace(entry, offers=tuple(hidden[alias]._replace(alias=alias) for alias in sorted(hidden)))


def sample_prices(sheet: PriceSheet, models: Sequence[str], rng: random.Random, half: Half = "train") -> PriceSheet:
    """A schedule: each model's price times a factor. Each half has factors of its own."""
    chosen = {model: Decimal(rng.choice(FACTORS[half])) for model in models}
    mark = hashlib.blake2b(str(sorted(chosen.items())).encode(), digest_size=4).hexdigest()
    return sheet.with_factors(chosen, f"{sheet.sheet_id}*{mark}")
