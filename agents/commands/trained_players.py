"""What commands that play say and choose for `checkpoint:FOLDER` and `router:FOLDER`, which know how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from toolorchestra.agents.commands.console import say
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environment_options import ChosenEnv
from toolorchestra.agents.configuration.environments import as_trained, difference, option, short_id
from toolorchestra.agents.policies.router import PREFIX as ROUTER
from toolorchestra.agents.policies.router import load_router
from toolorchestra.agents.training.checkpoint_player import PREFIX
from toolorchestra.agents.training.saved_model import TrainedAs, saved_model
from toolorchestra.envs.factory import EpisodeFactory


@cache
def how_trained(policy: str) -> TrainedAs | None:
    """Of the model behind `checkpoint:FOLDER`; None for any other player. Looked up once: a checkpoint's weights are
    hashed for it."""
    return saved_model(Path(policy.removeprefix(PREFIX))).how if policy.startswith(PREFIX) else None


@cache
def trained_on(policy: str) -> tuple[EnvMix, ...]:
    """The environments of a trained player; none of any other."""
    if policy.startswith(ROUTER):
        known = load_router(Path(policy.removeprefix(ROUTER))).how.environments
        return tuple(EnvMix(env_id, arguments=arguments) for env_id, arguments in known.items())
    how = how_trained(policy)
    return how.environments if how is not None else ()


def environments_of(policies: Sequence[str], most: int | None = None) -> tuple[ChosenEnv, ...]:
    """The first ones, or all, that the first trained model among the players was trained on, which is said; none where
    there is no such player."""
    for policy in policies:
        if trained := trained_on(policy):
            chosen = as_trained(trained)[:most]
            say(f"as {policy} was trained: {' '.join(map(option, chosen))}")
            return chosen
    return ()


def tell_difference(policy: str, env_id: str, made: EpisodeFactory) -> None:
    """Say what a trained model is not used to in an environment."""
    trained = trained_on(policy)
    if trained and (told := difference(trained, env_id, made)):
        say(f"{policy} on {short_id(env_id)}: {told}")
