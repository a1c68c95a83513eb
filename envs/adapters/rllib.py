"""Routing for RLlib: one id that remote env runners can make, because it names the module to import.

    PPOConfig().environment(ROUTING, env_config={"worlds": ["HLE-v0", "FRAMES-v0"], "max_turns": 20})

The observation is a Box and the action a number, so RLlib's default models fit. This module imports no ray.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import full_id, spec_of
from toolorchestra.envs.wrappers import DiscreteRouting, RoutingFeatures

NAME = "ToolOrchestra/Routing-v0"
ROUTING = f"{__name__}:{NAME}"
"""What RLlib's `environment()` takes."""
EMBEDDED = ("HLE-v0", "FRAMES-v0")
Worlds = Sequence[str] | Mapping[str, Mapping[str, Any]]


class EpisodeFailed(RuntimeError):
    """An episode broke down. It has no reward, so nothing may learn from it."""


class RoutingEnv(gym.Env[Any, Any]):
    """Each episode is of one of several worlds, drawn evenly. Observations and actions are those of the wrappers.

    `worlds` are ids, or ids with arguments of gym.make for each; `settings` are arguments for all of them. The reward
    is a number, so `reward` is "scalar". With `masked` the observation is the mapping that RLlib's action masking
    reads: `observations` and `action_mask`.

    An episode that runs into a limit has ended, and is not cut off: the world has graded it, and a learner that put its
    own estimate in the place of what would have come would pay for standing still. An episode that breaks down raises
    EpisodeFailed; with `raising=False` it is cut off, and `failure` says so to whoever asks.
    """

    def __init__(
        self, worlds: Worlds = EMBEDDED, *, masked: bool = False, raising: bool = True, **settings: Any
    ) -> None:
        if not worlds or isinstance(worlds, str):
            raise ConfigError(f'worlds is a list of environments, such as ["HLE-v0"], got {worlds!r}')
        own = worlds if isinstance(worlds, Mapping) else {name: {} for name in worlds}
        self.worlds = {full_id(name): routed(name, **{**settings, **own[name]}) for name in own}
        self._playing = next(iter(self.worlds))
        self._masked, self._raising = masked, raising
        self._last: tuple[Any, dict[str, Any]] = (None, {})
        self.failure = ""
        """Why the first episode broke down that did; "" while none has."""
        first = self.worlds[self._playing]
        for name, world in self.worlds.items():
            if world.feature_names != first.feature_names:
                raise ConfigError(
                    f"a router plays worlds that offer the same calls; those of {name} differ from those of "
                    f"{self._playing}; train one for each"
                )
        self.action_space = first.action_space
        self.observation_space = _masking(first) if masked else first.observation_space

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
            observation, reward, terminated, truncated, info = self._step(int(action))
            terminated, truncated = terminated or truncated, False
        except EpisodeFailed:
            if self._raising:
                raise
            observation, info = self._last
            reward, terminated, truncated = 0.0, False, True
        self._last = observation, info
        return self._seen(observation, info), float(reward), terminated, truncated, self._told(info)

    def _step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        world = self.worlds[self._playing]
        try:
            stepped = world.step(action)
        except Exception as err:
            raise self._failed(_task(world), f"{type(err).__name__}: {err}") from err
        failed = stepped[4].get("failed")
        if failed or math.isnan(stepped[1]):
            raise self._failed(_task(world), failed["error"] if failed else "its reward is not a number")
        return stepped

    def close(self) -> None:
        """Closes the environment of every world."""
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


def routed(world: str, **settings: Any) -> RoutingFeatures:
    """An environment as numbers, with one number as its reward."""
    spec_of(world)  # imports the module of "module:id", and refuses an unknown id
    arguments = {"reward": "scalar", "preference": "none", **settings}
    return RoutingFeatures(DiscreteRouting(gym.make(full_id(world), **arguments)))


def _masking(world: RoutingFeatures) -> gym.spaces.Dict:
    actions = int(world.action_space.n)  # type: ignore[attr-defined]
    mask = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)
    return gym.spaces.Dict({"observations": world.observation_space, "action_mask": mask})


def _task(world: RoutingFeatures) -> str:
    episode = getattr(world.unwrapped, "episode", None)
    return f"task {episode.task_id}" if episode is not None else "an episode"


if NAME not in gym.registry:
    # Its worlds check themselves, and the two wrappers would cost each step more than they find.
    gym.register(id=NAME, entry_point=RoutingEnv, order_enforce=False, disable_env_checker=True)
