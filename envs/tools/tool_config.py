"""Tool configurations: which tools and aliases exist, what backs each, what is said of them; and sampled variants."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools import Offer

Half = Literal["train", "validation", "heldout"]
HALVES: tuple[Half, ...] = get_args(Half)
"""Variants to learn from, to pick a checkpoint by, and to report on: none stands in two of them."""
KINDS: Mapping[str, bool] = {
    "search": True, "enhance_reasoning": True, "answer": True, "ask": True,
    "web_search": False, "local_search": False, "python": False, "submit": False,
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

    kind: str
    """What a call does; see the kinds below."""
    name: str
    """What the agent calls it."""
    description: str
    """What the agent is told of it. Prices and times are added."""
    offers: tuple[Offer, ...] = ()
    """The models to choose from, for kinds that offer models."""
    seconds: float = 0.0
    """Nominal time of a tool without models."""


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

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str) -> ToolConfig:
        """From parsed JSON; errors name the tool."""
        entries = []
        _known(data, ("name", "tools", "of_simulated"), where)
        for row in _rows(data, "tools", where):
            at = f"{where}: tool {row.get('name', '?') if isinstance(row, Mapping) else row!r}"
            _known(row, ("kind", "name", "description", "offers", "seconds"), at)
            if not (isinstance(row.get("name"), str) and row["name"]):
                raise ConfigError(f"{at}: a tool needs a name")
            if row.get("kind") not in tuple(KINDS):  # what came may be unhashable
                raise ConfigError(f"{at}: {no_such('kind', row.get('kind'), KINDS)}")
            offers = tuple(_offer(o, at) for o in _rows(row, "offers", at))
            if KINDS[row["kind"]] != bool(offers):
                raise ConfigError(f"{at}: kind {row['kind']!r} {'needs' if KINDS[row['kind']] else 'takes no'} offers")
            if len({o.alias for o in offers}) != len(offers):
                raise ConfigError(f"{at}: two offers have one alias")
            seconds = _seconds(row.get("seconds", 0.0), at)
            entries.append(ToolEntry(row["kind"], row["name"], _text(row, "description", at), offers, seconds))
        if not any(e.kind in ENDING for e in entries):
            raise ConfigError(f"{where}: no tool ends the task; add one of kind {' or '.join(ENDING)}")
        return cls(str(data.get("name", where)), tuple(entries), of_simulated=bool(data.get("of_simulated", False)))

    @property
    def models(self) -> list[str]:
        """The models behind it, each once."""
        return list(dict.fromkeys(o.model for e in self.tools for o in e.offers))

    def only(self, names: Sequence[str]) -> ToolConfig:
        """Keeps the named tools, or tools with the named aliases alone: "answer", "search-3"."""
        valid = [e.name for e in self.tools] + [o.alias for e in self.tools for o in e.offers]
        for name in names:
            if name not in valid:
                raise ConfigError(no_such("tool or alias", name, valid))
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


def _known(row: object, keys: Sequence[str], where: str) -> None:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: an object with keys of {', '.join(keys)} expected, got {row!r:.40}")
    for key in row:
        if key not in keys:
            raise ConfigError(f"{where}: {no_such('key', key, keys)}")


def _rows(row: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    rows = row.get(key, ())
    if not isinstance(rows, list | tuple):
        raise ConfigError(f"{where}: {key} is a list, got {rows!r:.40}")
    return rows


def _text(row: Mapping[str, Any], key: str, where: str, *, empty: bool = True) -> str:
    text = row.get(key, "")
    if not isinstance(text, str) or not (text or empty):
        raise ConfigError(f"{where}: {key} is a text, got {text!r:.40}")
    return text


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{where}: seconds are a number from 0 up, got {value!r:.40}")
    return float(value)


def _offer(row: Mapping[str, Any], where: str) -> Offer:
    at = f"{where}: offer"
    _known(row, ("alias", "model", "seconds", "note"), at)
    if missing := sorted({"alias", "model", "seconds"} - set(row)):
        raise ConfigError(f"{where}: an offer needs alias, model and seconds; {missing} missing")
    alias, model = (_text(row, key, at, empty=False) for key in ("alias", "model"))
    return Offer(alias, model, _seconds(row["seconds"], where), _text(row, "note", at))


def names() -> list[str]:
    """The configurations that come with the package."""
    folder = resources.files("toolorchestra.envs") / "data" / "toolsets"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load(name: str | Path | ToolConfig) -> ToolConfig:
    """A configuration by its name, by the path of a JSON file, or as it is."""
    if isinstance(name, ToolConfig):
        return name
    if str(name).endswith(".json"):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"no file {str(name)!r}; name a tool configuration's file, or one of: {', '.join(names())}"
            )
        text = path.read_bytes()
    elif str(name) in names():
        text = (resources.files("toolorchestra.envs") / "data" / "toolsets" / f"{name}.json").read_bytes()
    else:
        raise ConfigError(_no_configuration(name))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"tool configuration {name} is not valid JSON: {err}") from None
    return ToolConfig.read(data, str(name))


def _no_configuration(name: object) -> str:
    """What is said of `tools` that names no configuration: single tools are kept at reset."""
    listed = isinstance(name, list | tuple | set | frozenset) and all(isinstance(one, str) for one in name)
    if listed or name in tuple(KINDS):
        kept = [*sorted(name)] if listed else [name]  # type: ignore[call-overload]
        return (
            f"tools={name!r:.80}: in gym.make, tools is the name of a tool configuration ({', '.join(names())}) or a "
            f'JSON file; to keep single tools, give them to reset: reset(options={{"tools": {kept!r:.80}}}), with one '
            "among them that ends the task"
        )
    return f"{no_such('tool configuration', name, names())} Or name a file, FILE.json"


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
