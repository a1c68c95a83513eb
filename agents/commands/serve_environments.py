"""Environments behind HTTP, for trainers in other processes, as OpenEnv's clients, verifiers and NeMo Gym play them:

    toolorchestra serve environments --env HLE-v0 split=train --env FRAMES-v0

docs/trainers.md says how each of them is pointed here. Beyond this machine (--host) only with a token in
$TOOLORCHESTRA_ENVIRONMENTS_TOKEN, which clients send as "Authorization: Bearer TOKEN".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.agents.commands.serve import listening
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.configuration.environments import labels
from toolorchestra.agents.policies.base import unreal
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.adapters.remote_episodes import RemoteEpisodes
from toolorchestra.envs.base.errors import AT_LEAST_ONE, POSITIVE, ConfigError, install, require
from toolorchestra.envs.base.secrets import key_in
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.retrieval.remote import LOOPBACK

TOKEN_ENV = "TOOLORCHESTRA_ENVIRONMENTS_TOKEN"


@dataclass(frozen=True)
class ServeEnvironmentsOptions:
    """What `toolorchestra serve environments` takes."""

    env: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """An id and NAME=VALUE of gym.make's arguments; may come again. For example: --env HLE-v0 max_turns=20"""
    most_usd: float | None = None
    """The most that all episodes may spend together on real models and searches. Needed where a backends file is
    named."""
    host: str = "127.0.0.1"
    """Where to listen; the default is heard on this machine alone."""
    port: int = 8000
    """0 takes a free one."""
    at_once: int = 512
    """Episodes that are played at once; more are refused."""
    idle_seconds: float = 600.0
    """An episode that nobody has played for so long is ended, with its bill."""
    out: str = ""
    """Folder of bills.jsonl, a line for each episode that has ended; runs/environments/TIME when left out."""

    def __post_init__(self) -> None:
        require(self, POSITIVE, "idle_seconds")
        require(self, AT_LEAST_ONE, "at_once")


def run(given: ServeEnvironmentsOptions) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    token = key_in(TOKEN_ENV)
    if given.host not in LOOPBACK and not token:
        raise ConfigError(f"environments served beyond this machine need a token: export {TOKEN_ENV}=...")
    if find_spec("websockets") is None:
        raise ConfigError(f"OpenEnv's clients need websockets: {install('serve')}")
    episodes = episodes_of(given)
    from toolorchestra.envs.adapters.environment_server import environment_app

    folder = Path(given.out or f"runs/environments/{datetime.now():%Y%m%d-%H%M%S}")
    check_folder("--out", folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "bills.jsonl").open("a", encoding="utf-8") as bills,
        listening(given.host, given.port) as (url, serve),
    ):

        def write(account: Mapping[str, Any]) -> None:
            bills.write(json.dumps(account, default=str) + "\n")
            bills.flush()

        episodes.on_end.append(write)
        told = [name + " (SIMULATED)" * unreal(made) for name, made in episodes.factories.items()]
        say(f"{', '.join(told)} at {url}; bills: {bills.name}")
        serve(environment_app(episodes, token), 5)
    return DONE


main = partial(command, ServeEnvironmentsOptions, run, about=__doc__)


def episodes_of(given: ServeEnvironmentsOptions) -> RemoteEpisodes:
    """The environments that the options name, each under a short name."""
    if not given.env:
        raise ConfigError("name an environment, such as HLE-v0", command_line="--env HLE-v0")
    chosen = chosen_envs(given.env)
    if given.most_usd is None and any("backends" in one.arguments for one in chosen):
        raise ConfigError("say the most that all episodes may spend together", command_line="--most-usd 20")
    cap: Mapping[str, Any] = {} if given.most_usd is None else {"spend_cap": SpendCap(given.most_usd)}
    names = labels([EnvMix(one.env_id) for one in chosen])
    factories = {name: factory_of(one.env_id, **one.arguments, **cap) for name, one in zip(names, chosen, strict=True)}
    return RemoteEpisodes(factories, at_once=given.at_once, idle_seconds=given.idle_seconds)
