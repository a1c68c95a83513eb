"""Trajectories as JSON lines: one line for each episode, with every charge, to read again without the environment."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from toolorchestra.envs.base.cassette import append_line, end_torn_line
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.ledger import Ledger
from toolorchestra.envs.money.prices import Charge

NEEDED = ("task_id", "seed", "messages", "charges", "rewards", "outcome", "totals")


class RecordTrajectories(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Appends one line to `path` at each episode's end.

    An episode that is left in the middle, by reset() or close(), is written with "abandoned": true; one that was left
    before its first turn is not. Each line goes out in one write, so several processes may share a file.
    """

    def __init__(self, env: gym.Env[Any, Any], path: str | Path) -> None:
        RecordConstructorArgs.__init__(self, path=str(path))
        gym.Wrapper.__init__(self, env)
        base = env.unwrapped
        if not isinstance(base, OrchestraEnv):
            raise ConfigError(f"expected a ToolOrchestra environment, got {type(base).__name__}; wrap one of those")
        self._base = base
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"trajectories go into a file, but {self.path} is a folder; name a file in it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        end_torn_line(self.path)
        self._episode: Episode | None = None
        self._opening: dict[str, Any] = {}
        self._turns: list[int] = []
        self._rewards: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the one before it is written if it had not ended."""
        self._abandon()
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode, self._turns, self._rewards = self._base.episode, [], []
        kept = ("task", "preference", "budget", "price_sheet")
        self._opening = {"reset_seed": seed, **{name: info[name] for name in kept if name in info}}
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One turn, remembered."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._episode is not None:
            self._rewards.append(reward)
            self._date_charges(self._episode)
            if terminated or truncated:
                self._write(self._episode, info, terminated=terminated, abandoned=False)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Write an episode that had not ended, and close."""
        self._abandon()
        self.env.close()

    def _date_charges(self, episode: Episode) -> None:
        self._turns += [episode.turn] * (len(episode.ledger) - len(self._turns))

    def _abandon(self) -> None:
        if self._episode is not None and self._episode.turn:
            self._date_charges(self._episode)
            self._write(self._episode, {}, terminated=False, abandoned=True)
        self._episode = None

    def _write(self, episode: Episode, info: Mapping[str, Any], *, terminated: bool, abandoned: bool) -> None:
        self._episode = None
        row = {
            "task_id": episode.task_id,
            "seed": episode.context.seed,
            **self._opening,
            "tools": episode.world.toolbox.schemas,
            "messages": episode.messages,
            "charges": [_charge(c, turn) for c, turn in zip(episode.ledger, self._turns, strict=True)],
            "rewards": self._rewards,
            "outcome": info.get("outcome"),
            "calls": episode.calls,
            "totals": {"turns": episode.turn, **_totals(episode.ledger)},
            "terminated": terminated,
            "truncated_by": info.get("truncated_by", ""),
            "failed": info.get("failed"),
            "abandoned": abandoned,
        }
        append_line(self.path, json.dumps(_plain(row), allow_nan=False).encode() + b"\n")


def read_trajectories(path: str | Path) -> Iterator[dict[str, Any]]:
    """The file's trajectories, in order. A broken line is an error that names it."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except ValueError as err:
                raise ConfigError(_broken(path, number, f"not JSON ({err})")) from None
            if not isinstance(row, dict):
                raise ConfigError(_broken(path, number, f"a {type(row).__name__}"))
            if missing := [name for name in NEEDED if name not in row]:
                raise ConfigError(_broken(path, number, f"an object without {', '.join(missing)}"))
            yield row


def _broken(path: str | Path, number: int, got: str) -> str:
    return f"{path}, line {number}: expected a trajectory as one JSON object, got {got}; remove or repair the line"


def _charge(charge: Charge, turn: int) -> dict[str, Any]:
    usage = charge.usage
    return {
        "turn": turn,
        "item": usage.item,
        "role": usage.role,
        "tool": charge.tool,
        "tokens": usage.tokens._asdict(),
        "units": usage.units,
        "seconds": usage.seconds,
        "estimated": usage.estimated,
        "nano_usd": charge.nano_usd,
        "sheet": charge.sheet,
    }


def _totals(ledger: Ledger) -> dict[str, Any]:
    by_role: dict[str, int] = {}
    by_tool: dict[str, int] = {}
    for charge in ledger:
        by_role[charge.role] = by_role.get(charge.role, 0) + charge.nano_usd
        by_tool[charge.tool] = by_tool.get(charge.tool, 0) + charge.nano_usd
    return {
        "nano_usd": ledger.nano_usd,
        "seconds": ledger.seconds,
        "tokens": ledger.tokens()._asdict(),
        "nano_usd_by_role": by_role,
        "nano_usd_by_tool": by_tool,
    }


def _plain(value: Any) -> Any:
    """As strict JSON has it: nan, a failed episode's reward, becomes null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
