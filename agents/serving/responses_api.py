"""OpenAI's Responses API as a thin layer over its chat API: bodies into chat bodies, replies into responses. No I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.agents.serving.openai_api import ChatReply
from toolorchestra.envs.base.errors import ConfigError

TAKEN = ("input", "instructions", "tools")
"""Fields that the chat API has under other names."""


def chat_body(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same request as the chat API has it. Raises ConfigError."""
    if data.get("previous_response_id"):
        raise ConfigError("the request: previous_response_id is not kept here; send the whole conversation as input")
    body = {name: value for name, value in data.items() if name not in TAKEN}
    messages = [{"role": "system", "content": data["instructions"]}] if data.get("instructions") else []
    text = data.get("text")
    form = text.get("format") if isinstance(text, Mapping) else None
    if form is not None and _type(form) != "text":
        raise ConfigError(f"the request: text.format must be of type text, got {form!r:.60}")
    given = data.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    elif isinstance(given, list):
        messages += _messages(given)
    else:
        raise ConfigError(f"the request: input must be a text or a list of items, got {given!r:.60}")
    tools = data.get("tools") or []
    if not isinstance(tools, list):
        raise ConfigError(f"the request: tools must be a list, got {type(tools).__name__}")
    tools = [{"type": "function", "function": one} for one in tools]
    return {**body, "messages": messages, **({"tools": tools} if tools else {})}


def _messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise ConfigError(f"the request: input[{number}] must be an object, got {type(item).__name__}")
        kind = item.get("type", "message")
        if kind == "message":
            made.append({"role": item.get("role"), "content": _content(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if made and made[-1].get("tool_calls"):
                made[-1]["tool_calls"].append(call)
            else:
                made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            made.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))})
        elif kind != "reasoning":
            forms = "a message, function_call or function_call_output"
            raise ConfigError(f"the request: input[{number}] must be {forms}, got {kind!r:.40}")
    return made


def _content(given: Any) -> Any:
    """Name the parts of a message as the chat API does."""
    if not isinstance(given, list):
        return given
    return [{**one, "type": "text"} if _type(one) in ("input_text", "output_text") else one for one in given]


def _type(part: Any) -> Any:
    return part.get("type") if isinstance(part, Mapping) else None


def whole(reply: ChatReply, status: str = "") -> dict[str, Any]:
    """A reply as a response object."""
    identity = reply.request_id.replace("chatcmpl-", "resp_")
    usage = dict(reply.usage)
    cut = reply.ended not in ("answered", "tool_calls")
    return {
        "id": identity,
        "object": "response",
        "created_at": int(time.time()),
        "status": status or ("incomplete" if cut else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if cut and not status else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": [] if status else list(_items(reply)),
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "ended": reply.ended,
        **({"ignored": list(reply.ignored)} if reply.ignored else {}),
        "usage": _usage(usage) if usage else None,
    }


def _items(reply: ChatReply) -> Iterator[dict[str, Any]]:
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        identity = reply.request_id.replace("chatcmpl-", "msg_")
        yield {"type": "message", "id": identity, "role": "assistant", "status": "completed", "content": [part]}
    for call in reply.calls:
        told = {"call_id": call.call_id, "name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        yield {"type": "function_call", "id": f"fc_{call.call_id}", "status": "completed", **told}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    into, out = usage.pop("prompt_tokens"), usage.pop("completion_tokens")
    details = usage.pop("prompt_tokens_details"), usage.pop("completion_tokens_details")
    return {
        "input_tokens": into,
        "output_tokens": out,
        "input_tokens_details": {**details[0], "cache_write_tokens": 0},
        "output_tokens_details": details[1],
        **usage,
    }


def step(_request_id: str, _model: str, _text: str) -> bytes:
    """A step of the orchestrator's: this API has no place for it."""
    return b""


def ending(reply: ChatReply, _usage_apart: bool) -> Iterator[bytes]:
    """A reply as the last events of a stream, whose very last has the bill."""
    if reply.ended == "failed":
        usage = _usage(dict(reply.usage))
        yield event("error", 1, message=reply.failure, code="failed", param=None, usage=usage)
        return
    told = whole(reply)
    events: list[tuple[str, dict[str, Any]]] = []
    for place, item in enumerate(told["output"]):
        if item["type"] == "message":
            events += _message_events(item, place)
        else:
            events.append(("output_item.added", {"output_index": place, "item": item}))
        events.append(("output_item.done", {"output_index": place, "item": item}))
    events.append((told["status"], {"response": told}))
    for number, (kind, data) in enumerate(events, 1):
        yield event(f"response.{kind}", number, **data)


def _message_events(item: dict[str, Any], place: int) -> list[tuple[str, dict[str, Any]]]:
    """A message from its empty beginning to its whole text, which clients put together."""
    where = {"item_id": item["id"], "output_index": place, "content_index": 0}
    (part,) = item["content"]
    begun = {**item, "status": "in_progress", "content": []}
    return [
        ("output_item.added", {"output_index": place, "item": begun}),
        ("content_part.added", {**where, "part": {**part, "text": ""}}),
        ("output_text.delta", {**where, "delta": part["text"], "logprobs": []}),
        ("output_text.done", {**where, "text": part["text"], "logprobs": []}),
        ("content_part.done", {**where, "part": part}),
    ]


def opening(request_id: str, model: str) -> bytes:
    """The first event of a stream, before anything is known."""
    return event("response.created", 0, response=whole(ChatReply(request_id, model), "in_progress"))


def event(kind: str, number: int, **data: Any) -> bytes:
    """One event of a stream."""
    told = json.dumps({"type": kind, "sequence_number": number, **data}, separators=(",", ":"))
    return f"event: {kind}\ndata: {told}\n\n".encode()
