"""Routing for classical agents: a vector of numbers in, a numbered tool call out; one episode or many at once.

    env = Routing(gym.make("ToolOrchestra/HLE-v0", reward="scalar", preference="none"))
    envs = make_routing_vec("ToolOrchestra/HLE-v0", 16, reward="scalar", preference="none")

An action is a tool, or a tool with one of its models, of the environment's full tool configuration. So actions and
observations keep their size whatever an episode offers. Tasks without a tool configuration have no such view: there an
agent has to write its calls.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.base.preference import GENERAL
from toolorchestra.envs.base.types import Transcript
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.env import OrchestraEnv, base_of
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW
from toolorchestra.envs.tools.tool_config import ToolConfig
from toolorchestra.envs.vector import OrchestraVectorEnv

BUCKETS = 64
QUERY_CHARACTERS = 390
ANSWER_CHARACTERS = 2000
FINAL = "final_obs"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_CLAUSE = re.compile(r"[.;]\s*")
_NOTHING_NEW = (NOTHING_NEW, NOTHING_MISSING)
_PROGRESS = ("turn", "documents", "results", "failed_searches", "last_found_nothing", "usd", "seconds")
_OF_KEY = ("offered", "usd_per_mtok_in", "usd_per_mtok_out", "usd_per_use", "seconds")
MOST_USD, USD_STEP = 10.0, 1e-5
MOST_USD_PER_MTOK, USD_PER_MTOK_STEP = 100.0, 0.01
MOST_SECONDS, SECONDS_STEP = 10_000.0, 1.0
MOST_COUNT = 100.0


class RoutingKey(NamedTuple):
    """One thing that can be called: a tool, or a tool with one of its models."""

    tool: str
    kind: str
    key: str
    """What its calls are counted under: the model's alias, or the tool's name when it offers no models."""
    takes_model: bool
    seconds: float
    """Typical time of a call, for tools that offer no models."""


# -- the view ----------------------------------------------------------------------------------------------------------


class RoutingView:
    """Numbers for the calls and the episodes of one source. One view serves many environments.

    Subject, level and pattern of a question stand in its header line. Each of the line's clauses sets two of `buckets`
    features that a stable hash chooses, so that two clauses that share one still differ in the other.
    """

    def __init__(self, factory: EpisodeFactory, buckets: int = BUCKETS) -> None:
        config = getattr(factory.source, "config", None)
        if not isinstance(config, ToolConfig):
            raise ConfigError(
                f"task source {factory.source.name!r} has no tool configuration to number; act on it with text"
            )
        if buckets < 1:
            raise ConfigError(f"buckets must be 1 or more, got {buckets!r}")
        self.keys = tuple(
            RoutingKey(entry.name, entry.kind, key, bool(entry.offers), entry.seconds)
            for entry in config.tools
            for key in ([offer.alias for offer in entry.offers] or [entry.name])
        )
        self.buckets = buckets
        self._left_out: list[str] | None = None
        self.weights = (*GENERAL, *(k.key for k in self.keys))
        self.action_meanings = tuple(f"{k.tool} {k.key}" if k.takes_model else k.tool for k in self.keys)
        """What each action number calls: "search search-1", "python"."""
        self.feature_names = (
            *_PROGRESS,
            *(f"header_{n}" for n in range(buckets)),
            *(f"{what}:{k.key}" for k in self.keys for what in _OF_KEY),
            *(f"weight:{name}" for name in self.weights),
        )
        """What each number of an observation says."""
        self.action_space = gym.spaces.Discrete(len(self.keys))
        self.observation_space = gym.spaces.Box(0.0, 1.0, (len(self.feature_names),), np.float32)

    def mask(self, episode: Episode) -> NDArray[np.int8]:
        """1 for each action that an episode offers."""
        offered = {(tool.name, key) for tool in episode.world.toolbox for key in tool.keys}
        if self._left_out is None:
            named = {key.tool for key in self.keys}
            self._left_out = sorted({tool for tool, _ in offered if tool not in named})
            if self._left_out:
                warnings.warn(
                    f"no action stands for {', '.join(self._left_out)}: actions are numbers of what the tool "
                    "configuration has; to call the others, act with text",
                    stacklevel=2,
                )
        return np.array([(k.tool, k.key) in offered for k in self.keys], np.int8)

    def text(self, action: Any, episode: Episode) -> str:
        """The call that an action stands for. One that is not offered is called too: the episode answers with an
        error."""
        number = np.asarray(action)
        if number.shape != () or number.dtype.kind not in "iu" or not 0 <= number < len(self.keys):
            raise ValueError(f"an action is a whole number from 0 to {len(self.keys) - 1}, got {action!r}")
        key = self.keys[int(number)]
        arguments = {"model": key.key} if key.takes_model else {}
        if template := _TEMPLATES.get(key.kind):
            arguments |= template(episode.messages)
        return render_call(key.tool, arguments)

    def constants(self, episode: Episode) -> list[float]:
        """The features that stay the same within an episode."""
        features = _hashed(_question(episode.messages)[0], self.buckets)
        tools = {(tool.name, key): tool for tool in episode.world.toolbox for key in tool.keys}
        for key in self.keys:
            features += _key_features(episode, key, tools.get((key.tool, key.key)))
        weights = episode.preference.weights()
        return features + [float(weights.get(name, 0.0)) for name in self.weights]

    def features(self, episode: Episode, constants: list[float] | None = None) -> NDArray[np.float32]:
        """An episode as it stands. `constants` are those of the episode, where they are known already."""
        return np.array(_progress(episode) + (constants or self.constants(episode)), np.float32)


def _question(messages: Transcript) -> tuple[str, str]:
    """The question's header line, "" without one, and the rest."""
    text = next((str(m["content"]) for m in messages if m["role"] == "user"), "")
    header, line_ends, body = text.partition("\n")
    return (header, body) if line_ends else ("", text)


def _last_result(messages: Transcript) -> str:
    results = (str(m["content"]) for m in reversed(messages) if m["role"] == "tool")
    return next((r for r in results if not r.startswith("Error:")), "unknown")


def _print_last_number(messages: Transcript) -> str:
    for text in [str(m["content"]) for m in reversed(messages) if m["role"] == "tool"] + [_question(messages)[1]]:
        if found := _NUMBER.findall(text):
            return f"print({Decimal(found[-1])})"  # Decimal drops leading zeros, which Python's literals may not have
    return "print(0)"


_TEMPLATES: Mapping[str, Callable[[Transcript], dict[str, str]]] = {
    "web_search": lambda messages: {"query": _question(messages)[1][:QUERY_CHARACTERS]},
    "local_search": lambda messages: {"query": _question(messages)[1][:QUERY_CHARACTERS]},
    "python": lambda messages: {"code": _print_last_number(messages)},
    "submit": lambda messages: {"answer": _last_result(messages)[:ANSWER_CHARACTERS]},
}
"""Kind of tool -> its arguments beside the model. `ask` is not here: without a question it asks the task's."""


def _share(value: float, most: float, step: float = 1.0) -> float:
    """0 for nothing, 1 for `most` and more, logarithmic above `step`."""
    return min(1.0, math.log1p(value / step) / math.log1p(most / step))


def _progress(episode: Episode) -> list[float]:
    world, ledger = episode.world, episode.ledger
    found_nothing = [
        m["role"] == "tool" and str(m["content"]).startswith(_NOTHING_NEW) for m in episode.messages if "name" in m
    ]
    documents, results = (len(world.documents), len(world.results)) if isinstance(world, QaWorld) else (0, 0)
    return [
        min(1.0, episode.turn / episode.rules.limits.turns),
        _share(documents, MOST_COUNT),
        _share(results, MOST_COUNT),
        _share(sum(found_nothing), MOST_COUNT),
        float(bool(found_nothing) and found_nothing[-1]),
        _share(ledger.usd, MOST_USD, USD_STEP),
        _share(ledger.seconds, MOST_SECONDS, SECONDS_STEP),
    ]


def _hashed(header: str, buckets: int) -> list[float]:
    features = [0.0] * buckets
    for clause in filter(None, _CLAUSE.split(header.lower())):
        digest = hashlib.blake2b(clause.strip().encode(), digest_size=8).digest()
        for part in (digest[:4], digest[4:]):
            features[int.from_bytes(part, "big") % buckets] = 1.0
    return features


def _key_features(episode: Episode, key: RoutingKey, tool: Tool | None) -> list[float]:
    """Whether a key is offered, and what it costs and takes."""
    if tool is None:
        return [0.0] * len(_OF_KEY)
    offer = next((o for o in tool.offers if o.alias == key.key), None)
    seconds = offer.seconds if offer else key.seconds
    rates = offer and episode.sheet.price(offer.model).pico_usd_per_token
    # A picodollar a token is 10^-6 dollars per million tokens.
    usd_in, usd_out = (rates[0] / 1_000_000, rates[2] / 1_000_000) if rates else (0.0, 0.0)
    models = {o.model for o in tool.offers}
    beside = [episode.sheet.price(item) for item in tool.bills if item not in models]
    nano = sum((p.nano_usd_per_unit or 0) + (p.nano_usd_per_second or 0) * seconds for p in beside)
    return [
        1.0,
        _share(usd_in, MOST_USD_PER_MTOK, USD_PER_MTOK_STEP),
        _share(usd_out, MOST_USD_PER_MTOK, USD_PER_MTOK_STEP),
        _share(nano / NANO, MOST_USD, USD_STEP),
        _share(seconds, MOST_SECONDS, SECONDS_STEP),
    ]


# -- one episode -------------------------------------------------------------------------------------------------------


class Routing(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """One environment in numbers. `info["action_mask"]` says at reset and at each step what is offered."""

    def __init__(self, env: gym.Env[Any, Any], buckets: int = BUCKETS) -> None:
        self._base: OrchestraEnv = base_of(env, "Routing")
        RecordConstructorArgs.__init__(self, buckets=buckets)
        gym.Wrapper.__init__(self, env)
        self.view = RoutingView(self._base.factory, buckets)
        self._constants: list[float] = []
        self.action_meanings, self.feature_names = self.view.action_meanings, self.view.feature_names
        self.action_space, self.observation_space = self.view.action_space, self.view.observation_space

    def action_masks(self) -> NDArray[np.bool_]:
        """What is offered now, as sb3-contrib's MaskablePPO asks for it."""
        return self.view.mask(self._episode).astype(np.bool_)

    def observe(self) -> NDArray[np.float32]:
        """The features of the episode as it stands."""
        return self.view.features(self._episode, self._constants)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode, and give its features as numbers."""
        _, info = self.env.reset(seed=seed, options=options)
        self._constants = self.view.constants(self._episode)
        return self.observe(), {**info, "action_mask": self.view.mask(self._episode)}

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Make the tool call that the number stands for."""
        _, reward, terminated, truncated, info = self.env.step(self.view.text(action, self._episode))
        info = {**info, "action_mask": self.view.mask(self._episode)}
        return self.observe(), reward, terminated, truncated, info

    @property
    def _episode(self) -> Episode:
        if (episode := self._base.episode) is None:
            raise ResetNeeded("there is no episode yet; call reset() first")
        return episode


def as_learnt(reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]) -> tuple[float, bool, bool]:
    """A step's reward and ends for a learner that puts its own estimate in the place of what a cut-off episode would
    still have earned.

    An episode that ran into a limit has ended, since the world has graded it: an estimate would pay for standing still
    until the limit comes. Gymnasium's `max_episode_steps` cuts it off ungraded. One that failed is cut off and earns
    nothing: its reward is NaN, which would spoil weights.
    """
    if truncated and info.get("failed"):
        return 0.0 if math.isnan(reward) else float(reward), terminated, True
    graded = terminated or bool(info.get("truncated_by"))
    return float(reward), graded, truncated and not graded


# -- many episodes -----------------------------------------------------------------------------------------------------


class RoutingVectorEnv(gym.vector.VectorWrapper):
    """Many episodes in numbers. `infos["action_mask"]` says after each reset and step what every environment offers."""

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], buckets: int = BUCKETS) -> None:
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, OrchestraVectorEnv):
            raise ConfigError(
                f"expected OrchestraVectorEnv, got {type(inner).__name__}; make one: "
                'gym.make_vec(id, num_envs=N, vectorization_mode="vector_entry_point")'
            )
        self.inner = inner
        self.view = RoutingView(inner.factory, buckets)
        self.action_meanings, self.feature_names = self.view.action_meanings, self.view.feature_names
        self.single_action_space = self.view.action_space
        self.single_observation_space = self.view.observation_space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_masks = np.zeros((self.num_envs, len(self.action_meanings)), np.int8)
        """A row for each environment: 1 for each action that its episode offers."""
        self._constants: list[list[float]] = [[] for _ in range(self.num_envs)]
        # Not inner.episodes: there the next episode stands already when the end of the last one is read.
        self._episodes: list[Episode | None] = [None] * self.num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start every episode, or those of `options["reset_mask"]`."""
        _, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._observed(), self._with_masks(infos)

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Give every environment its action, and wait for all of them."""
        _, rewards, terminations, truncations, infos = self.env.step(self._texts(actions))
        if FINAL in infos:
            last = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(infos[f"_{FINAL}"]):
                last[i] = self._last(int(i))
            infos[FINAL], ended = last, infos["_final_info"]
            infos["final_info"] |= {"action_mask": self.action_masks * ended[:, None], "_action_mask": ended.copy()}
        return self._observed(), rewards, terminations, truncations, self._with_masks(infos)

    def _texts(self, actions: Any) -> list[str]:
        """Each environment's turn. Where an episode is over nothing is played: the action is its reset."""
        if len(actions) != self.num_envs:
            raise ValueError(f"one action for each of {self.num_envs} environments is needed, got {len(actions)}")
        texts = []
        for episode, action in zip(self._episodes, actions, strict=True):
            if episode is None:
                raise ResetNeeded("step() before reset(); call reset() first")
            text = self.view.text(action, episode)
            texts.append("" if episode.over else text)
        return texts

    def _observed(self) -> NDArray[np.float32]:
        """What the environments look like now; an episode that is new takes its place."""
        rows = np.zeros((self.num_envs, len(self.feature_names)), np.float32)
        for i, episode in enumerate(self.inner.episodes):
            if episode is None:
                raise ResetNeeded(f"environment {i} has not been reset yet; the first reset() may not mask it out")
            if episode is not self._episodes[i]:
                self._episodes[i], self.action_masks[i] = episode, self.view.mask(episode)
                self._constants[i] = self.view.constants(episode)
            rows[i] = self.view.features(episode, self._constants[i])
        return rows

    def _last(self, i: int) -> NDArray[np.float32]:
        """The end of the episode that is over, while the next one waits to take its place."""
        episode = self._episodes[i]
        assert episode is not None
        return self.view.features(episode, self._constants[i])

    def _with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {**infos, "action_mask": self.action_masks.copy(), "_action_mask": np.ones(self.num_envs, np.bool_)}


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
