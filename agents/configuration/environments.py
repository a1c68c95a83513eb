"""The environments of a run's mix as factories: of what is learnt from, and of what is held out."""

from __future__ import annotations

import inspect
from pkgutil import resolve_name
from typing import Any, Literal

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.registration import spec_of


def training(mix: EnvMix) -> EpisodeFactory:
    """Of rollouts to learn from. Tools, aliases and prices vary from task to task where the source can vary them."""
    return factory_of(mix.env_id, **{**_varied(mix, "train"), **mix.arguments, "split": mix.train})


def held_out(mix: EnvMix, split: str) -> EpisodeFactory:
    """Of a split, with variants and wordings that training never sees."""
    unseen = {**_varied(mix, "heldout"), "wording": "heldout"}
    return factory_of(mix.env_id, **{**mix.arguments, **unseen, "split": split})


def _varied(mix: EnvMix, half: Literal["train", "heldout"]) -> dict[str, Any]:
    source = spec_of(mix.env_id).kwargs.get("source", "")
    takes = inspect.signature(resolve_name(source)).parameters if isinstance(source, str) and source else ()
    return {"diversify": half} if "diversify" in takes else {}
