"""Everybody who can play, by name: baselines, routers that learn from train tasks, models, checkpoints.

    made = player("skillbook", factory, seed=0)
    move = await made.move(episode)

A player of your own is named by its path, "module:maker", and made by maker(name, factory, seed, options).
"""

from __future__ import annotations

import inspect
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from toolorchestra.agents.policies import baselines
from toolorchestra.agents.policies.base import Move, Player, PlayerOptions, draws, unasked, unreal
from toolorchestra.agents.policies.baselines import PREFIX as ALWAYS
from toolorchestra.agents.policies.baselines import Baseline, RandomPolicy, always, always_refusal, baseline
from toolorchestra.agents.policies.chat_player import CHAT, NAMED, NO_ENDPOINT, REFERENCE, chat_player, chat_refusal
from toolorchestra.agents.policies.knn_and_skillbook import EXPECTS, FittedPlayer
from toolorchestra.agents.policies.plans import ANSWER
from toolorchestra.agents.policies.router import PREFIX as ROUTER
from toolorchestra.agents.policies.router import router_player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.datasets import ALL
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory

__all__ = ["NAMES", "Move", "Player", "PlayerOptions", "playable", "player"]

RANDOM, CHECKPOINT = "random", "checkpoint:"
ORACLES = ("oracle", "told-oracle", "task-oracle")
TABLED = ("cheapest", "strongest", *ORACLES)
"""Players that know the simulated experts' skills."""
RULED = ("cheap", "expensive", "cascade")
"""Players that know prices alone."""
FITTED = tuple(EXPECTS)
WITH_TRAIN = ("train", ALL)
"""Splits that tasks are of from which players learn."""
NAMES = (RANDOM, *TABLED, *RULED, *FITTED, CHAT)
FORMS = (
    *NAMES,
    REFERENCE,
    f"{NAMED}MODEL",
    f"{ALWAYS}EXPERT",
    f"{CHECKPOINT}FOLDER",
    f"{ROUTER}FOLDER",
    "module:maker",
)
_NAMES_BACKENDS = "--backends FILE; of play, --set backends=FILE"
_CHECKPOINTS = "toolorchestra.agents.training.checkpoint_player:checkpoint_player"
"""Named by its path as any player from elsewhere is: what loads a checkpoint is built on what is built on policies."""


class RulePlayer:
    """Plays by a rule: the text of a move follows from the episode."""

    def __init__(self, name: str, rule: Baseline, *, simulated: bool) -> None:
        self.name, self.simulated, self._rule = name, simulated, rule

    async def move(self, episode: Episode) -> Move:
        """Move by the rule."""
        return unasked(self._rule(episode), episode, simulated=self.simulated)


def player(name: str, factory: EpisodeFactory, seed: int = 0, options: PlayerOptions | None = None) -> Player:
    """A player by its name, for the episodes of a factory. Raises ConfigError where it cannot play them."""
    options = options or PlayerOptions()
    if refused := playable(name, factory):
        raise ConfigError(refused, command_line=_NAMES_BACKENDS if refused == NO_ENDPOINT else "")
    if name.startswith(ROUTER):
        return router_player(name, factory, seed)
    if name == CHAT or name.startswith(NAMED):
        return chat_player(name, factory, options)
    if name.startswith(ALWAYS):
        return RulePlayer(name, always(name.removeprefix(ALWAYS)), simulated=unreal(factory))
    if name in FITTED:
        return FittedPlayer(name, factory, seed, options)
    if name == RANDOM:
        return RulePlayer(name, lambda episode: random_move(episode, seed), simulated=unreal(factory))
    if name in RULED or name in TABLED:
        return RulePlayer(name, baseline(name, seed), simulated=unreal(factory))
    return _from_elsewhere(name, factory, seed, options)


def playable(name: str, factory: EpisodeFactory) -> str:
    """Why a player cannot play a factory's episodes, or "". An unknown name is an error."""
    if name in TABLED and not baselines.players(factory.source):
        return f"policy {name!r} plays questions to simulated experts, whose skills it knows; {_not(factory)}"
    if (name in RULED or name in FITTED or name in ORACLES) and (refused := _asks_nobody(factory)):
        return f"policy {name!r} routes questions among experts; {refused}"
    if name in FITTED and "train" not in factory.source.splits:
        return f"policy {name!r} learns from train tasks; {factory.source.name} has none"
    if name in FITTED and factory.settings.split in WITH_TRAIN:
        return f"policy {name!r} learns from train tasks, which split {factory.settings.split!r} has; play it on test"
    if name == CHAT or name.startswith(NAMED):
        return chat_refusal(name, factory)
    if name.startswith(ALWAYS):
        return always_refusal(name, factory)
    check_name(name)
    return ""


def check_name(name: str) -> None:
    """Raise ConfigError for a name that no policy can have."""
    if name not in NAMES and not name.startswith((CHECKPOINT, ROUTER, ALWAYS, NAMED)) and not _is_path(name):
        several = " Several policies are written with blanks between them." if "," in name else ""
        folder = f" It is a folder; a run's trained model is {CHECKPOINT}{name}" if Path(name).is_dir() else ""
        if "/" in name and not folder:
            raise ConfigError(
                f"no folder {name!r:.200}; name the folder of a run of training, or a policy such as cascade"
            )
        raise ConfigError(no_such("policy", name, FORMS) + several + folder)


def _not(factory: EpisodeFactory) -> str:
    return f"{factory.source.name} is none of those; take random, chat, or {CHECKPOINT}FOLDER"


def _asks_nobody(factory: EpisodeFactory) -> str:
    source = factory.source
    if not isinstance(source, QaSource):
        return _not(factory)
    if not any(entry.kind in ANSWER for entry in source.config.tools):
        return f"tool configuration {source.config.name!r} has no expert that could be asked for the answer"
    return ""


def random_move(episode: Episode, seed: int) -> str:
    """Any tool with any arguments that fit its schema, evenly; where somebody listens, now and then a word to him."""
    rng = draws(seed, episode)
    if isinstance(episode.world, QaWorld):
        return RandomPolicy(rng.getrandbits(64))(episode)
    from toolorchestra.envs.base.random_values import random_value

    tools = episode.world.toolbox.tools
    if not tools or rng.random() < 0.1:
        return rng.choice(("Yes.", "No.", "Could you tell me more?", "That is done."))
    chosen = rng.choice(tools)
    return render_call(chosen.name, random_value(chosen.parameters, rng))


def _is_path(name: str) -> bool:
    module, _, maker = name.partition(":")
    return maker.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _from_elsewhere(name: str, factory: EpisodeFactory, seed: int, options: PlayerOptions) -> Player:
    try:
        maker: Any = resolve_name(_CHECKPOINTS if name.startswith(CHECKPOINT) else name)
    except (ImportError, AttributeError, ValueError) as err:
        raise ConfigError(
            f'player {name!r} cannot be loaded: {err}; write it as "module:maker", with its folder in PYTHONPATH'
        ) from None
    made: Any = maker(name, factory, seed, options)
    moves = inspect.iscoroutinefunction(getattr(made, "move", None))
    if not (moves and hasattr(made, "name") and hasattr(made, "simulated")):
        raise ConfigError(f"player {name!r} has a name, `simulated` and an async move(episode); got {made!r:.60}")
    player: Player = made
    return player
