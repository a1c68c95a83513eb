"""Trajectories as JSON lines: one line for each episode, with every charge, to read again without the environment."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.world import Regradable
from toolorchestra.envs.env import OrchestraEnv, base_of
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.ledger import Ledger, charge_row
from toolorchestra.envs.money.prices import sheet_names

NEEDED = ("task_id", "seed", "messages", "charges", "rewards", "outcome", "totals")


class RecordTrajectories(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Appends one line to `path` at each episode's end.

    An episode that is left in the middle, by reset(), close() or Gymnasium's `max_episode_steps`, is written with
    "abandoned": true; one that was left before its first turn is not. Each line goes out in one write, so several
    processes may share a file.
    """

    def __init__(self, env: gym.Env[Any, Any], path: str | Path) -> None:
        self._base = base_of(env, "RecordTrajectories")
        RecordConstructorArgs.__init__(self, path=str(path))
        gym.Wrapper.__init__(self, env)
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"trajectories go into a file, but {self.path} is a folder; name a file in it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._episode: Episode | None = None
        self._opening: dict[str, Any] = {}
        self._turns: list[int] = []
        self._rewards: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the one before it is written if it had not ended."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._abandon()  # not before: where a reset is refused the episode goes on
        self._episode, self._turns, self._rewards = self._base.episode, [], []
        kept = ("task", "preference", "budget", "price_sheet")
        self._opening = {"reset_seed": seed, **{name: info[name] for name in kept if name in info}}
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one turn, and keep it for the file. The trajectory is written when the episode ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._episode is not None:
            self._rewards.append(reward)
            self._date_charges(self._episode)
            if terminated or truncated:
                self._write(self._episode, info, terminated=terminated, abandoned=not self._episode.over)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Write an episode that had not ended, and close."""
        self._abandon()
        self.env.close()

    def _date_charges(self, episode: Episode) -> None:
        self._turns += [episode.turn] * (len(episode.ledger) - len(self._turns))

    def _abandon(self) -> None:
        if self._episode is not None and self._episode.turn:
            self._episode.settle()
            self._date_charges(self._episode)
            self._write(self._episode, {}, terminated=False, abandoned=True)
        self._episode = None

    def _write(self, episode: Episode, info: Mapping[str, Any], *, terminated: bool, abandoned: bool) -> None:
        self._episode = None
        row = trajectory(episode, self._opening, self._turns, self._rewards, info, terminated=terminated)
        append_line(self.path, trajectory_line({**row, "abandoned": abandoned}))


def trajectory(
    episode: Episode,
    opening: Mapping[str, Any],
    turns: Sequence[int],
    rewards: Sequence[Any],
    info: Mapping[str, Any],
    *,
    terminated: bool,
) -> dict[str, Any]:
    """An episode as a row: `opening` is what reset() told, `turns` the turn of each charge, `info` the last step's."""
    world, graded = episode.world, {}
    if episode.finished is not None and isinstance(world, Regradable):
        graded = {"grading": {"finished": episode.finished, "of": world.to_grade()}}
    images = world.question.images if isinstance(world, QaWorld) else ()
    return {
        "task_id": episode.task_id,
        **_drawn_from(episode),
        **opening,
        "tools": episode.world.toolbox.schemas,
        "messages": episode.messages,
        **({"images": list(images)} if images else {}),
        **({"conversation": said} if (said := episode.world.whole_conversation()) else {}),
        "charges": [{"turn": turn, **charge_row(c)} for c, turn in zip(episode.ledger, turns, strict=True)],
        "rewards": rewards,
        "outcome": info.get("outcome") or None,
        "calls": episode.calls,
        "totals": {"turns": episode.turn, **_totals(episode.ledger)},
        "terminated": terminated,
        "truncated_by": info.get("truncated_by", ""),
        "failed": info.get("failed") or None,
        **{name: info[name] for name in ("over_budget_usd",) if name in info},
        "abandoned": False,
        **graded,
    }


def _drawn_from(episode: Episode) -> dict[str, int]:
    """The episode's own seed, and its luck where it has one."""
    if episode.origin is None:
        return {"seed": episode.context.seed}
    _, seed, options = episode.origin
    return {"seed": seed, **({"luck": options["luck"]} if options.get("luck") else {})}


def trajectory_line(row: Mapping[str, Any]) -> bytes:
    """A row as a line of a file."""
    try:
        text = json.dumps(dict(row), allow_nan=False, default=strict_json)
    except (ValueError, TypeError):  # nan, or a key that is no text
        text = json.dumps(strict_json(row), allow_nan=False)
    return text.encode() + b"\n"


def read_trajectories(path: str | Path) -> Iterator[dict[str, Any]]:
    """The file's trajectories, in order. A broken line is an error that names it."""
    if not Path(path).is_file():
        raise ConfigError(f"no file of trajectories {str(path)!r}; RecordTrajectories(env, path) writes one")
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                missing = [name for name in NEEDED if not isinstance(row, dict) or name not in row]
                got = f"one without {', '.join(missing)}" if missing else ""
            except ValueError as err:
                got = f"not JSON ({err})"
            if got:
                expected = "expected a trajectory as one JSON object"
                raise ConfigError(f"{path}, line {number}: {expected}, got {got}; remove or repair the line")
            yield row


def reset_to_recorded(env: gym.Env[Any, Any], row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Start a recorded episode again: its task, tools, prices, preference, budget and draws. `row` is a trajectory, of
    RecordTrajectories or of an evaluation; `env` is made with the arguments that the recorded one was made with."""
    base = base_of(env, "reset_to_recorded")
    options: dict[str, Any] = {"task_id": row["task_id"], "episode_seed": row["seed"], "luck": row.get("luck")}
    if (told := row.get("preference")) is not None:
        options["preference"] = Preference.told(told)
    if row.get("budget") is not None:
        options["budget"] = row["budget"]
    if row.get("price_sheet") in sheet_names():  # a schedule of prices that was drawn has a name of its own
        options["prices"] = row["price_sheet"]
    observation, info = env.reset(options=options)
    assert base.episode is not None
    toolbox, schemas = base.episode.world.toolbox, row.get("tools")
    if schemas and toolbox.schemas != schemas and {*toolbox.keys} >= {*(offered := _offered(schemas))}:
        observation, info = env.reset(options={**options, "tools": offered})
    _demand_same_opening(base, row)
    return observation, info


def _offered(schemas: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a toolbox of these offers, as the option `tools` takes it: models by alias, other tools by name."""
    names: list[str] = []
    for function in (schema["function"] for schema in schemas):
        model = function["parameters"].get("properties", {}).get("model", {})
        names += model.get("enum") or [function["name"]]
    return names


def _demand_same_opening(base: OrchestraEnv, row: Mapping[str, Any]) -> None:
    episode = base.episode
    assert episode is not None
    here: dict[str, Any] = {"tools": episode.world.toolbox.schemas, "messages": [dict(m) for m in episode.messages]}
    there = {"tools": row.get("tools", here["tools"]), "messages": row["messages"][: len(episode.messages)]}
    if sheet := row.get("price_sheet"):
        here["price_sheet"], there["price_sheet"] = episode.sheet.sheet_id, sheet
    for what, mine in here.items():
        if json.loads(json.dumps(strict_json(mine))) != json.loads(json.dumps(strict_json(there[what]))):
            raise ConfigError(
                f"task {row['task_id']} with episode_seed {row['seed']} begins with other {what} than were recorded; "
                "make the environment with the arguments that the recorded one was made with"
            )


def _totals(ledger: Ledger) -> dict[str, Any]:
    by_role, by_tool = Counter[str](), Counter[str]()
    for charge in ledger:
        by_role[charge.role] += charge.nano_usd
        by_tool[charge.tool] += charge.nano_usd
    return {
        "nano_usd": ledger.nano_usd,
        "seconds": ledger.seconds,
        "tokens": ledger.tokens()._asdict(),
        "nano_usd_by_role": dict(by_role),
        "nano_usd_by_tool": dict(by_tool),
    }


_AS_THEY_ARE = frozenset((str, int, bool, type(None)))


def strict_json(value: Any) -> Any:
    """Convert to what strict JSON has it: nan, a failed episode's reward, becomes null."""
    kind = type(value)
    if kind in _AS_THEY_ARE:  # nearly always: a served request has a hundred of them
        return value
    if kind is dict:
        return {key if type(key) is str else str(key): strict_json(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): strict_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
