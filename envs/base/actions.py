"""The action grammar: what an assistant's text means, and how a meaning is written as text.

    [<think>thought</think>] [text] { <tool_call>{"name": ..., "arguments": {...}}</tool_call> [text] }

One turn either calls tools (one or several, run at the same time) or says something. Text beside calls is kept in the
transcript but is told to nobody. A thought is read only at the start; `</think>` without an opening tag counts, since
chat templates may open the thought in the prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import ToolCall, build

MAX_CALLS = 16
"""Calls in one turn; more is an ActionError, so that one turn cannot start an unbounded number of paid calls."""

MAX_DEPTH = 100
"""Levels of one call's JSON. Deeper ones would not survive every reader: repr, json and copy recurse."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK, UNTHINK = "<think>", "</think>"
FORM = '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}'
"""What stands between the tags of a call."""
_TOO_DEEP = f"the JSON is nested deeper than {MAX_DEPTH} levels; flatten it"


class Action(NamedTuple):
    """One assistant turn, understood. `said` is told to the other side only when there are no calls."""

    thought: str
    calls: tuple[ToolCall, ...]
    said: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        last = {key: index for index, (key, _) in enumerate(pairs)}
        twice = next(key for index, (key, _) in enumerate(pairs) if last[key] != index)
        raise ActionError(f"the key {twice!r:.40} stands twice in one JSON object; write it once")
    return made


def _constant(name: str) -> None:
    raise ActionError(f"{name} is not JSON; write a finite number, a string or null")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ActionError(f"{digits:.40} is too large for a number; write a smaller one or a string")
    return value


Scan = Callable[[str, int], tuple[Any, int]]
_strict: Scan = vars(
    json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float),
)["scan_once"]
_quick: Scan = vars(json.JSONDecoder(parse_constant=_constant, parse_float=_float))["scan_once"]


def parse(text: str) -> Action:
    """Read one turn. Raises ActionError, with what was wrong and what would do, and nothing else."""
    if not isinstance(text, str):
        raise ActionError(f"an action is the assistant's text, a str; got {type(text).__name__}")
    if call := only_call(text):
        return Action("", (call,), "")
    if not text.isascii():
        _no_surrogates(text)
    return _read(*_split_thought(text))


def _read(thought: str, rest: str) -> Action:
    start = rest.find(OPEN)
    if start < 0:
        if CLOSE in rest:
            raise ActionError(f"{CLOSE} without {OPEN} before it; write {OPEN}{{...}}{CLOSE}")
        said = rest.strip()
        if not said:
            raise ActionError("the action is empty; call a tool or write a message")
        return Action(thought, (), said)
    return _read_calls(thought, rest, start)


def only_call(text: str) -> ToolCall | None:
    """The call of a text that is one plain call and nothing else, by far the commonest; None: read it with care."""
    if not (text.startswith(OPEN) and text.endswith(CLOSE) and text.isascii()):
        return None
    try:
        body, end = _quick(text, len(OPEN))
    except (StopIteration, RecursionError, ValueError):
        return None
    return _plain_call(body, text) if end + len(CLOSE) == len(text) else None


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
    thought, closed, rest = text.partition(UNTHINK)
    if closed and OPEN not in thought:
        return thought.strip(), rest
    return "", text


def _read_calls(thought: str, rest: str, start: int) -> Action:
    calls: list[ToolCall] = []
    said: list[str] = []
    at = 0
    while start >= 0:
        said.append(rest[at:start])
        if len(calls) == MAX_CALLS:
            raise ActionError(f"more than {MAX_CALLS} tool calls in one turn; make the others in later turns")
        call, at = _read_call(rest, start + len(OPEN), len(calls) + 1)
        calls.append(call)
        start = rest.find(OPEN, at)
        closed = rest.find(UNTHINK, at, len(rest) if start < 0 else start)
        if closed >= 0 and not thought:  # a prompt may open the thought: then these calls were only thought of
            return _read(rest[:closed].strip(), rest[closed + len(UNTHINK) :])
    said.append(rest[at:])
    tail = "".join(said)
    if CLOSE in tail:
        raise ActionError(f"{CLOSE} without {OPEN} before it; write {OPEN}{{...}}{CLOSE}")
    return Action(thought, tuple(calls), tail.strip())


def _read_call(text: str, at: int, number: int) -> tuple[ToolCall, int]:
    if text[at : at + 1] != "{":
        at = _past_blanks(text, at)
    try:
        call, end = _decode(text, at)
    except ActionError as err:
        raise ActionError(f"tool call {number}: {err}") from None
    except StopIteration as stop:
        raise ActionError(_no_json(number, _expected(text, at, stop.value))) from None
    except RecursionError:
        raise ActionError(f"tool call {number}: {_TOO_DEEP}") from None
    except ValueError as err:
        raise ActionError(_no_json(number, _reason(err))) from None
    if not text.startswith(CLOSE, end):
        end = _past_blanks(text, end)
        if not text.startswith(CLOSE, end):
            got = repr(text[end : end + 20]) if end < len(text) else "the end of the text"
            raise ActionError(
                f"tool call {number}: {CLOSE} expected after the JSON, got {got}; write {OPEN}{FORM}{CLOSE}"
            )
    return call, end + len(CLOSE)


def _no_json(number: int, why: str) -> str:
    return f"tool call {number} is not valid JSON: {why}; write it like {FORM}"


def _decode(text: str, at: int) -> tuple[ToolCall, int]:
    """The call whose JSON starts there. Duplicate keys are looked for only where there can be any."""
    body, end = _quick(text, at)
    if call := _plain_call(body, text[at:end]):
        return call, end
    body, end = _strict(text, at)
    if text.count("[", at, end) + text.count("{", at, end) > MAX_DEPTH:
        _no_abyss(body)
    return _as_call(body, escaped="\\u" in text[at:end]), end


def _plain_call(body: Any, text: str) -> ToolCall | None:
    """The call, when its text alone shows that no key stands twice and nothing is escaped or deep."""
    if type(body) is dict and len(body) == 2:
        name = body.get("name")
        arguments = body.get("arguments")
        if type(name) is str and name and type(arguments) is dict:
            # Each key has its colon: with as many colons as keys none was dropped, and no string holds one.
            plain = text.count(":") == 2 + len(arguments) and "\\u" not in text
            if plain and text.count("[") <= MAX_DEPTH - 2:
                return build(ToolCall, (name, arguments))
    return None


def _no_abyss(body: object) -> None:
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        inside = (part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole))
        level = [part for part in inside if isinstance(part, dict | list)]
        if not level:
            return
    raise ActionError(_TOO_DEEP)


def _past_blanks(text: str, at: int) -> int:
    if text[at : at + 1].isspace():
        return len(text) - len(text[at:].lstrip())
    return at


def _expected(text: str, at: int, stopped: int) -> str:
    what = "object" if stopped == at else "value"
    return f"a JSON {what} expected, got {text[stopped : stopped + 20]!r}"


def _reason(err: ValueError) -> str:
    # Not str(err): json's own text repeats positions in the whole document, int()'s names a Python setting.
    if isinstance(err, json.JSONDecodeError):
        return f"{err.msg.removesuffix(' at')} at {err.doc[err.pos : err.pos + 20]!r}"
    return "a number has too many digits"


def _as_call(body: object, *, escaped: bool) -> ToolCall:
    if not isinstance(body, dict):
        raise ActionError(f"one JSON object expected, got {_KINDS[type(body)]}; write it like {FORM}")
    name = body.get("name")
    if not isinstance(name, str) or not name:
        got = f"{name!r:.40}" if "name" in body else f"no name among {sorted(body)!s:.60}"
        raise ActionError(f'"name" must be a tool\'s name, got {got}; write it like {FORM}')
    arguments = body.get("arguments", {})
    if not isinstance(arguments, dict):
        what = f"{_KINDS[type(arguments)]}; write it like {FORM}"
        raise ActionError(f'"arguments" must be a JSON object, got {what}')
    if len(body) != 1 + ("arguments" in body):
        raise ActionError(_not_read(sorted(set(body) - {"name", "arguments"}), renames="arguments" not in body))
    if escaped:
        _no_surrogates(json.dumps(body, ensure_ascii=False))
    return ToolCall(name, arguments)


_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_MEANT = ("parameters", "args", "input", "kwargs", "params")
"""What other formats call "arguments"."""


def _not_read(extra: Sequence[str], *, renames: bool) -> str:
    meant = [key for key in extra if renames and key in _MEANT][:1]
    hints = [f'rename {json.dumps(key)} to "arguments"' for key in meant]
    if len(extra) > len(meant):
        hints.append("leave out the other keys" if meant else "leave them out")
    return f'only "name" and "arguments" are read, got also {extra!s:.80}; {" and ".join(hints)}'


def not_text(action: object, who: str = "") -> str:
    """What is said of an action that is no text, with the function that makes a text of it."""
    if isinstance(action, Mapping) and "role" in action:
        do = "make one of a message with from_openai(message), of toolorchestra.envs.base.openai_messages"
    elif isinstance(action, int) and not isinstance(action, bool):
        do = "numbered actions are those of the wrapper toolorchestra.envs.wrappers.Routing"
    else:
        do = "write a call with render_call(name, arguments), of toolorchestra.envs.base.actions"
    return f"an action is the assistant's text, a str; {who}got {type(action).__name__}: {action!r:.60}; {do}"


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One call as text. Non-finite numbers are refused, as parse refuses them."""
    if not (isinstance(name, str) and isinstance(arguments, Mapping)):
        raise TypeError(
            f"render_call takes a tool's name and its arguments by name, such as render_call('search', {{'model': "
            f"'search-1'}}); got {name!r:.40} and {arguments!r:.40}"
        )
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


_TOOLS = 'You may call tools. To call one write {open}{{"name": ..., "arguments": {{...}}}}{close}. The tools:\n{tools}'


def tools_as_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """How a tool is called, and the schemas, one a line; "" where there are none. They hold no marks: see marks.py."""
    if not tools:
        return ""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return _TOOLS.format(open=OPEN, close=CLOSE, tools=listed)


def result_as_text(content: str) -> str:
    """A tool's result for a user's message. The content holds no marks, so only this ends it."""
    return f"<tool_response>\n{content}\n</tool_response>"
