"""What was said and done in an episode, in order: what users and experts are shown of it, and what is graded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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
    """Text that one side put beside its calls. The other never hears it; the benchmark's COMMUNICATE check counts the
    agent's."""

    text: str
    side: Side = "assistant"


Entry = Said | Done | Aside
Log = list[Entry]


def seen_by(side: Side, log: Iterable[Entry]) -> Iterator[Message]:
    """The conversation as one side sees it, itself as the assistant: both sides' words and its own tool calls, those of
    one message together and with the text beside them."""
    beside, made = "", list[Done]()
    for entry in log:
        if made and not (isinstance(entry, Done) and entry.side == side and entry.joins):
            yield from _calls(beside, made)
            beside, made = "", []
        if isinstance(entry, Said):
            yield Message(role="assistant" if entry.side == side else "user", content=entry.text)
        elif isinstance(entry, Aside):
            beside = entry.text if entry.side == side else beside
        elif entry.side == side:
            made.append(entry)
    if made:
        yield from _calls(beside, made)


def _calls(beside: str, made: Iterable[Done]) -> Iterator[Message]:
    texts = [*([beside] if beside else []), *(render_call(*entry.call) for entry in made)]
    yield Message(role="assistant", content="\n".join(texts))
    for entry in made:
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


def kept_entries(log: Iterable[Entry]) -> list[dict[str, Any]]:
    """Entries as JSON has them, without what the calls gave."""
    rows: list[dict[str, Any]] = []
    for entry in log:
        if isinstance(entry, Done):
            call = {"name": entry.call.name, "arguments": dict(entry.call.arguments), "joins": entry.joins}
            rows.append({"side": entry.side, **call})
        else:
            rows.append({"side": entry.side, "aside" if isinstance(entry, Aside) else "said": entry.text})
    return rows


def entries_kept(rows: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """The same again; what a call gave is left empty."""
    for row in rows:
        side = row["side"]
        if "name" in row:
            yield Done(side, ToolCall(row["name"], row["arguments"]), "", False, row["joins"])
        else:
            yield Aside(row["aside"], side) if "aside" in row else Said(side, row["said"])
