"""A routing environment for learners: RLlib's remote env runners, Stable-Baselines3, or any loop over numbers.

    PPOConfig().environment(ROUTING, env_config={"worlds": ["HLE-v0", "FRAMES-v0"], "max_turns": 20})
    gym.make(ROUTING, worlds=["HLE-v0"], raising=False)

One id that other processes can make, because it names the module to import. The observation is a Box and the action a
number, so default models fit. This module imports no learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.env import base_of
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.registration import full_id, spec_of
from toolorchestra.envs.wrappers.routing import Routing, as_learnt

NAME = "ToolOrchestra/Routing-v0"
ROUTING = f"{__name__}:{NAME}"
"""What gym.make and RLlib's `environment()` take."""
EMBEDDED = ("HLE-v0", "FRAMES-v0")
Worlds = Sequence[str] | Mapping[str, Mapping[str, Any]]


class EpisodeFailed(RuntimeError):
    """An episode broke down. It has no reward, so nothing may learn from it."""


class RoutingEnv(gym.Env[Any, Any]):
    """Each episode is of one of several worlds, drawn evenly. Observations and actions are those of Routing.

    `worlds` are ids, or ids with arguments of gym.make for each; `settings` are arguments for all of them. The reward
    is a number, so `reward` is "scalar". With `masked` the observation is the mapping that RLlib's action masking
    reads: `observations` and `action_mask`.

    An episode ends as `as_learnt` says. One that breaks down raises EpisodeFailed; with `raising=False` it is cut off
    without a reward, and `failure` says so to whoever asks.
    """

    def __init__(
        self, worlds: Worlds = EMBEDDED, *, masked: bool = False, raising: bool = True, **settings: Any
    ) -> None:
        if not worlds or isinstance(worlds, str):
            raise ConfigError(f'worlds is a list of environments, such as ["HLE-v0"], got {worlds!r}')
        own = worlds if isinstance(worlds, Mapping) else {name: {} for name in worlds}
        self.worlds = {full_id(name): routed(name, **{**settings, **own[name]}) for name in own}
        self._playing, first = next(iter(self.worlds.items()))
        self._masked, self._raising = masked, raising
        self._last: tuple[Any, dict[str, Any]] = (None, {})
        self.failure = ""
        """Why the first episode broke down that did; "" while none has."""
        for name, world in self.worlds.items():
            if world.feature_names != first.feature_names:
                raise ConfigError(
                    f"a router plays worlds that offer the same calls; those of {name} differ from those of "
                    f"{self._playing}; train one for each"
                )
        self.action_meanings, self.feature_names = first.action_meanings, first.feature_names
        self.action_space = first.action_space
        mask = gym.spaces.Box(0.0, 1.0, (len(first.action_meanings),), np.float32)
        seen: gym.Space[Any] = first.observation_space
        self.observation_space = gym.spaces.Dict({"observations": seen, "action_mask": mask}) if masked else seen

    def action_masks(self) -> NDArray[np.bool_]:
        """What is offered now, as sb3-contrib's MaskablePPO asks for it."""
        return self.worlds[self._playing].action_masks()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of a world that is drawn by the seed. `info` has the world and its own seed, by which the
        episode can be played again without this environment."""
        super().reset(seed=seed)
        self._playing = tuple(self.worlds)[int(self.np_random.integers(len(self.worlds)))]
        played = int(self.np_random.integers(2**31))
        try:
            observation, info = self.worlds[self._playing].reset(seed=played, options=options)
        except Exception as err:
            raise self._failed(f"seed {played}", f"{type(err).__name__}: {err}") from err
        self._last = observation, info
        return self._seen(observation, info), {**self._told(info), "seed": played}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make the tool call that a number stands for."""
        try:
            observation, reward, terminated, truncated, info = self._step(action)
        except EpisodeFailed:
            if self._raising:
                raise
            observation, info = self._last
            reward, terminated, truncated = 0.0, False, True
        self._last = observation, info
        return self._seen(observation, info), reward, terminated, truncated, self._told(info)

    def _step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        world = self.worlds[self._playing]
        if (episode := _episode(world)) is None:
            raise ResetNeeded("there is no episode yet; call reset() first")
        world.view.text(action, episode)  # what is no action is the caller's mistake, and no failed episode
        try:
            observation, reward, terminated, truncated, info = world.step(action)
        except ResetNeeded:
            raise
        except Exception as err:
            raise self._failed(_task(world), f"{type(err).__name__}: {err}") from err
        failed = info.get("failed")
        if failed or math.isnan(reward):
            raise self._failed(_task(world), failed["error"] if failed else "its reward is not a number")
        return observation, *as_learnt(reward, terminated, truncated, info), info

    def close(self) -> None:
        """Close the environment of every world."""
        for world in self.worlds.values():
            world.close()

    def _failed(self, task: str, error: str) -> EpisodeFailed:
        said = f"{self._playing}, {task}: {error}"
        self.failure = self.failure or said
        return EpisodeFailed(said)

    def _seen(self, observation: NDArray[np.float32], info: Mapping[str, Any]) -> Any:
        if not self._masked:
            return observation
        return {"observations": observation, "action_mask": info["action_mask"].astype(np.float32)}

    def _told(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What is worth carrying to the learner's process with every step."""
        told = {"world": self._playing, "task_id": info["task_id"]}
        if "cost" in info:
            told["cost"] = {name: info["cost"][name] for name in ("usd", "seconds")}
        return told


def routed(world: str, **settings: Any) -> Routing:
    """An environment as numbers, with one number as its reward."""
    spec_of(world)  # imports the module of "module:id", and refuses an unknown id
    return Routing(gym.make(full_id(world), **{"reward": "scalar", "preference": "none", **settings}))


def _episode(world: Routing) -> Episode | None:
    return base_of(world, "Routing").episode


def _task(world: Routing) -> str:
    episode = _episode(world)
    return f"task {episode.task_id}" if episode is not None else "an episode"


if NAME not in gym.registry:
    # Its worlds check themselves, and the two wrappers would cost each step more than they find.
    gym.register(id=NAME, entry_point=RoutingEnv, order_enforce=False, disable_env_checker=True)
