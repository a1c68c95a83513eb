"""Environments on a command line: `--env ID NAME=VALUE ...`, once for each, and `--set NAME=VALUE ...` for all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import full_id

PAPER = "paper"
"""The name, in place of an id, of the paper's benchmarks in its settings."""


@dataclass(frozen=True)
class ChosenEnv:
    """An environment with what `gym.make` is given."""

    env_id: str
    arguments: Mapping[str, Any]


def chosen_envs(given: Sequence[Sequence[str]], for_all: Sequence[str] = ()) -> tuple[ChosenEnv, ...]:
    """What the options name, in their order."""
    common = arguments("--set", for_all)
    made = []
    for words in given:
        if not words:
            raise ConfigError("--env takes an id and then NAME=VALUE, got nothing; for example --env HLE-v0")
        name, *own = words
        env_id = name if ":" in name else full_id(name)  # "module:id" imports its module wherever it is used
        made.append(ChosenEnv(env_id, {**common, **arguments("--env", own)}))
    return tuple(made)


def arguments(option: str, given: Sequence[str]) -> dict[str, Any]:
    """`max_turns=5 domain=retail` as gym.make's arguments."""
    return {name: value(text) for name, text in pairs(option, given).items()}


SEVERAL = ("--each", "--seeds")
"""Options whose names take several values, with commas between them."""


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """`a=1 b=2` as a mapping. Raises ConfigError that names the option."""
    made: dict[str, str] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} takes NAME=VALUE, got {item!r}")
        if name in made:
            both = f" as {name}={made[name]},{text}" if option in SEVERAL else ""
            raise ConfigError(f"{option}: {name} stands there twice; give it once{both}")
        made[name] = text
    return made


def value(text: str) -> Any:
    """A value: JSON, or Python's own words for JSON's, or else the text as it stands."""
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
