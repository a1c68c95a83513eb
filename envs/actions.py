"""The action grammar: what an assistant's text means, and how a meaning is written as text.

    [<think>thought</think>] [text] { <tool_call>{"name": ..., "arguments": {...}}</tool_call> [text] }

One turn either calls tools (one or several, run at the same time) or says something. Text beside calls is kept in the
transcript but is told to nobody. A thought is read only at the start; `</think>` without an opening tag counts, since
chat templates may open the thought in the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.errors import ActionError
from toolorchestra.envs.types import ToolCall

MAX_CALLS = 16
"""Calls in one turn; more is an ActionError, so that one turn cannot start an unbounded number of paid calls."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK, UNTHINK = "<think>", "</think>"


class Action(NamedTuple):
    """One assistant turn, understood. `said` is told to the other side only when there are no calls."""

    thought: str
    calls: tuple[ToolCall, ...]
    said: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ActionError(f"the key {twice!r} stands twice in one JSON object; write it once")
    return made


def _constant(name: str) -> None:
    raise ActionError(f"{name} is not JSON; write a finite number, a string or null")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def parse(text: str) -> Action:
    """Read one turn. Raises ActionError, with what was wrong and what would do, and nothing else."""
    if not isinstance(text, str):
        raise ActionError(f"an action is the assistant's text, a str; got {type(text).__name__}")
    if not text.isascii():
        _no_surrogates(text)
    thought, rest = _split_thought(text)
    if OPEN not in rest:
        if CLOSE in rest:
            raise ActionError(f"{CLOSE} without {OPEN} before it; write {OPEN}{{...}}{CLOSE}")
        said = rest.strip()
        if not said:
            raise ActionError("the action is empty; call a tool or write a message")
        return Action(thought, (), said)
    return _read_calls(thought, rest)


def _no_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise ActionError(f"character {err.start} is half of a surrogate pair, which is not text; remove it") from None


def _split_thought(text: str) -> tuple[str, str]:
    lead = text.lstrip()
    if lead.startswith(THINK):
        thought, closed, rest = lead[len(THINK) :].partition(UNTHINK)
        if not closed:
            raise ActionError(f"{THINK} is never closed; end the thought with {UNTHINK} before acting")
        return thought.strip(), rest
    if UNTHINK in text:
        thought, _, rest = text.partition(UNTHINK)
        if OPEN not in thought:
            return thought.strip(), rest
    return "", text


def _read_calls(thought: str, rest: str) -> Action:
    calls: list[ToolCall] = []
    said: list[str] = []
    at = 0
    while (start := rest.find(OPEN, at)) >= 0:
        said.append(rest[at:start])
        if len(calls) == MAX_CALLS:
            raise ActionError(f"more than {MAX_CALLS} tool calls in one turn; make the others in later turns")
        call, at = _read_call(rest, start + len(OPEN), len(calls) + 1)
        calls.append(call)
    said.append(rest[at:])
    tail = "".join(said)
    if CLOSE in tail:
        raise ActionError(f"{CLOSE} without {OPEN} before it; write {OPEN}{{...}}{CLOSE}")
    return Action(thought, tuple(calls), tail.strip())


def _read_call(text: str, at: int, number: int) -> tuple[ToolCall, int]:
    while text[at : at + 1].isspace():
        at += 1
    try:
        body, end = _decoder.raw_decode(text, at)
    except ActionError as err:
        raise ActionError(f"tool call {number}: {err}") from None
    except RecursionError:
        raise ActionError(f"tool call {number}: the JSON is nested too deeply") from None
    except ValueError as err:
        raise ActionError(f"tool call {number} is not valid JSON: {_reason(err)}") from None
    while text[end : end + 1].isspace():
        end += 1
    if not text.startswith(CLOSE, end):
        raise ActionError(f"tool call {number}: {CLOSE} expected after the JSON object, got {text[end : end + 20]!r}")
    return _as_call(body, number, escaped="\\u" in text[at:end]), end + len(CLOSE)


def _reason(err: ValueError) -> str:
    # Not str(err): json's own text repeats positions in the whole document, int()'s names a Python setting.
    if isinstance(err, json.JSONDecodeError):
        return f"{err.msg} at {err.doc[err.pos : err.pos + 20]!r}"
    return "a number has too many digits"


def _as_call(body: object, number: int, *, escaped: bool) -> ToolCall:
    if not isinstance(body, dict):
        raise ActionError(f'tool call {number} must be an object {{"name": ..., "arguments": {{...}}}}')
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise ActionError(f'tool call {number}: "name" must be a tool\'s name, got {name!r:.40}')
    arguments = body.get("arguments", {})
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise ActionError(f'tool call {number}: "arguments" must be a JSON object, got {kind}')
    if len(body) > 2 or (len(body) == 2 and "arguments" not in body):
        extra = sorted(set(body) - {"name", "arguments"})
        raise ActionError(f'tool call {number}: only "name" and "arguments" are read, got also {extra}')
    if escaped:
        _no_surrogates(json.dumps(body, ensure_ascii=False))
    return ToolCall(name, arguments)


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One call as text. Non-finite numbers are refused, as parse refuses them."""
    body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False, allow_nan=False)
    return f"{OPEN}{body}{CLOSE}"


def render(calls: Sequence[ToolCall] = (), said: str = "", thought: str = "") -> str:
    """The text whose parse is Action(thought, calls, said), up to surrounding blanks."""
    for what, part in (("thought", thought), ("said", said)):
        for tag in (OPEN, CLOSE, THINK, UNTHINK):
            if tag in part and not (what == "thought" and tag in (OPEN, CLOSE)):
                raise ValueError(f"{what} may not hold {tag}: it would read back as something else")
    head = f"{THINK}{thought}{UNTHINK}\n" if thought else ""
    return head + said + "\n".join(render_call(c.name, c.arguments) for c in calls)
