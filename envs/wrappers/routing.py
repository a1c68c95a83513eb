"""Any of the four sources as a task for a classical agent: a vector of numbers in, a numbered action out.

    env = Routing(gym.make("ToolOrchestra/ToolScale-v0", domain="finance", reward="scalar", preference="none"))

On questions (HLE, FRAMES) it is RoutingFeatures(DiscreteRouting(env)), number by number. On service tasks (ToolScale,
Tau2) an action is a tool, an expert or a thing to say, and a planner writes the turn: see planned_turns for what the
agent decides there and what it does not.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.tools.tool_config import ToolConfig
from toolorchestra.envs.wrappers import discrete_routing as questions
from toolorchestra.envs.wrappers import service_features as services
from toolorchestra.envs.wrappers.planned_turns import planner_of

BUCKETS = 64


class EpisodeReader(Protocol):
    """Reads the episodes of one environment as numbers, one after the other."""

    def __call__(self, episode: Episode) -> NDArray[np.float32]:
        """The features of an episode as it stands."""


class RoutingView(Protocol):
    """How a source's episodes look to a classical agent. One view serves many environments."""

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """The tool call that each action number stands for, in words."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number of an observation says."""

    def mask(self, episode: Episode) -> NDArray[np.int8]:
        """1 for each action that an episode offers."""

    def text(self, action: int, episode: Episode) -> str:
        """The turn that carries an action out."""

    def reader(self) -> EpisodeReader:
        """A reader for one environment."""


class QuestionView:
    """HLE's and FRAMES' tasks: an action is a tool, or a tool with one of its models."""

    def __init__(self, factory: EpisodeFactory, buckets: int) -> None:
        self._keys, self._buckets = questions.keys_of(factory.source), buckets
        self.action_meanings = questions.meanings_of(self._keys)
        self.feature_names = questions.feature_names_of(self._keys, buckets)

    def mask(self, episode: Episode) -> NDArray[np.int8]:
        """See RoutingView."""
        return questions.mask_of(self._keys, episode)

    def text(self, action: int, episode: Episode) -> str:
        """See RoutingView."""
        return questions.call_of(self._keys[action], episode.messages)

    def reader(self) -> EpisodeReader:
        """See RoutingView."""
        return questions.QuestionReader(self._keys, self._buckets)


class ServiceView:
    """ToolScale's and Tau2's tasks: an action is a tool, an expert, or a thing to say."""

    def __init__(self, factory: EpisodeFactory, buckets: int) -> None:
        self._planner, self._buckets = planner_of(factory), buckets
        self._actions = self._planner.actions
        self.action_meanings = tuple(map(str, self._actions))
        self.feature_names = services.feature_names_of(self._actions, buckets)

    def mask(self, episode: Episode) -> NDArray[np.int8]:
        """See RoutingView."""
        return np.array([self._planner.offers(episode, action) for action in self._actions], np.int8)

    def text(self, action: int, episode: Episode) -> str:
        """See RoutingView."""
        return self._planner.write(episode, self._actions[action])

    def reader(self) -> EpisodeReader:
        """See RoutingView."""
        return services.ServiceReader(self._actions, self._buckets)


def routing_view(factory: EpisodeFactory, buckets: int = BUCKETS) -> RoutingView:
    """The view of a source's tasks. Raises ConfigError where there is none."""
    if buckets < 1:
        raise ConfigError(f"buckets must be 1 or more, got {buckets!r}")
    asks_questions = isinstance(getattr(factory.source, "config", None), ToolConfig)
    return QuestionView(factory, buckets) if asks_questions else ServiceView(factory, buckets)


def chosen(action: Any, actions: int) -> int:
    """An action as a number of the view's. Raises ValueError for anything else."""
    number = np.asarray(action)
    if number.shape != () or number.dtype.kind not in "iu" or not 0 <= number < actions:
        raise ValueError(f"an action is a whole number from 0 to {actions - 1}, got {action!r}")
    return int(number)


class Routing(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """See the module's text. `info["action_mask"]` says at reset and at each step what is offered."""

    def __init__(self, env: gym.Env[Any, Any], buckets: int = BUCKETS) -> None:
        RecordConstructorArgs.__init__(self, buckets=buckets)
        gym.Wrapper.__init__(self, env)
        self.view = routing_view(questions.base_of(env).factory, buckets)
        self._reader = self.view.reader()
        self.action_space = gym.spaces.Discrete(len(self.view.action_meanings))
        self.observation_space = gym.spaces.Box(0.0, 1.0, (len(self.view.feature_names),), np.float32)

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """The tool call that each action number stands for, in words."""
        return self.view.action_meanings

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number of an observation says."""
        return self.view.feature_names

    def action_masks(self) -> NDArray[np.bool_]:
        """What is offered now, as sb3-contrib's MaskablePPO asks for it."""
        return self.view.mask(questions.episode_of(self.env)).astype(np.bool_)

    def observe(self) -> NDArray[np.float32]:
        """The features of the episode as it stands."""
        return self._reader(questions.episode_of(self.env))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode, and give its features as numbers."""
        _, info = self.env.reset(seed=seed, options=options)
        episode = questions.episode_of(self.env)
        return self.observe(), {**info, "action_mask": self.view.mask(episode)}

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Do what the number stands for."""
        episode = questions.episode_of(self.env)
        text = self.view.text(chosen(action, len(self.view.action_meanings)), episode)
        _, reward, terminated, truncated, info = self.env.step(text)
        return self.observe(), reward, terminated, truncated, {**info, "action_mask": self.view.mask(episode)}
