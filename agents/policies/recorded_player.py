"""Replays what was recorded: `file:TRAJECTORIES` says again what the file's assistant said on a task and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.policies.base import Move, digest, unreal
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.wrappers.record import read_trajectories

PREFIX = "file:"


class RecordedPlayer:
    """Says what a file of trajectories has, with the tokens that were counted then."""

    def __init__(self, name: str, moves: Mapping[tuple[str, int], Sequence[Move]], *, simulated: bool) -> None:
        self.name, self.simulated = name, simulated
        self.made_of = digest(*sorted((*key, *said) for key, said in moves.items()))
        """A digest of what it says."""
        self._moves = moves

    async def move(self, episode: Episode) -> Move:
        """See Player. What the file lacks is an outage: nobody knows what would have been said."""
        key = (episode.task_id, episode.context.seed)
        said = self._moves.get(key)
        if said is None:
            raise Outage(f"the file has no trajectory of task {key[0]} with seed {key[1]}")
        if episode.turn >= len(said):
            raise Outage(f"the trajectory of task {key[0]} with seed {key[1]} ends after {len(said)} turns")
        return said[episode.turn]


def recorded_player(name: str, factory: EpisodeFactory) -> RecordedPlayer:
    """From `file:PATH`, or `file:PATH@POLICY` for what one policy said in a run of several."""
    path, _, policy = name.removeprefix(PREFIX).partition("@")
    moves: dict[tuple[str, int], Sequence[Move]] = {}
    try:
        for row in read_trajectories(path):
            if policy and policy_of(row) != policy:
                continue
            key, said = (row["task_id"], row["seed"]), _said(row)
            if moves.setdefault(key, said) != said:
                raise ConfigError(
                    f"{path} has two trajectories of task {key[0]} with seed {key[1]} that differ; name whose is "
                    f"meant: {PREFIX}{path}@POLICY"
                )
    except OSError as err:
        raise ConfigError(f"no trajectories at {path!r} ({err.strerror}); RecordTrajectories writes them") from None
    if not moves:
        whose = f" of policy {policy!r}" if policy else ""
        raise ConfigError(f"{path} has no trajectory{whose}")
    return RecordedPlayer(name, moves, simulated=unreal(factory))


def policy_of(row: Mapping[str, Any]) -> str:
    """Whose trajectory it is, where a run's key says that: (env, split, policy, task, trial)."""
    key = row.get("key")
    return str(key[2]) if isinstance(key, list) and len(key) > 2 else ""


def _said(row: Mapping[str, Any]) -> Sequence[Move]:
    texts = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
    used = {
        charge["turn"]: Usage(charge["item"], ORCHESTRATOR, Tokens(**charge["tokens"]), seconds=charge["seconds"])
        for charge in row["charges"]
        if charge["role"] == ORCHESTRATOR and not charge["estimated"]
    }
    return [Move(text, used.get(turn)) for turn, text in enumerate(texts, 1)]
