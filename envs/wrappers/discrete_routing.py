"""Routing for classical agents: numbered calls as actions, a vector of numbers as the observation.

    env = RoutingFeatures(DiscreteRouting(gym.make("ToolOrchestra/HLE-v0", reward="scalar")))

Both keep their size whatever an episode offers: it comes from the environment's full tool configuration.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.base.preference import GENERAL
from toolorchestra.envs.base.types import Transcript
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW
from toolorchestra.envs.tools.tool_config import ToolConfig

QUERY_CHARACTERS = 390
ANSWER_CHARACTERS = 2000
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_CLAUSE = re.compile(r"[.;]\s*")
_NOTHING_NEW = (NOTHING_NEW, NOTHING_MISSING)
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


def base_of(env: gym.Env[Any, Any]) -> OrchestraEnv:
    """The environment under its wrappers. Raises ConfigError for one of somebody else's."""
    base = env.unwrapped
    if not isinstance(base, OrchestraEnv):
        raise ConfigError(
            f"expected a ToolOrchestra environment, got {type(base).__name__}; wrap a gym.make(...) of one"
        )
    return base


def episode_of(env: gym.Env[Any, Any]) -> Episode:
    """The environment's episode. Raises ResetNeeded before the first."""
    episode = base_of(env).episode
    if episode is None:
        raise ResetNeeded("there is no episode yet; call reset() first")
    return episode


def routing_keys(env: gym.Env[Any, Any]) -> tuple[RoutingKey, ...]:
    """Every key of the environment's full tool configuration, in its order."""
    return keys_of(base_of(env).factory.source)


def keys_of(source: TaskSource) -> tuple[RoutingKey, ...]:
    """Every key of a source's full tool configuration, in its order."""
    config = getattr(source, "config", None)
    if not isinstance(config, ToolConfig):
        raise ConfigError(
            f"task source {source.name!r} has no tool configuration to number; wrap it in Routing, or act with text"
        )
    return tuple(
        RoutingKey(entry.name, entry.kind, key, bool(entry.offers), entry.seconds)
        for entry in config.tools
        for key in ([offer.alias for offer in entry.offers] or [entry.name])
    )


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


def meanings_of(keys: Sequence[RoutingKey]) -> tuple[str, ...]:
    """What each number calls: "search search-1", "python"."""
    return tuple(f"{k.tool} {k.key}" if k.takes_model else k.tool for k in keys)


def mask_of(keys: Sequence[RoutingKey], episode: Episode) -> NDArray[np.int8]:
    """1 for each key that the episode offers."""
    offered = {(tool.name, key) for tool in episode.world.toolbox for key in tool.keys}
    return np.array([(k.tool, k.key) in offered for k in keys], dtype=np.int8)


def call_of(key: RoutingKey, messages: Transcript) -> str:
    """The text of the call, its arguments filled in by the templates."""
    arguments = {"model": key.key} if key.takes_model else {}
    if template := _TEMPLATES.get(key.kind):
        arguments |= template(messages)
    return render_call(key.tool, arguments)


class DiscreteRouting(gym.ActionWrapper[Any, Any, str], RecordConstructorArgs):
    """Actions are numbers: one call for each tool and model of the full configuration.

    An action whose tool or model is not offered in this episode is called all the same, and the episode answers with
    its usual error. `info["action_mask"]` says at reset and at each step what is offered.
    """

    def __init__(self, env: gym.Env[Any, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        self.keys = routing_keys(env)
        self.action_space = gym.spaces.Discrete(len(self.keys))

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """What each number calls: "search search-1", "python"."""
        return meanings_of(self.keys)

    def action_mask(self) -> NDArray[np.int8]:
        """1 for each action that this episode offers."""
        return mask_of(self.keys, episode_of(self))

    def action(self, action: int) -> str:
        """The text of the call."""
        if not self.action_space.contains(action):
            raise ValueError(f"an action is a whole number from 0 to {len(self.keys) - 1}, got {action!r}")
        return call_of(self.keys[int(action)], episode_of(self).messages)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. `info["action_mask"]` says which numbers are possible now."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "action_mask": self.action_mask()}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make the tool call that a number stands for."""
        observation, reward, terminated, truncated, info = self.env.step(self.action(action))
        return observation, reward, terminated, truncated, {**info, "action_mask": self.action_mask()}


def share(value: float, most: float, step: float = 1.0) -> float:
    """0 for nothing, 1 for `most` and more, logarithmic above `step`."""
    return min(1.0, math.log1p(value / step) / math.log1p(most / step))


class RoutingFeatures(gym.ObservationWrapper[NDArray[np.float32], Any, Any], RecordConstructorArgs):
    """The observation is a vector of numbers from 0 to 1, named by `feature_names`.

    Subject, level and pattern of the question stand in its header line; each of the line's clauses sets two of
    `buckets` features that a stable hash chooses, so that two clauses that share one still differ in the other.
    """

    def __init__(self, env: gym.Env[Any, Any], buckets: int = 64) -> None:
        if buckets < 1:
            raise ConfigError(f"buckets must be 1 or more, got {buckets!r}")
        RecordConstructorArgs.__init__(self, buckets=buckets)
        gym.ObservationWrapper.__init__(self, env)
        self.buckets = buckets
        self.keys = routing_keys(env)
        self.observation_space = gym.spaces.Box(0.0, 1.0, (len(self.feature_names),), np.float32)
        self._reader = QuestionReader(self.keys, buckets)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number of an observation says, in order."""
        return feature_names_of(self.keys, self.buckets)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The features of the episode as it stands."""
        del observation
        return self._reader(episode_of(self))


def feature_names_of(keys: Sequence[RoutingKey], buckets: int) -> tuple[str, ...]:
    """What each number of a question's observation says."""
    of_key = ("offered", "usd_per_mtok_in", "usd_per_mtok_out", "usd_per_use", "seconds")
    return (
        *("turn", "documents", "results", "failed_searches", "last_found_nothing", "usd", "seconds"),
        *(f"header_{n}" for n in range(buckets)),
        *(f"{what}:{k.key}" for k in keys for what in of_key),
        *(f"weight:{name}" for name in (*GENERAL, *(k.key for k in keys))),
    )


class QuestionReader:
    """Reads one environment's episodes as numbers; what stays the same within an episode is read once."""

    def __init__(self, keys: Sequence[RoutingKey], buckets: int) -> None:
        self._keys, self._buckets = keys, buckets
        self._opened: Episode | None = None
        self._constant: list[float] = []

    def __call__(self, episode: Episode) -> NDArray[np.float32]:
        """The features of an episode as it stands."""
        if episode is not self._opened:
            self._opened, self._constant = episode, self._constant_of(episode)
        return np.array(_progress(episode) + self._constant, dtype=np.float32)

    def _constant_of(self, episode: Episode) -> list[float]:
        features = _hashed(_question(episode.messages)[0], self._buckets)
        tools = {(tool.name, key): tool for tool in episode.world.toolbox for key in tool.keys}
        for key in self._keys:
            features += key_features(episode, key, tools.get((key.tool, key.key)))
        weights = episode.preference.weights()
        return features + [float(weights.get(name, 0.0)) for name in (*GENERAL, *(k.key for k in self._keys))]


def _progress(episode: Episode) -> list[float]:
    world, ledger = episode.world, episode.ledger
    found_nothing = [
        m["role"] == "tool" and str(m["content"]).startswith(_NOTHING_NEW) for m in episode.messages if "name" in m
    ]
    documents, results = (len(world.documents), len(world.results)) if isinstance(world, QaWorld) else (0, 0)
    return [
        min(1.0, episode.turn / episode.rules.limits.turns),
        share(documents, MOST_COUNT),
        share(results, MOST_COUNT),
        share(sum(found_nothing), MOST_COUNT),
        float(bool(found_nothing) and found_nothing[-1]),
        share(ledger.usd, MOST_USD, USD_STEP),
        share(ledger.seconds, MOST_SECONDS, SECONDS_STEP),
    ]


def _hashed(header: str, buckets: int) -> list[float]:
    features = [0.0] * buckets
    for clause in filter(None, _CLAUSE.split(header.lower())):
        digest = hashlib.blake2b(clause.strip().encode(), digest_size=8).digest()
        for part in (digest[:4], digest[4:]):
            features[int.from_bytes(part, "big") % buckets] = 1.0
    return features


def key_features(episode: Episode, key: RoutingKey, tool: Tool | None) -> list[float]:
    """Whether a key is offered, and what it costs and takes."""
    if tool is None:
        return [0.0] * 5
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
        share(usd_in, MOST_USD_PER_MTOK, USD_PER_MTOK_STEP),
        share(usd_out, MOST_USD_PER_MTOK, USD_PER_MTOK_STEP),
        share(nano / NANO, MOST_USD, USD_STEP),
        share(seconds, MOST_SECONDS, SECONDS_STEP),
    ]
