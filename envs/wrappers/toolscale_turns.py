"""The planner of ToolScale's tasks: see planned_turns. It keeps the policy's order of a write: confirm, then write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale.domain import GoldCall, Request, UserFact
from toolorchestra.envs.domains.toolscale.oracle import CLOSING, spoken
from toolorchestra.envs.domains.toolscale.process_rules import rules
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource
from toolorchestra.envs.domains.toolscale.wishes import content, spoken_call
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.wrappers.planned_turns import (
    ServiceAction,
    expert_actions,
    expert_call,
    first_tasks,
    guessed,
    named_values,
)

SPEECHES = ("ask", "answer", "refuse", "transfer")


class ToolScalePlanner:
    """Plays with the scripted user, whose place in its requests it follows."""

    def __init__(self, factory: EpisodeFactory) -> None:
        source = factory.source
        if not isinstance(source, ToolScaleSource) or source.user:
            raise ConfigError('numbered actions on ToolScale need its scripted user: leave user="scripted"')
        self._source, self._factory = source, factory

    @cached_property
    def actions(self) -> Sequence[ServiceAction]:
        """See Planner."""
        experts: dict[ServiceAction, None] = {}
        tools: dict[ServiceAction, None] = {}
        for task_id in first_tasks(self._factory):
            box = self._source.open(task_id, 0, self._factory.sheet, None).world.toolbox
            experts |= dict.fromkeys(expert_actions(box))
            tools |= dict.fromkeys(ServiceAction("tool", name) for name in self._source.find(task_id)[0].domain.tools)
        return (*experts, *(ServiceAction("say", speech) for speech in SPEECHES), *tools)

    def offers(self, episode: Episode, action: ServiceAction) -> bool:
        """See Planner."""
        box = episode.world.toolbox
        if action.kind == "expert":
            return action in expert_actions(box)
        return action.kind == "say" or action.name in box

    def write(self, episode: Episode, action: ServiceAction) -> str:
        """See Planner."""
        world = episode.world
        if not isinstance(world, SqlWorld):
            raise ConfigError(f"{episode.task_id} is no task of ToolScale")
        if action.kind == "expert":
            return expert_call(action)
        if action.kind == "tool":
            return _called(world, action.name)
        return _said(world, action.name)


def _said(world: SqlWorld, speech: str) -> str:
    request = _request(world)
    if speech == "ask":
        return _question(world, request)
    known = all(_made(world, world.task.actions[number]) for number in request.actions)
    told = " ".join(f"For your information: {info}." for info in request.inform) if known else ""
    if speech == "transfer":
        return f"{told} You are being transferred to a human agent.".strip()
    if speech == "refuse":
        more = " There is no exception." if world.mood.objected else ""
        return f"{told} I am sorry, but I cannot do this: the policy does not allow it.{more}".strip()
    return f"{told} That has been settled. {CLOSING}".strip()


def _question(world: SqlWorld, request: Request) -> str:
    identity = [fact.label for fact in world.task.facts if fact.value]
    if identity and _unsaid(world, world.task.facts):
        return f"I can help with that. To verify your identity, could you tell me your {', '.join(identity)}?"
    labels = [fact.label for fact in request.facts if fact.value]
    return f"Could you tell me the {' and the '.join(labels) or 'details of your request'}?"


def _called(world: SqlWorld, name: str) -> str:
    tool = world.domain.tools.get(name)
    if tool is None:
        return render_call(name, {})  # of another domain: the episode says that there is none
    planned = next((a for a in _due(world) if a.name == name), None)
    call = planned or GoldCall(name, guessed(tool.parameters, _known(world)))
    if tool.kind == "write" and not tool.transfers:
        writes = _writes(world, planned) if planned else [call]
        question = f"I am going to do this: {spoken(writes, world.domain)}. Do you confirm (yes/no)?"
        if question not in world.told or (rules(world.domain) and not world.agreed & content(spoken_call(call))):
            return question  # asked once more where the user had second thoughts
    return render_call(name, dict(call.arguments))


def _due(world: SqlWorld) -> list[GoldCall]:
    """The reference path's calls that are not made yet, of which all that the user alone knows has been said."""
    task, asked = world.task, world.task.requests[: world.mood.request + 1]
    numbers = [*range(task.identify), *(number for request in asked for number in request.actions)]
    secret = {fact.value for fact in _unsaid(world, (*task.facts, *(fact for r in task.requests for fact in r.facts)))}
    actions = [task.actions[number] for number in dict.fromkeys(numbers)]
    return [a for a in actions if not _made(world, a) and not secret & {str(v) for v in a.arguments.values()}]


def _writes(world: SqlWorld, call: GoldCall) -> list[GoldCall]:
    """The writes of the request that a call belongs to: they are confirmed together."""
    task = world.task
    for request in task.requests:
        actions = [task.actions[number] for number in request.actions]
        if call in actions:
            return [a for a in actions if world.domain.tools[a.name].kind == "write"]
    return [call]


def _request(world: SqlWorld) -> Request:
    return world.task.requests[min(world.mood.request, len(world.task.requests) - 1)]


def _made(world: SqlWorld, action: GoldCall) -> bool:
    return any(c.name == action.name and dict(c.arguments) == dict(action.arguments) for c in world.calls)


def _unsaid(world: SqlWorld, facts: Sequence[UserFact]) -> list[UserFact]:
    """What the user knows and has not said."""
    words = [m["content"] for m in world.conversation if m["role"] == "assistant"]  # the user's side, as it sees it
    return [fact for fact in facts if fact.value and not any(fact.value in said for said in words)]


def _known(world: SqlWorld) -> dict[str, object]:
    """Values that calls gave or were made with, under their names."""
    return named_values(part for call in world.calls for part in (dict(call.arguments), call.value))
