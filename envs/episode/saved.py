"""An episode in the middle, as bytes: its state alone. Its tools are functions, and its source may be large.

Whoever unpickles it starts the same episode once more, by the same factory, seed and options, and puts the state into
it. So what a fresh episode has anyway is not in the bytes: the tools, the rules, and all that the world of a fresh
episode shares with this one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolorchestra.envs.episode.episode import Episode


class Starts(Protocol):
    """What can start an episode, such as an episode factory."""

    def start(self, seed: int, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode: returns a Started, whose `episode` is fresh."""


def state_of(episode: Episode) -> bytes:
    """All that a fresh episode of the same origin does not have."""
    assert episode.origin is not None
    factory, seed, options = episode.origin
    fresh = factory.start(seed, options).episode
    names = {id(part): name for name, part in _tools(episode)}
    same = dict(_world_parts(fresh))
    names |= {id(part): name for name, part in _world_parts(episode) if same.get(name) is part}
    into = io.BytesIO()
    _Writer(into, names).dump({name: getattr(episode, name) for name in episode.__slots__ if name != "origin"})
    return into.getvalue()


def again(factory: Starts, seed: int, options: dict[str, Any], state: bytes) -> Episode:
    """The episode that state_of() was taken of."""
    episode: Episode = factory.start(seed, options).episode
    parts = dict([*_world_parts(episode), *_tools(episode)])
    for name, value in _Reader(io.BytesIO(state), parts).load().items():
        setattr(episode, name, value)
    return episode


def _tools(episode: Episode) -> Iterator[tuple[str, object]]:
    """What stands for the same in any two episodes of one origin, whether it is the same object or not."""
    yield "rules", episode.rules
    yield "listener", episode.world.listener
    if episode.context.models is not None:
        yield "models", episode.context.models
    yield "toolbox", episode.world.toolbox
    for tool in episode.world.toolbox:
        yield f"tool {tool.name}", tool


def _world_parts(episode: Episode) -> Iterator[tuple[str, object]]:
    """Attributes of the world, and their attributes: a session's database, a state's domain."""
    for name, part in _attributes(episode.world):
        yield f"world.{name}", part
        for inner, deeper in _attributes(part):
            yield f"world.{name}.{inner}", deeper


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
    for name in dict.fromkeys([*slots, *getattr(value, "__dict__", ())]):
        if isinstance(getattr(type(value), name, None), cached_property):
            continue  # there or not, by what was asked before
        part = getattr(value, name, None)
        if not isinstance(part, str | int | float | tuple | type(None)):
            yield name, part


class _Writer(pickle.Pickler):
    def __init__(self, into: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(into, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, part: Any) -> str | None:
        return self._names.get(id(part))


class _Reader(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, parts: dict[str, object]) -> None:
        super().__init__(source)
        self._parts = parts

    def persistent_load(self, name: str) -> object:
        return self._parts[name]
