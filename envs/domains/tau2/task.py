"""A task as it is graded and played: read from the benchmark's JSON, its defaults filled in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import one_of
from toolorchestra.envs.base.types import Message, ToolCall

Side = Literal["assistant", "user"]
BASES = ("DB", "ENV_ASSERTION", "ACTION", "COMMUNICATE", "NL_ASSERTION")
_DEFAULT_BASIS = ("DB", "COMMUNICATE")
_DIGEST_CHARACTERS = 10


class GoldAction(NamedTuple):
    """One call of the reference path."""

    side: Side
    call: ToolCall
    compared: tuple[str, ...] | None
    """Names of the arguments that must be equal; None: all of them."""


class Function(NamedTuple):
    """A method of one side's toolkit: an initial action, or an assertion with the value it must give."""

    side: Side
    name: str
    arguments: Mapping[str, Any]
    expected: bool = True


@dataclass(frozen=True, slots=True)
class Criteria:
    """What an episode is graded by. None where the task says nothing, which is not the same as an empty list."""

    actions: tuple[GoldAction, ...] | None = None
    assertions: tuple[Function, ...] | None = None
    communicate: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    """Assertions in natural language, for a judge."""
    basis: tuple[str, ...] = _DEFAULT_BASIS

    @property
    def needs_judge(self) -> bool:
        return "NL_ASSERTION" in self.basis and bool(self.judged)


class Past(NamedTuple):
    """A message of the conversation that a task starts in the middle of."""

    side: Side
    text: str
    calls: tuple[ToolCall, ...]
    outputs: tuple[str, ...]
    """What the calls gave, as it is written in the task."""


@dataclass(frozen=True, slots=True, eq=False)
class Tau2Task:
    """One task. Only `ticket` is ever shown to an agent, and only to one that works alone."""

    task_id: str
    """The benchmark's own id."""
    scenario: Mapping[str, Any]
    """Persona and instructions, for the user alone."""
    ticket: str
    agent_data: Mapping[str, Any] | None
    user_data: Mapping[str, Any] | None
    actions: tuple[Function, ...]
    history: tuple[Past, ...]
    criteria: Criteria | None
    user_tools: tuple[str, ...] | None = None
    """Names of the tools that its user has; None: all of the domain's."""
    required_documents: tuple[str, ...] = ()
    """What an agent should have read, where documents belong to the domain."""


def public_id(task_id: str) -> str:
    """A task's id as agents may see it: the benchmark's, but a digest where that would name what is wrong."""
    if task_id.isdecimal():
        return task_id
    return hashlib.sha256(task_id.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def read_plan(row: Mapping[str, Any]) -> Tau2Task:
    """A task of a tasks.json."""
    initial = row.get("initial_state") or {}
    data = initial.get("initialization_data") or {}
    criteria = row.get("evaluation_criteria")
    return Tau2Task(
        str(row["id"]),
        row["user_scenario"],
        row.get("ticket") or "",
        data.get("agent_data"),
        data.get("user_data"),
        tuple(_function(action) for action in initial.get("initialization_actions") or ()),
        _history(initial.get("message_history") or ()),
        None if criteria is None else read_criteria(criteria, str(row["id"])),
        None if row.get("user_tools") is None else tuple(row["user_tools"]),
        tuple(row.get("required_documents") or ()),
    )


def read_criteria(row: Mapping[str, Any], where: str) -> Criteria:
    """Reads `evaluation_criteria` of a task of the benchmark."""
    actions, assertions = row.get("actions"), row.get("env_assertions")
    basis = tuple(row.get("reward_basis") or _DEFAULT_BASIS)
    for name in basis:
        one_of("reward basis", name, BASES, f"task {where}: ")
    return Criteria(
        None if actions is None else tuple(_gold(action) for action in actions),
        None if assertions is None else tuple(_function(assertion) for assertion in assertions),
        tuple(row.get("communicate_info") or ()),
        tuple(row.get("nl_assertions") or ()),
        basis,
    )


def _gold(row: Mapping[str, Any]) -> GoldAction:
    compared = row.get("compare_args")
    call = ToolCall(row["name"], row["arguments"])
    return GoldAction(row.get("requestor") or "assistant", call, None if compared is None else tuple(compared))


def _function(row: Mapping[str, Any]) -> Function:
    return Function(row["env_type"], row["func_name"], row["arguments"], row.get("assert_value", True))


def _history(rows: Sequence[Mapping[str, Any]]) -> tuple[Past, ...]:
    outputs = {row["id"]: row.get("content") or "" for row in rows if row["role"] == "tool"}
    past = []
    for row in rows:
        if row["role"] != "tool":
            made = row.get("tool_calls") or ()
            calls = tuple(ToolCall(call["name"], call["arguments"]) for call in made)
            past.append(Past(row["role"], row.get("content") or "", calls, tuple(outputs[c["id"]] for c in made)))
    return tuple(past)


# -- what was said and done in an episode, in order: what users and experts are shown of it, and what is graded --------


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
