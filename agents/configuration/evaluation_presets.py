"""The paper's settings of an evaluation by name: what gym.make is given, a label for each.

for label, arguments in preset("turns"): gym.make("ToolOrchestra/HLE-v0", split="test", **arguments)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pkgutil import resolve_name
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.preference import kinds
from toolorchestra.envs.factory import EnvSettings
from toolorchestra.envs.registration import spec_of

TURNS = (10, 20, 50, 100)
UNSEEN_PRICES = "unseen-2026-01"
WISH = "wish: "
"""What the labels of the preset `preferences` begin with."""


class PresetSetting(NamedTuple):
    """One setting of a preset."""

    label: str
    arguments: Mapping[str, Any]
    """Arguments of gym.make."""


@dataclass(frozen=True)
class EvaluationPreset:
    """A named list of settings."""

    about: str
    """One line."""
    settings: tuple[PresetSetting, ...]


def _one(about: str, label: str, **arguments: Any) -> EvaluationPreset:
    return EvaluationPreset(about, (PresetSetting(label, arguments),))


def _each(about: str, label: str, argument: str, values: Sequence[Any], **more: Any) -> EvaluationPreset:
    made = (PresetSetting(label.format(value), {argument: value, **more}) for value in values)
    return EvaluationPreset(about, tuple(made))


PRESETS: Mapping[str, Callable[[], EvaluationPreset]] = {
    "no-tools": lambda: _one("The model alone: it can only submit an answer.", "no tools", tools="none"),
    "basic-tools": lambda: _one("Search and a Python interpreter, no experts.", "basic tools", tools="basic"),
    "all-tools": lambda: _one("The paper's tools with their experts.", "all tools", tools="paper"),
    "unseen-tools": lambda: _one(
        "Sets of experts and aliases that training never draws.",
        "unseen tools", diversify="heldout", vary=("tools", "aliases"),
    ),
    "unseen-prices": lambda: _one("Another provider's price sheet.", "unseen prices", prices=UNSEEN_PRICES),
    "turns": lambda: _each("Accuracy over cost at 10, 20, 50 and 100 turns.", "{} turns", "max_turns", TURNS),
    "preferences": lambda: _each(
        "Every kind of the user's wish, in wordings that training never shows.",
        WISH + "{}", "preference", kinds(), wording="heldout",
    ),
}  # fmt: skip


def presets() -> Mapping[str, str]:
    """The presets by name, with one line each."""
    return {name: make().about for name, make in PRESETS.items()}


def preset(name: str, env_id: str = "") -> list[PresetSetting]:
    """The settings of a preset. With an environment's id: refused where the environment does not take them."""
    if name not in PRESETS:
        raise ConfigError(no_such("evaluation preset", name, PRESETS))
    settings = list(PRESETS[name]().settings)
    if env_id and (lacking := sorted(_lacking(settings, env_id))):
        raise ConfigError(
            f"preset {name!r} sets {', '.join(lacking)}, which {env_id} does not take; presets that it takes: "
            f"{', '.join(fitting(env_id)) or 'none'}"
        )
    return settings


def fitting(env_id: str) -> Iterator[str]:
    """The presets that an environment takes."""
    return (name for name, make in PRESETS.items() if not _lacking(make().settings, env_id))


def _lacking(settings: Sequence[PresetSetting], env_id: str) -> set[str]:
    source = spec_of(env_id).kwargs.get("source", "")
    takes = set(inspect.signature(resolve_name(source)).parameters) if isinstance(source, str) and source else set()
    takes |= {field.name for field in fields(EnvSettings)}
    return {name for setting in settings for name in setting.arguments} - takes
