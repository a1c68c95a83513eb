"""The environments that a model was trained on, beside those that it is played on: what differs, and how to say so."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environment_options import ChosenEnv, value
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.registration import NAMESPACE, spec_of


def as_trained(trained: Sequence[EnvMix]) -> tuple[ChosenEnv, ...]:
    """Each environment as it was trained on, once."""
    first = {mix.env_id: mix for mix in reversed(trained)}
    return tuple(ChosenEnv(env_id, first[env_id].arguments) for env_id in dict.fromkeys(m.env_id for m in trained))


def difference(trained: Sequence[EnvMix], env_id: str, made: EpisodeFactory) -> str:
    """In a sentence, what the model is not used to in this environment; "" where it was trained on the same. An
    argument that neither the settings nor the task source keep under its name is not looked at."""
    same = [mix for mix in trained if _whole_id(mix.env_id) == _whole_id(env_id)]
    if not same:
        return f"it was trained on {', '.join(dict.fromkeys(short_id(mix.env_id) for mix in trained))}, not on this"
    found = [_others(mix.arguments, made) for mix in same]
    if not all(found):
        return ""
    here, mix = min(zip(found, same, strict=True), key=lambda pair: len(pair[0]))
    there = {name: mix.arguments[name] for name in here}
    return f"it was trained with {_words(there)}, and plays with {_words(here)}; as it was trained: {option(mix)}"


def limited(config: TrainConfig, made: EpisodeFactory) -> TrainConfig:
    """The run's settings with the limits of tokens that an environment had in its mix."""
    for mix in config.environments:
        if _source(mix.env_id) is type(made.source):
            tokens, context = mix.max_tokens or config.max_tokens, mix.max_context or config.max_context
            return replace(config, max_tokens=tokens, max_context=context)
    return config


def _source(env_id: str) -> Any:
    """The class of an environment's task source; None where it is none of this process's environments."""
    try:
        source = spec_of(env_id).kwargs.get("source")
    except ConfigError:
        return None
    return resolve_name(source) if isinstance(source, str) else source


def option(mix: EnvMix | ChosenEnv) -> str:
    """The option of a command line that chooses an environment like this."""
    return " ".join(["--env", short_id(mix.env_id), _words(mix.arguments)]).strip()


def _others(arguments: Mapping[str, Any], made: EpisodeFactory) -> dict[str, Any]:
    """The arguments that have other values here, with these."""
    others = {}
    for name, trained in arguments.items():
        keeps = made.settings if hasattr(made.settings, name) else made.source
        now = getattr(keeps, name, trained)
        if _plain(now) != _plain(trained):
            others[name] = now
    return others


def _plain(argument: Any) -> Any:
    """As it looks after a journey through JSON."""
    return json.loads(json.dumps(argument, default=str))


def _words(arguments: Mapping[str, Any]) -> str:
    return " ".join(shlex.quote(f"{name}={_text(argument)}") for name, argument in arguments.items())


def _text(argument: Any) -> str:
    """What a command line reads as this argument."""
    plain = _plain(argument)
    return plain if isinstance(plain, str) and value(plain) == plain else json.dumps(plain)


def _whole_id(env_id: str) -> str:
    name = env_id.rpartition(":")[2]
    return name if "/" in name else f"{NAMESPACE}/{name}"


def short_id(env_id: str) -> str:
    return env_id.removeprefix(f"{NAMESPACE}/")
