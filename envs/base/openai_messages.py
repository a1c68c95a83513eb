"""Conversion between the transcript, in which calls are text, and chat messages in which they are structures with ids.

to_openai(messages)    for OpenAI's API and servers that speak it: arguments are JSON text
to_native(messages)    for chat templates: arguments are objects
from_openai(message)   an assistant's message -> an action for env.step
action_of(calls)       calls that somebody has parsed already -> an action for env.step
as_text(messages)      for templates and servers without tools: system, user and assistant, all of it text
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, parse, render_call, result_as_text
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.marks import clean, quoted
from toolorchestra.envs.base.types import ToolCall

Told = Mapping[str, Any]
"""A message of either form: calls as text, or as `tool_calls`."""


def to_openai(messages: Sequence[Told], *, parallel_calls: bool = True) -> list[dict[str, Any]]:
    """The messages with OpenAI's own fields and no others. The result is new data that the caller may change.

    A call gets an id, and its result has that id as `tool_call_id`. What is said beside calls, and a thought, stays in
    `content`. A text that could not be read as an action stays as it is, and the complaint about it is a user's
    message, since no call has such a result. parallel_calls=False writes a turn of several calls as one assistant
    message for each, with its result behind it: some templates refuse two calls in a message, or show the first alone.
    """
    made = to_native(messages, parallel_calls=parallel_calls)
    for message in made:
        if message["role"] == "tool":
            message.pop("name", None)
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return made


def to_native(messages: Sequence[Told], *, parallel_calls: bool = True) -> list[dict[str, Any]]:
    """Convert as to_openai does, in the form that chat templates want: arguments are objects, and a result has its
    tool's name."""
    made: list[dict[str, Any]] = []
    turns = list(_turns(messages))
    for one in turns:
        followed = len(one.replies) > 0 or one is not turns[-1]
        made += one.told(parallel_calls=parallel_calls, followed=followed)
    return made


def as_text(messages: Sequence[Told], prompt: str) -> list[dict[str, Any]]:
    """The messages with everything as text: `prompt` at the end of the system message, calls in <tool_call>, and the
    results of a turn as one message of the user, each in its <tool_response>."""
    made: list[dict[str, Any]] = []
    for is_result, run in itertools.groupby(messages, lambda message: message["role"] == "tool"):
        if is_result:
            results = "\n".join(result_as_text(message["content"]) for message in run)
            made.append({"role": "user", "content": results})
        else:
            made += ({"role": message["role"], "content": _as_text(message)} for message in run)
    if prompt:
        begun = made[0]["content"] if made and made[0]["role"] == "system" else ""
        made[: bool(begun)] = [{"role": "system", "content": f"{begun}\n\n{prompt}".lstrip("\n")}]
    return made


# -- a turn ------------------------------------------------------------------------------------------------------------


class _AssistantTurn:
    """An assistant's message and what came back, up to its next one."""

    def __init__(self, number: int, said: Told | None, replies: Sequence[Told]) -> None:
        self.replies = replies
        self._said = dict(said) if said is not None else {}
        self._calls = self._taken_apart(number) if self._said.get("role") == "assistant" else []

    def _taken_apart(self, number: int) -> list[dict[str, Any]]:
        """The calls, which then are no part of the content any more."""
        if given := self._said.pop("tool_calls", None):
            self._said["content"] = self._said.get("content") or ""
            return [_call(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in given]
        try:
            action = parse(self._said["content"])
        except ActionError:
            return []
        if action.calls:
            thought = f"{THINK}\n{action.thought}\n{UNTHINK}\n\n" if action.thought else ""
            self._said["content"] = thought + action.said
        return [_call(_id(number, place), call.name, call.arguments) for place, call in enumerate(action.calls)]

    def told(self, *, parallel_calls: bool, followed: bool) -> list[dict[str, Any]]:
        if not self._calls:
            return [*([self._said] if self._said else ()), *map(_without_call, self.replies)]
        results, others = self._results(followed=followed)
        if parallel_calls:
            return [{**self._said, "tool_calls": self._calls}, *itertools.chain(*results), *others]
        made: list[dict[str, Any]] = []
        for place, (call, result) in enumerate(zip(self._calls, results, strict=True)):
            said = self._said if place == 0 else {**self._said, "content": ""}
            made += [{**said, "tool_calls": [call]}, *result]
        return made + others

    def _results(self, *, followed: bool) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
        """Each call's result, and what else came back. A call without a result has an empty one where something
        follows: servers refuse one that nobody answered. At the end of an episode it has none."""
        results: list[list[dict[str, Any]]] = [[] for _ in self._calls]
        others = []
        for reply in self.replies:
            free = (i for i, call in enumerate(self._calls) if not results[i] and _answers(reply, call))
            place = next(free, None)
            if place is None:
                others.append(_without_call(reply))
            else:
                results[place] = [_result(self._calls[place], reply["content"])]
        if followed:
            results = [found or [_result(call, "")] for found, call in zip(results, self._calls, strict=True)]
        return results, others


def _turns(messages: Sequence[Told]) -> Iterator[_AssistantTurn]:
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    before = messages[: starts[0]] if starts else messages
    if before:
        yield _AssistantTurn(0, None, before)
    for number, (start, end) in enumerate(itertools.pairwise([*starts, len(messages)])):
        yield _AssistantTurn(number, messages[start], messages[start + 1 : end])


def _id(turn: int, place: int) -> str:
    """Make an id of nine letters and digits, which is the form that the narrowest of the templates (Mistral's)
    takes."""
    return f"call{turn:03}{place:02}"


def _call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}


def _answers(reply: Told, call: Told) -> bool:
    if reply["role"] != "tool":
        return False
    if "tool_call_id" in reply:
        return bool(reply["tool_call_id"] == call["id"])
    return bool(reply.get("name") == call["function"]["name"])


def _result(call: Told, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": content}


def _without_call(message: Told) -> dict[str, Any]:
    """A message as it is; a tool's that no call asked for (the grammar's complaint) as a user's."""
    return {"role": "user", "content": message["content"]} if message["role"] == "tool" else dict(message)


def _as_text(message: Told) -> str:
    content = message.get("content") or ""
    calls = message.get("tool_calls")
    return action_of(calls, content) if calls else str(content)


# -- actions -----------------------------------------------------------------------------------------------------------


def from_openai(message: Any) -> str:
    """An assistant's message as an action for env.step: a mapping, or an object of the openai package.

    With `tool_calls`, only these are calls: one that the content quotes is text. Without, the content is the action,
    and calls that it writes in the grammar count. What cannot be read, such as arguments that are no JSON, is handed on
    as it came: the environment then tells the agent what was wrong, and the turn counts.
    """
    fields = _fields(message)
    role = fields.get("role")
    if role != "assistant" or not {"content", "tool_calls", "function_call"} & fields.keys():
        got = f"a message of role {role!r}" if role else f"{type(message).__name__} with {sorted(map(str, fields))}"
        raise TypeError(
            f"from_openai takes an assistant's message, such as completion.choices[0].message; got {got:.200}"
        )
    said = content_text(fields.get("content")) or str(fields.get("refusal") or "")
    thought = fields.get("reasoning_content") or fields.get("reasoning") or ""
    thought = thought if isinstance(thought, str) and THINK not in said and UNTHINK not in said else ""
    calls = fields.get("tool_calls") or ()
    if old := fields.get("function_call"):  # the one call of the API before there were several
        calls = calls or [{"function": old}]
    return action_of(calls, said, thought) if calls else _thought(thought) + said


def action_of(calls: Iterable[Any], text: str = "", thought: str = "") -> str:
    """Parsed calls as an action for env.step, with what is said beside them and the thought before them.

    A call is a ToolCall or another pair of name and arguments, {"name": ..., "arguments": ...}, or a tool call in
    OpenAI's form; arguments are a mapping or JSON text. Text that spells the tags of a call gets them broken.
    """
    made = [_rendered_call(*_name_and_arguments(call)) for call in calls]
    beside = quoted(text)
    return _thought(thought) + "\n".join([*([beside] if beside else ()), *made])


def _rendered_call(name: Any, arguments: Any) -> str:
    """One call in the grammar. What cannot be read is passed on as it came: the parser tells the agent why."""
    try:
        given = json.loads(arguments or "{}") if not isinstance(arguments, Mapping) else arguments
        if isinstance(name, str) and isinstance(given, Mapping):
            return clean(render_call(name, given))
    except (ValueError, TypeError, RecursionError):
        pass
    return clean(f'{OPEN}{{"name": {json.dumps(name, default=str)}, "arguments": {_as_it_came(arguments)}}}{CLOSE}')


def _as_it_came(arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return str(arguments)
    try:
        return json.dumps(dict(arguments), ensure_ascii=False)  # NaN stays, which the parser then names
    except (ValueError, TypeError, RecursionError):
        return str(arguments)


def _name_and_arguments(call: Any) -> tuple[Any, Any]:
    if isinstance(call, ToolCall) or (isinstance(call, tuple | list) and len(call) == 2):
        return call[0], call[1]
    fields = _fields(call)
    fields = _fields(fields["function"]) if fields.get("function") else fields
    if "name" not in fields:
        raise TypeError(
            'a call is ToolCall(name, arguments), a pair of both, {"name": ..., "arguments": ...} or a tool call in '
            f"OpenAI's form; got {call!r:.100}"
        )
    return fields["name"], fields.get("arguments")


def _fields(given: Any) -> Mapping[str, Any]:
    """A mapping as it is, and the fields of a pydantic object."""
    if isinstance(given, Mapping):
        return given
    dump = getattr(given, "model_dump", None)
    if callable(dump) and isinstance(fields := dump(), Mapping):
        return fields
    raise TypeError(f"a mapping or a pydantic object was expected, got {type(given).__name__}: {given!r:.60}")


def content_text(content: Any) -> str:
    """A content's text, be it one text or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_fields(part) for part in content]
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _thought(thought: str) -> str:
    inside = thought.replace(THINK, " ").replace(UNTHINK, " ").strip()
    return f"{THINK}\n{inside}\n{UNTHINK}\n\n" if inside else ""
