"""Between the transcript and an OpenAI-compatible server: messages out, text and usage in. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, parse, render_call
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Served
from toolorchestra.envs.money.prices import Tokens

CHARACTERS_PER_TOKEN = 4
REPLY_CHARACTERS = 200_000
"""Of a reply; a longer one keeps its end, where answers stand."""
_TOOLS = 'You may call tools. To call one write {open}{{"name": ..., "arguments": {{...}}}}{close}. The tools:\n{tools}'


class Unreadable(ValueError):
    """The server's reply is not what the protocol says."""


def clean(text: str) -> str:
    """The text without lone surrogates, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def body(request: ChatRequest, served: Served) -> dict[str, Any]:
    """The request's JSON."""
    room = CHARACTERS_PER_TOKEN * (served.context_tokens - served.output_tokens)
    described = len(str(request.tools)) if request.tools else 0
    messages = fit(request.messages, max(1000, room - described))
    made: dict[str, Any] = {
        "model": served.model or request.model,
        served.output_key: served.output_tokens,
        **served.extra,
    }
    if served.temperature is not None:
        made["temperature"] = served.temperature
    if served.seeded:
        made["seed"] = (request.seed + request.attempt) % 2**31
    if served.api == "completion":
        said = "".join(f"{m['role'].capitalize()}: {m['content']}\n\n" for m in _as_text(messages, request.tools))
        return {**made, "prompt": clean(said) + "Assistant:"}
    if request.tools and served.native_tools:
        return {**made, "messages": _native(messages), "tools": [_thawed(tool) for tool in request.tools]}
    return {**made, "messages": _as_text(messages, request.tools)}


def _thawed(value: Any) -> Any:
    return json.loads(json.dumps(value))


def fit(messages: Sequence[Message], characters: int) -> list[Message]:
    """As many messages as fit: the first two and the latest stay, the middle goes; then the longest loses its start."""
    kept = list(messages)
    size = sum(len(m["content"]) for m in kept)
    while size > characters and len(kept) > 3:
        size -= len(kept.pop(2)["content"])
    while size > characters:
        at = max(range(len(kept)), key=lambda i: len(kept[i]["content"]))
        cut = min(size - characters, len(kept[at]["content"]) - 1)
        if cut <= 0:
            break
        kept[at] = Message({**kept[at], "content": kept[at]["content"][cut:]})
        size -= cut
    return kept


def _as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Tool results as the user's messages, and the tools' schemas in the system message."""
    out = []
    for message in messages:
        role, content = message["role"], clean(message["content"])
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        out.append({"role": role, "content": content})
    if tools:
        listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        told = _TOOLS.format(open=OPEN, close=CLOSE, tools=listed)
        if out and out[0]["role"] == "system":
            out[0] = {"role": "system", "content": f"{out[0]['content']}\n\n{told}"}
        else:
            out.insert(0, {"role": "system", "content": told})
    return out


def _native(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The assistant's calls as native ones, and each result under the id of its call."""
    out: list[dict[str, Any]] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role, content = message["role"], clean(message["content"])
        if role == "assistant":
            made = _calls(content, number)
            waiting = [call["id"] for call in made.get("tool_calls", ())]
            out.append(made)
        elif role == "tool" and waiting:
            out.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": content})
        else:  # a parser's complaint, or a result whose call was cut away
            out.append({"role": "user" if role == "tool" else role, "content": content})
    return out


def _calls(text: str, number: int) -> dict[str, Any]:
    try:
        action = parse(text)
    except ActionError:
        return {"role": "assistant", "content": text}
    if not action.calls:
        return {"role": "assistant", "content": text}
    calls = [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for index, call in enumerate(action.calls)
    ]
    return {"role": "assistant", "content": action.said, "tool_calls": calls}


# -- the reply ---------------------------------------------------------------------------------------------------------


def read(raw: str) -> Mapping[str, Any]:
    """The reply's JSON, an object. Raises Unreadable."""
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise Unreadable(f"the reply is not JSON ({err}): {raw[:80]!r}") from None
    if not isinstance(reply, Mapping):
        raise Unreadable(f"the reply is a JSON object, got {type(reply).__name__}")
    return reply


def text_of(reply: Mapping[str, Any], request: ChatRequest) -> str:
    """What was said, in the action grammar where a move was asked for. Raises Unreadable."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise Unreadable(f"the reply has no choices: {str(reply)[:80]!r}")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        if not isinstance(choice.get("text"), str):
            raise Unreadable(f"the choice has neither a message nor a text: {str(choice)[:80]!r}")
        message = {"content": choice["text"]}
    said = message.get("content") or ""
    if not isinstance(said, str):
        raise Unreadable(f"a message's content is text, got {type(said).__name__}")
    said = clean(said)[-REPLY_CHARACTERS:]
    if request.purpose != "move":
        return said.rpartition(UNTHINK)[2].strip() if UNTHINK in said else said
    return _move(said, message)


def _move(said: str, message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    head = ""
    if isinstance(thought, str) and thought and THINK not in said and UNTHINK not in said:
        thought = clean(thought)[-REPLY_CHARACTERS:].replace(THINK, " ").replace(UNTHINK, " ")
        head = f"{THINK}{thought}{UNTHINK}\n"
    if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
        return head + said
    beside = said.replace(OPEN, " ").replace(CLOSE, " ")
    return head + beside + "\n".join(_rendered(call) for call in calls)


def _rendered(call: Any) -> str:
    """One native call in the grammar. What cannot be read is passed on as it came: the parser tells the agent why."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return f"{OPEN}{call!s:.200}{CLOSE}"
    name, arguments = function.get("name"), function.get("arguments")
    try:
        read_arguments = json.loads(arguments or "{}") if not isinstance(arguments, Mapping) else arguments
        if isinstance(name, str) and isinstance(read_arguments, Mapping):
            return clean(render_call(name, read_arguments))
    except (ValueError, TypeError, RecursionError):
        pass
    return clean(f'{OPEN}{{"name": {json.dumps(name)}, "arguments": {arguments!s}}}{CLOSE}')


def usage_of(reply: Mapping[str, Any], sent: str, said: str) -> tuple[Tokens, bool]:
    """The tokens by disjoint class, and whether they had to be estimated since the reply's count makes no sense."""
    counted = counted_of(reply)
    if counted is not None:
        return counted, False
    return Tokens(len(sent) // CHARACTERS_PER_TOKEN, 0, -(-len(said) // CHARACTERS_PER_TOKEN), 0), True


def counted_of(reply: Mapping[str, Any]) -> Tokens | None:
    """The tokens that the reply says it used, or None where that makes no sense."""
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens", 0))
    cached = _whole(_detail(usage, "prompt_tokens_details", "cached_tokens"))
    reasoning = _whole(_detail(usage, "completion_tokens_details", "reasoning_tokens"))
    if prompt is None or completion is None or cached is None or reasoning is None:
        return None
    if cached > prompt or reasoning > completion:
        return None
    return Tokens(prompt - cached, cached, completion - reasoning, reasoning)


def _detail(usage: Mapping[str, Any], table: str, key: str) -> Any:
    details = usage.get(table)
    value = details.get(key) if isinstance(details, Mapping) else None
    return 0 if value is None else value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None
