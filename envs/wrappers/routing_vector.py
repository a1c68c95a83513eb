"""RoutingVectorEnv: many episodes for a classical agent, in numbers, none waiting for another.

    envs = RoutingVectorEnv(gym.make_vec("ToolOrchestra/HLE-v0", num_envs=16, reward="scalar"))

`step` is Gymnasium's and waits for all. `send` and `recv` are those of OrchestraVectorEnv, in numbers: `recv` gives the
environments that are ready, and a slow call holds up its own episode alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.vector import OrchestraVectorEnv, Received
from toolorchestra.envs.wrappers.routing import BUCKETS, EpisodeReader, RoutingView, chosen, routing_view

FINAL = "final_obs"


class RoutingReceived(NamedTuple):
    """What `recv` gives: one row per environment that is ready, in the order in which they became so."""

    env_ids: NDArray[np.int64]
    observations: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: tuple[dict[str, Any], ...]
    masks: NDArray[np.int8]


class _Seat:
    """One environment's episode, as it is read."""

    __slots__ = ("episode", "mask", "reader")

    def __init__(self, view: RoutingView) -> None:
        self.reader: EpisodeReader = view.reader()
        self.episode: Episode | None = None
        self.mask: NDArray[np.int8] = np.zeros(len(view.action_meanings), np.int8)


class RoutingVectorEnv(gym.vector.VectorWrapper):
    """See the module's text. `infos["action_mask"]` says after each reset and step what every environment offers."""

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], buckets: int = BUCKETS) -> None:
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, OrchestraVectorEnv):
            raise ConfigError(
                f"expected OrchestraVectorEnv, got {type(inner).__name__}; make one: "
                'gym.make_vec(id, num_envs=N, vectorization_mode="vector_entry_point")'
            )
        self.inner = inner
        self.view = routing_view(inner.factory, buckets)
        self.single_action_space = gym.spaces.Discrete(len(self.view.action_meanings))
        self.single_observation_space = gym.spaces.Box(0.0, 1.0, (len(self.view.feature_names),), np.float32)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._seats = [_Seat(self.view) for _ in range(self.num_envs)]

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """The tool call that each action number stands for, in words."""
        return self.view.action_meanings

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number of an observation says."""
        return self.view.feature_names

    @property
    def action_masks(self) -> NDArray[np.int8]:
        """A row for each environment: 1 for each action that its episode offers."""
        return np.stack([seat.mask for seat in self._seats])

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start every episode, or those of `options["reset_mask"]`."""
        _, infos = self.inner.reset(seed=seed, options=options)
        return self._observed(range(self.num_envs)), self._with_masks(infos)

    def step(self, actions: Any) -> tuple[NDArray[np.float32], Any, Any, Any, dict[str, Any]]:
        """Give every environment its action, and wait for all of them."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Give every environment its action; their calls begin to run."""
        self.inner.step_async(self._texts(actions, range(self.num_envs)))

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """The batch, when the last environment is ready."""
        _, rewards, terminations, truncations, infos = self.inner.step_wait(timeout)
        if FINAL in infos:
            last = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(infos[f"_{FINAL}"]):
                last[i] = self._last(int(i))
            infos[FINAL] = last
        observations = self._observed(range(self.num_envs))
        return observations, rewards, terminations, truncations, self._with_masks(infos)

    def send(self, actions: Any, env_ids: Sequence[int] | NDArray[np.int64]) -> None:
        """Give some environments their next action."""
        wanted = [int(i) for i in env_ids]
        self.inner.send(self._texts(actions, wanted), wanted)

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> RoutingReceived:
        """The environments that are ready, at least `min_envs` of them. TimeoutError leaves everything as it was."""
        got: Received = self.inner.recv(min_envs, timeout)
        ready = [int(i) for i in got.env_ids]
        infos = tuple(
            {**info, FINAL: self._last(i)} if FINAL in info else info for i, info in zip(ready, got.infos, strict=True)
        )
        observations = self._observed(ready)
        masks = self.action_masks[ready] if ready else np.zeros((0, len(self.action_meanings)), np.int8)
        return RoutingReceived(got.env_ids, observations, got.rewards, got.terminations, got.truncations, infos, masks)

    def _texts(self, actions: Any, env_ids: Sequence[int]) -> list[str]:
        """The turns of some environments. Of one that is over nothing is played: its action is its reset."""
        if len(actions) != len(env_ids):
            raise ValueError(f"one action for each of {len(env_ids)} environments is needed, got {len(actions)}")
        if any(not 0 <= i < self.num_envs for i in env_ids):
            raise ValueError(f"env_ids are some of 0 to {self.num_envs - 1}; got {list(env_ids)!r:.80}")
        texts = []
        for i, action in zip(env_ids, actions, strict=True):
            number, episode = chosen(action, len(self.action_meanings)), self._seats[i].episode
            if episode is None:
                raise ResetNeeded("step() before reset(); call reset() first")
            texts.append("" if episode.over else self.view.text(number, episode))
        return texts

    def _observed(self, env_ids: Sequence[int]) -> NDArray[np.float32]:
        """What some environments look like now; an episode that is new takes its seat."""
        shape = self.single_observation_space.shape or ()
        rows = np.zeros((len(env_ids), *shape), np.float32)
        episodes = self.inner.episodes
        for row, i in enumerate(env_ids):
            seat, episode = self._seats[i], episodes[i]
            if episode is None:
                raise ResetNeeded(f"environment {i} has not been reset yet; the first reset() may not mask it out")
            if episode is not seat.episode:
                seat.episode, seat.mask = episode, self.view.mask(episode)
            rows[row] = seat.reader(episode)
        return rows

    def _last(self, i: int) -> NDArray[np.float32]:
        """The end of the episode that sits there, while the next one waits to be seated."""
        seat = self._seats[i]
        if seat.episode is None:
            raise ResetNeeded(f"environment {i} has played no episode")
        return seat.reader(seat.episode)

    def _with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {**infos, "action_mask": self.action_masks, "_action_mask": np.ones(self.num_envs, np.bool_)}


def make_routing_vec(
    env_id: str,
    num_envs: int,
    *,
    buckets: int = BUCKETS,
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    **settings: Any,
) -> RoutingVectorEnv:
    """A RoutingVectorEnv of an id: "ToolOrchestra/HLE-v0". `settings` are gym.make's."""
    made = gym.make_vec(
        env_id, num_envs, vectorization_mode="vector_entry_point", autoreset_mode=autoreset_mode, **settings
    )
    return RoutingVectorEnv(made, buckets)
