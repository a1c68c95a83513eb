"""What a task lives in: its tools, what happens to a plain message, and how the end is graded. State is per episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Outcome, ToolCall, Transcript
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult


def _end(context: ToolContext, text: str) -> ToolResult:
    del context
    return ToolResult(text, final=True, note=text)


MESSAGE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ENDS_THE_EPISODE = Tool("message", "Ends the episode.", MESSAGE, _end)


class World:
    """The domain side of one episode, with defaults: a message ends it, and results leave no trace but the transcript.

    A world of your own says how it begins and how its end is graded."""

    __slots__ = ()
    system: str = "Solve the task with the tools."
    """The system message, before the preference is added."""
    listener: Tool = ENDS_THE_EPISODE
    """The tool that takes a message without calls as `text`: a user answers, or the episode ends with it."""
    toolbox: Toolbox

    @property
    def over(self) -> bool:
        """Whether the next move ends the episode, whatever it is, since the other side has left."""
        return False

    def opening(self) -> Transcript | Tool:
        """The messages after the system message that start the episode; or a tool to run first, since whoever speaks
        first is a model: opening() is asked once more when it has run."""
        raise NotImplementedError(f"{type(self).__name__} says by opening() which messages start an episode")

    def retell(self) -> Transcript:
        """Rebuild, for history="state", the messages after the system message from what was found."""
        raise ConfigError(f'{type(self).__name__} has no buffers to retell; use history="full"')

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        """Remember a call's result. Called in the order of the calls, whatever order they returned in."""

    def grade(self, *, finished: bool) -> Outcome | Tool:
        """Give the outcome, or a tool whose result has it (a judge). `finished`: not cut off by a limit."""
        raise NotImplementedError(f"{type(self).__name__} says by grade() how an episode's end is graded")

    def whole_conversation(self) -> Sequence[Mapping[str, Any]]:
        """What all sides said and did, for records, where the agent saw a part of it alone; else empty."""
        return ()


@runtime_checkable
class Regradable(Protocol):
    """A world whose end can be graded again later, without the agent, by what was kept of the episode."""

    def to_grade(self) -> dict[str, Any]:
        """What the grade follows from, as JSON has it: an answer; or the calls and words, from which the state that
        they led to can be made again."""

    def take_up(self, kept: Mapping[str, Any], context: ToolContext) -> None:
        """Bring a fresh world of the same task to where `kept` was taken, so that grade() can be asked. Calls are made
        again. Raises ToolError where one is refused now."""
