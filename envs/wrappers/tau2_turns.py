"""The planner of τ²-Bench's tasks: see planned_turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Done, Said
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.task import GoldAction
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.wrappers.planned_turns import (
    EXPERT,
    ServiceAction,
    expert_actions,
    expert_call,
    first_tasks,
    guessed,
    named_values,
    read_json,
)

SPEECHES = ("ask", "answer", "transfer")
QUESTION = (
    "Could you tell me your user id, your reservation or order id, and your name, phone number, zip code and email?"
)
FAREWELL = "Is there anything else I can do for you?"
TRANSFERRED = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."


class Tau2Planner:
    """Plays alone or with the scripted user: what another user would say to its sentences nobody knows."""

    def __init__(self, factory: EpisodeFactory) -> None:
        source = factory.source
        if not isinstance(source, Tau2Source) or source.user not in ("none", "scripted"):
            raise ConfigError('numbered actions on Tau2 need user="none" or user="scripted"')
        self._source, self._factory = source, factory

    @cached_property
    def actions(self) -> Sequence[ServiceAction]:
        """See Planner."""
        worlds = [
            self._source.open(task_id, 0, self._factory.sheet, None).world for task_id in first_tasks(self._factory)
        ]
        found: dict[ServiceAction, None] = {}
        for world in worlds:
            found |= dict.fromkeys(expert_actions(world.toolbox))
        if self._source.user != "none":
            found |= dict.fromkeys(ServiceAction("say", speech) for speech in SPEECHES)
        for world in worlds:
            found |= dict.fromkeys(ServiceAction("tool", t.name) for t in world.toolbox if t.name != EXPERT)
            if isinstance(world, Tau2World) and world.user is not None:
                found |= dict.fromkeys(ServiceAction("user", t.name) for t in world.domain.user_tools)
        return tuple(found)

    def offers(self, episode: Episode, action: ServiceAction) -> bool:
        """See Planner."""
        world = _world(episode)
        if action.kind == "expert":
            return action in expert_actions(world.toolbox)
        if action.kind == "user":
            return world.user is not None and action.name in world.domain.user_names
        return action.name in world.toolbox if action.kind == "tool" else world.user is not None

    def write(self, episode: Episode, action: ServiceAction) -> str:
        """See Planner."""
        world = _world(episode)
        if action.kind == "expert":
            return expert_call(action)
        if action.kind == "say":
            return _said(world, action.name)
        call = ToolCall(action.name, _arguments(world, action))
        return _request(call) if action.kind == "user" else render_call(*call)


def _world(episode: Episode) -> Tau2World:
    if not isinstance(episode.world, Tau2World):
        raise ConfigError(f"{episode.task_id} is no task of Tau2")
    return episode.world


def _request(call: ToolCall) -> str:
    """What an agent says to have the user make a call."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"Please run {call.name}({arguments}) on your phone."


def _said(world: Tau2World, speech: str) -> str:
    if speech == "ask":
        return QUESTION
    if speech == "transfer":
        return TRANSFERRED
    criteria = world.plan.criteria
    told = criteria.communicate if criteria and not _left(world) else ()
    return f"For your information: {'; '.join(told)}. {FAREWELL}" if told else FAREWELL


def _arguments(world: Tau2World, action: ServiceAction) -> dict[str, Any]:
    """The reference path's, of its next call of this tool; else a guess."""
    side = "user" if action.kind == "user" else "assistant"
    for gold in _left(world):
        mine = world.domain.solo or gold.side == side
        if mine and gold.call.name == action.name and not _secret(world, gold):
            return dict(gold.call.arguments)
    tools = world.domain.user_tools if action.kind == "user" else world.toolbox
    schema = next((t.parameters for t in tools if t.name == action.name), {})
    done = [entry for entry in world.log if isinstance(entry, Done)]
    return guessed(schema, named_values(part for e in done for part in (e.call.arguments, read_json(e.content))))


def _left(world: Tau2World) -> list[GoldAction]:
    """The reference path's calls that are not made yet, each matched by a call of its own."""
    made = [(entry.side, *entry.call) for entry in world.log if isinstance(entry, Done)]
    left = []
    for gold in (world.plan.criteria and world.plan.criteria.actions) or ():
        alike = [m for m in made if m[1:] == tuple(gold.call) and (world.domain.solo or m[0] == gold.side)]
        if alike:
            made.remove(alike[0])
        else:
            left.append(gold)
    return left


def _secret(world: Tau2World, gold: GoldAction) -> bool:
    """Whether the call needs what the user knows and has not said: an id, a name, an address."""
    if world.user is None:
        return False
    instructions = world.plan.scenario["instructions"]
    known = "" if isinstance(instructions, str) else instructions.get("known_info") or ""
    said = "\n".join(entry.text for entry in world.log if isinstance(entry, Said) and entry.side == "user")
    values = [value for value in gold.call.arguments.values() if isinstance(value, str)]
    return any(value in known and value not in said for value in values)
