"""The environments of a run's mix as factories: of what is learnt from, and of what is held out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, Literal

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.rollouts.rollout import Job, factory_of
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.registration import ids, spec_of
from toolorchestra.envs.tools.tool_config import Half

_REAL = frozenset(("backends", "dataset", "experts", "expert_models", "user_model"))


def training(mix: EnvMix) -> EpisodeFactory:
    """Of rollouts to learn from. Tools, aliases and prices vary from task to task where the source can vary them."""
    return factory_of(mix.env_id, **arguments_of(mix, "train"))


def held_out(mix: EnvMix, split: Literal["validation", "test"]) -> EpisodeFactory:
    """Of a split, with variants and wordings that neither training nor the other split ever sees."""
    return factory_of(mix.env_id, **arguments_of(mix, split))


def arguments_of(mix: EnvMix, split: Literal["train", "validation", "test"]) -> dict[str, Any]:
    """What gym.make is given for rollouts to learn from, or for those that are held out."""
    if split == "train":
        return {**_varied(mix, "train"), **mix.arguments, "split": mix.train}
    half: Half = "validation" if split == "validation" else "heldout"
    unseen = {**_varied(mix, half), "wording": half}
    return {**mix.arguments, **unseen, "split": getattr(mix, split)}


def simulated(config: TrainConfig) -> bool:
    """Whether every environment is one of the suite's whose models are the embedded ones, as far as can be told."""
    return all(spec_of(mix.env_id).id in ids() and _REAL.isdisjoint(mix.arguments) for mix in config.environments)


def job_of(mix: EnvMix, made: EpisodeFactory, seed: int, options: Mapping[str, Any] | None = None) -> Job:
    """One rollout of an environment, under the limits that it has in the mix."""
    return Job(mix.env_id, made, seed, options, max_tokens=mix.max_tokens, max_context=mix.max_context)


def labels(mixes: Sequence[EnvMix]) -> list[str]:
    """Each environment of the mix by a short name of its own, for metrics: `HLE-v0`, and `HLE-v0 (2)` where it comes
    again."""
    made: list[str] = []
    for mix in mixes:
        name = mix.env_id.rpartition("/")[2]
        again = sum(other.partition(" (")[0] == name for other in made)
        made.append(f"{name} ({again + 1})" if again else name)
    return made


def _varied(mix: EnvMix, half: Half) -> dict[str, Any]:
    source = spec_of(mix.env_id).kwargs.get("source", "")
    takes = inspect.signature(resolve_name(source)).parameters if isinstance(source, str) and source else ()
    return {"diversify": half} if "diversify" in takes else {}
