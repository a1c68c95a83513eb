"""Turns of service tasks, written for an agent that only chooses: which tool, which expert, when to ask or to answer.

The agent's choice is a `ServiceAction`; a planner writes the turn that carries it out. A planner knows the task's
reference path, so it fills in the right arguments of a call that the task needs. Two things it does not know: what the
user alone can say, before the user has said it, and what only calls can find out, before they were made. A call that
the task does not need is made as well, with the newest values of its arguments' names that the conversation holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.tools import Toolbox

EXPERT = "call_expert"
PLACEHOLDERS: Mapping[str, Any] = {
    "string": "unknown", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {},
}  # fmt: skip


class ServiceAction(NamedTuple):
    """One thing that an agent may choose to do."""

    kind: Literal["expert", "tool", "user", "say"]
    """Let an expert write the turn, call a tool, have the user call one of its own, or say something to the user."""
    name: str
    """The expert's alias, the tool's name, or what is said: ask, answer, refuse, transfer."""

    def __str__(self) -> str:
        return self.name if self.kind == "tool" else f"{self.kind} {self.name}"


class Planner(Protocol):
    """Writes the turns of one source's tasks."""

    @property
    def actions(self) -> Sequence[ServiceAction]:
        """All that may be chosen in any of the source's tasks."""

    def offers(self, episode: Episode, action: ServiceAction) -> bool:
        """Whether an episode has the tool, the expert, or somebody to talk to."""

    def write(self, episode: Episode, action: ServiceAction) -> str:
        """The text of the turn."""


def planner_of(factory: EpisodeFactory) -> Planner:
    """The planner of a source of service tasks. Raises ConfigError for any other source."""
    # Their modules are read when they are asked for: most environments need neither.
    from toolorchestra.envs.domains.toolscale.source import ToolScaleSource

    if isinstance(factory.source, ToolScaleSource):
        from toolorchestra.envs.wrappers.toolscale_turns import ToolScalePlanner

        return ToolScalePlanner(factory)
    from toolorchestra.envs.domains.tau2.source import Tau2Source

    if isinstance(factory.source, Tau2Source):
        from toolorchestra.envs.wrappers.tau2_turns import Tau2Planner

        return Tau2Planner(factory)
    raise ConfigError(
        f"task source {factory.source.name!r} has no numbered actions, as it has neither a tool configuration "
        "nor a planner; act on it with text"
    )


def first_tasks(factory: EpisodeFactory) -> Iterator[str]:
    """A task of each domain that the environment's split has."""
    source = factory.source
    if not hasattr(source, "task_ids"):
        raise ConfigError(f"task source {source.name!r} does not list its tasks, so their tools cannot be numbered")
    seen = set()
    for task_id in source.task_ids(factory.settings.split):
        domain = task_id.rpartition("/")[0]
        if domain not in seen:
            seen.add(domain)
            yield task_id


def expert_actions(toolbox: Toolbox) -> list[ServiceAction]:
    """An action for each expert that a turn can be handed to."""
    return [ServiceAction("expert", alias) for alias in toolbox[EXPERT].keys] if EXPERT in toolbox else []


def expert_call(action: ServiceAction) -> str:
    """The turn that hands over to an expert."""
    return render_call(EXPERT, {"expert": action.name})


def guessed(parameters: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that a schema demands: what is known under their names, else a placeholder of the right kind."""
    properties = parameters.get("properties", {})
    return {name: _guess(properties.get(name, {}), known.get(name)) for name in parameters.get("required", ())}


def _guess(schema: Mapping[str, Any], known: Any) -> Any:
    if known is not None and known in schema.get("enum", (known,)):
        return known
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        return schema.get("minimum", PLACEHOLDERS[kind])
    return PLACEHOLDERS.get(kind if isinstance(kind, str) else "string", "unknown")


def named_values(values: Iterable[Any]) -> dict[str, Any]:
    """Every plain value in JSON data under its name; of two of a name the later one."""
    found: dict[str, Any] = {}
    for value in values:
        _gather(value, found)
    return found


def _gather(value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(part, Mapping | list):
                _gather(part, found)
            elif part is not None:
                found[str(name)] = part
    elif isinstance(value, list):
        for part in value:
            _gather(part, found)


def read_json(text: str) -> Any:
    """What a tool's output says, None where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
