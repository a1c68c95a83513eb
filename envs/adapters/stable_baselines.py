"""Many routing episodes as Stable-Baselines3's VecEnv. See docs/trainers.md.

    envs = VecMonitor(make_vec_env("ToolOrchestra/HLE-v0", 16, seed=0, reward="scalar", preference="none"))
    PPO("MlpPolicy", envs).learn(60_000)

Numbers in and out are RoutingVectorEnv's; episodes end as `as_learnt` says. One environment alone, for evaluate_policy
and DummyVecEnv, is learner_env's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.vector_infos import info_of
from toolorchestra.envs.wrappers.routing import BUCKETS, RoutingVectorEnv, as_learnt, make_routing_vec

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as err:
    raise ConfigError(
        'stable_baselines3 is not installed: pip install "stable-baselines3>=2.9,<3"; a loop of your own needs only '
        "toolorchestra.envs.wrappers.RoutingVectorEnv"
    ) from err


def make_vec_env(
    env_id: str, n_envs: int, *, seed: int | None = None, buckets: int = BUCKETS, **settings: Any
) -> RoutingVecEnv:
    """Many episodes in one process, whose calls run at the same time. `settings` are gym.make's."""
    made = make_routing_vec(env_id, n_envs, buckets=buckets, autoreset_mode=AutoresetMode.SAME_STEP, **settings)
    envs = RoutingVecEnv(made)
    if seed is not None:
        envs.seed(seed)
    return envs


class RoutingVecEnv(VecEnv):  # type: ignore[misc, unused-ignore]
    """A RoutingVectorEnv as Stable-Baselines3's VecEnv. Rewards are those of the environments, as float32."""

    def __init__(self, envs: RoutingVectorEnv) -> None:
        if envs.inner.autoreset_mode != AutoresetMode.SAME_STEP:
            raise ConfigError(
                f"Stable-Baselines3 resets in the step that ends an episode, got {envs.inner.autoreset_mode}; make the "
                "environments with autoreset_mode=AutoresetMode.SAME_STEP, or by make_vec_env"
            )
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> NDArray[np.float32]:
        """Start every episode, by the seeds of seed() where it was called before."""
        if len({repr(options) for options in self._options}) > 1:
            raise ConfigError("the environments are reset with the same options; give set_options() one dict")
        observations, infos = self.envs.reset(seed=self._seeds, options=self._options[0] or None)
        self.reset_infos = [info_of(infos, i) for i in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Give every environment its action."""
        self.envs.send(actions, range(self.num_envs))

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """The batch, when the last environment is ready."""
        got = self.envs.recv(self.num_envs)
        order = np.argsort(got.env_ids)
        dones = (got.terminations | got.truncations)[order]
        rewards = got.rewards[order].astype(np.float32)
        infos = [dict(got.infos[k]) for k in order]
        for i in np.flatnonzero(dones):
            started, k = infos[i], order[i]
            last, ended = started.pop("final_obs"), started.pop("final_info")
            self.reset_infos[i] = started
            rewards[i], _, cut_off = as_learnt(
                float(got.rewards[k]), bool(got.terminations[k]), bool(got.truncations[k]), ended
            )
            infos[i] = {**ended, "terminal_observation": last, "TimeLimit.truncated": cut_off}
        return got.observations[order], rewards, dones, infos

    def close(self) -> None:
        """Cancel what is in flight."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """An attribute of the vector environment, for each asked environment."""
        if attr_name == "action_masks":
            return [self.envs.action_masks[i] for i in self._get_indices(indices)]
        value = getattr(self.envs, attr_name)
        return [value for _ in self._get_indices(indices)]

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """`action_masks`, which MaskablePPO asks for; the environments here have no other method."""
        del method_args, method_kwargs
        if method_name != "action_masks":
            raise AttributeError(f"the environments have no method {method_name!r}, only action_masks")
        return [mask.astype(np.bool_) for mask in self.get_attr(method_name, indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Refuse: the environments share one set of settings."""
        raise AttributeError(f"{attr_name!r} cannot be set on a running environment; make another one with it")

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Sequence[int] | None = None
    ) -> list[bool]:
        """None is: the environments are no gym.Env objects of their own."""
        return [False for _ in self._get_indices(indices)]
