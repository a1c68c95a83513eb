"""Engines other than the local one: anybody's, named as module:Class."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.engines.base import Engine, Samples
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import chat_of
from toolorchestra.envs.base.errors import ConfigError

VERBS = tuple(sorted({name for kind in (Samples, Engine) for name in vars(kind) if not name.startswith("_")}))
"""What an engine has to be able to do."""


def named_engine(config: TrainConfig) -> tuple[Any, Chat]:
    """The engine and the chat of its model: of the weights nothing is loaded here."""
    chat = _chat(config)
    made = _class_of(config.engine)(config, chat)
    if lacking := [verb for verb in VERBS if not callable(getattr(made, verb, None))]:
        raise ConfigError(
            f"engine={config.engine} has no {', '.join(lacking)}; toolorchestra.agents.engines.base.Engine says what "
            "an engine does, and toolorchestra.agents.testing.check_engine tries it"
        )
    return made, chat


def _chat(config: TrainConfig) -> Chat:
    from toolorchestra.agents.engines import pretrained, tiny

    path = config.model.path
    return chat_of(pretrained.load_tokenizer(path) if path else tiny.load_tokenizer(), config.model)


def _class_of(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError, ValueError) as err:
        raise ConfigError(f"engine={name} is not there ({err}); name it as your.module:YourEngine") from None
    if not callable(found):
        raise ConfigError(f"engine={name} is {type(found).__name__}, and no class; name it as your.module:YourEngine")
    made: Callable[..., Any] = found
    return made
