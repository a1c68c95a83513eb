"""What a player is, what it says, and what may be set of one."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from toolorchestra.envs.base.errors import AT_LEAST_ONE, NOT_NEGATIVE, one_of, require
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Usage


class Move(NamedTuple):
    """What a policy says, and what saying it used (None: nobody counted)."""

    text: str
    usage: Usage | None


class Player(Protocol):
    """Anything that plays the episodes of an environment. It may play many at once, on one event loop."""

    @property
    def name(self) -> str: ...

    @property
    def simulated(self) -> bool:
        """Whether nothing real stands behind it: its moves come from no model, and the environment's models are
        simulated ones."""

    async def move(self, episode: Episode) -> Move:
        """The next move. Raises Outage where it could not be asked."""


@dataclass(frozen=True)
class PlayerOptions:
    """What may be set of players; each reads what concerns it."""

    tokenizer: str = ""
    """Folder or hub id of the tokenizer that cuts the prompt of `chat:reference`; "" takes four characters a token."""
    temperature: float = 0.0
    """The temperature of `checkpoint`; 0 takes the likeliest token."""
    sampler: Literal["", "local"] = ""
    """"local" samples `checkpoint` in this process, whatever the run was sampled with."""
    device: str = ""
    """The device of `checkpoint`: "cpu", "cuda" or "cuda:1"; "" takes the run's, and of an exported folder the CPU."""
    fit_tasks: int = 60
    """Train tasks that `knn` and `skillbook` learn from."""
    fit_folder: str = ""
    """Where they keep what they learnt; "" keeps it in this process alone."""
    cost_weight: float = 0.2
    """What the most expensive plan's bill counts for `knn` and `skillbook`, beside a right answer, which counts 1."""

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "fit_tasks")
        require(self, NOT_NEGATIVE, "temperature", "cost_weight")
        one_of("sampler", self.sampler, ("", "local"))


def unreal(factory: EpisodeFactory) -> bool:
    """Whether the environment's models are simulated, or it has none."""
    backing = getattr(factory.source, "backing", None)
    return backing is None or not backing.names_models


def unasked(text: str, episode: Episode, *, simulated: bool) -> Move:
    """A move that no model made. Over simulated experts the orchestrator's own tokens are estimated for it, so that its
    bill is like a model's; over real ones nothing was paid for it."""
    return Move(text, None if simulated else Usage(episode.rules.orchestrator, ORCHESTRATOR))


def draws(seed: int, episode: Episode) -> random.Random:
    """Random numbers of one move, the same whatever other episodes are played beside it."""
    return random.Random(digest(seed, episode.task_id, episode.context.seed, episode.turn))


def digest(*parts: Any) -> str:
    """A name for values, the same in every process."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=16).hexdigest()
