"""A service task's episode as numbers: what was said and found of late, what was called, and what is offered."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.preference import GENERAL
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.wrappers.discrete_routing import (
    MOST_COUNT,
    MOST_SECONDS,
    MOST_USD,
    SECONDS_STEP,
    USD_STEP,
    RoutingKey,
    key_features,
    share,
)
from toolorchestra.envs.wrappers.planned_turns import EXPERT, ServiceAction

FADES = 0.5
"""What a word counts after each later message of its kind."""
MOST_CHARACTERS = 2000
"""Of a message, that are read."""
_PAIR_OR_WORD = re.compile(r'"(\w+)": ("[^"\d]{1,40}"|true|false|null)|([a-z]{3,})')
_PROGRESS = ("turn", "usd", "seconds", "refused", "last_was_refused", "messages_of_user")
_OF_EXPERT = ("usd_per_mtok_in", "usd_per_mtok_out")


def feature_names_of(actions: Sequence[ServiceAction], buckets: int) -> tuple[str, ...]:
    """The name of each number of the features, in their order."""
    experts = [a for a in actions if a.kind == "expert"]
    return (
        *_PROGRESS,
        *(f"said_{n}" for n in range(buckets)),
        *(f"found_{n}" for n in range(buckets)),
        *(f"{what}:{action}" for what in ("called", "last", "offered") for action in actions),
        *(f"{what}:{action}" for action in experts for what in _OF_EXPERT),
        *(f"weight:{name}" for name in (*GENERAL, *_weighed(actions))),
    )


def _weighed(actions: Sequence[ServiceAction]) -> list[str]:
    return [a.name for a in actions if a.kind in ("expert", "tool")]


@lru_cache(maxsize=65536)
def _bucket(word: str, buckets: int) -> int:
    return zlib.crc32(word.encode()) % buckets


def words_of(text: str) -> set[str]:
    """The words of a text; of JSON, its names with those values that are no numbers."""
    found = _PAIR_OR_WORD.findall(text[:MOST_CHARACTERS].lower())
    return {f"{name}={value}" if name else word for name, value, word in found}


class ServiceReader:
    """Reads one environment's episodes as numbers, each message once."""

    def __init__(self, actions: Sequence[ServiceAction], buckets: int) -> None:
        self._actions, self._buckets = actions, buckets
        self._places = {action.name: n for n, action in enumerate(actions) if action.kind in ("expert", "tool")}
        self._opened: Episode | None = None
        self._read = 0

    def __call__(self, episode: Episode) -> NDArray[np.float32]:
        """The features of an episode as it stands."""
        if episode is not self._opened:
            self._open(episode)
        for message in episode.messages[self._read :]:
            self._take(message)
        self._read = len(episode.messages)
        called = np.zeros(len(self._actions), np.float32)
        for key, times in episode.calls.items():
            if key in self._places:
                called[self._places[key]] = min(1.0, times / 2)
        return np.concatenate([self._progress(episode), self._said, self._found, called, self._last, self._constant])

    def _open(self, episode: Episode) -> None:
        self._opened, self._read = episode, 0
        self._refused = self._user_messages = 0
        self._last_refused = False
        self._said, self._found = (np.zeros(self._buckets, np.float32) for _ in range(2))
        self._last = np.zeros(len(self._actions), np.float32)
        self._constant = np.array(self._constant_of(episode), np.float32)

    def _constant_of(self, episode: Episode) -> list[float]:
        box = episode.world.toolbox
        keys = {key for tool in box for key in tool.keys}
        offered = [float(action.kind in ("say", "user") or action.name in keys) for action in self._actions]
        expert = next((tool for tool in box if tool.name == EXPERT), None)
        prices: list[float] = []
        for action in self._actions:
            if action.kind == "expert":
                key = RoutingKey(EXPERT, "", action.name, True, 0.0)
                prices += key_features(episode, key, expert if action.name in keys else None)[1:3]
        weights = episode.preference.weights()
        wish = [float(weights.get(name, 0.0)) for name in (*GENERAL, *_weighed(self._actions))]
        return offered + prices + wish

    def _take(self, message: Any) -> None:
        role, text = message["role"], str(message["content"])
        if role == "user":
            self._user_messages += 1
            self._said = self._hashed(text, self._said)
        elif role == "tool":
            self._last_refused = text.startswith("Error:")
            self._refused += self._last_refused
            self._found = self._hashed(text, self._found)
            self._last = np.zeros(len(self._actions), np.float32)
            place = self._places.get(message.get("name", ""))
            if place is not None:
                self._last[place] = 1.0

    def _hashed(self, text: str, before: NDArray[np.float32]) -> NDArray[np.float32]:
        now = before * np.float32(FADES)
        for word in words_of(text):
            now[_bucket(word, self._buckets)] = 1.0
        return now

    def _progress(self, episode: Episode) -> NDArray[np.float32]:
        ledger = episode.ledger
        numbers = (
            min(1.0, episode.turn / episode.rules.limits.turns),
            share(ledger.usd, MOST_USD, USD_STEP),
            share(ledger.seconds, MOST_SECONDS, SECONDS_STEP),
            share(self._refused, MOST_COUNT),
            float(self._last_refused),
            share(self._user_messages, MOST_COUNT),
        )
        return np.array(numbers, np.float32)
