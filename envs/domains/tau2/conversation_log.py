"""What was said and done in an episode, in order: what users and experts are shown of it, and what is graded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import Message, ToolCall
from toolorchestra.envs.domains.tau2.task import Side


class Said(NamedTuple):
    """A message to the other side."""

    side: Side
    text: str


class Done(NamedTuple):
    """A tool call that reached its domain, with what came of it."""

    side: Side
    call: ToolCall
    content: str
    error: bool
    joins: bool = False
    """Whether it was made in one message with the call before it."""


class Aside(NamedTuple):
    """Text that the agent put beside its calls. Nobody hears it; the benchmark's COMMUNICATE check counts it."""

    text: str


Entry = Said | Done | Aside
Log = list[Entry]


def seen_by(side: Side, log: Iterable[Entry]) -> Iterator[Message]:
    """The conversation as one side sees it, itself as the assistant: both sides' words and its own tool calls."""
    for entry in log:
        if isinstance(entry, Said):
            yield Message(role="assistant" if entry.side == side else "user", content=entry.text)
        elif isinstance(entry, Done) and entry.side == side:
            yield Message(role="assistant", content=render_call(*entry.call))
            yield Message(role="tool", name=entry.call.name, content=entry.content)


def conversation(log: Iterable[Entry]) -> str:
    """Everything as lines `who: what`, for a judge."""
    lines = []
    for entry in log:
        if isinstance(entry, Said):
            lines.append(f"{entry.side}: {entry.text}")
        elif isinstance(entry, Done):
            lines += [f"{entry.side} calls {render_call(*entry.call)}", f"tool: {entry.content}"]
    return "\n".join(lines)
