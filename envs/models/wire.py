"""Between the transcript and an OpenAI-compatible server: messages out, text and usage in. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.marks import STANDARD, clean, quoted
from toolorchestra.envs.base.openai_messages import rendered_call
from toolorchestra.envs.base.tools_as_text import result_as_text, tools_as_text
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Served

CHARACTERS_PER_TOKEN = 4
REPLY_CHARACTERS = 200_000
"""Of a reply; a longer one keeps its end, where answers stand."""
_TURN = re.compile(r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])[ \t]*(?:S(?=ystem:)|U(?=ser:)|A(?=ssistant:)|T(?=ool:))")
"""What begins a turn of a prompt for a completion server: the first letter gets a space behind it."""


class Unreadable(ValueError):
    """The server's reply is not what the protocol says."""


def body(request: ChatRequest, served: Served) -> dict[str, Any]:
    """The JSON body of a request to an OpenAI-compatible server."""
    room = CHARACTERS_PER_TOKEN * (served.context_tokens - served.output_tokens)
    tools = STANDARD.schemas(request.tools)
    described = len(str(tools)) if tools else 0
    messages = fit(STANDARD.told(request.messages, spoken=True), max(1000, room - described))
    most = request.most_output_tokens or served.output_tokens
    made: dict[str, Any] = {
        "model": served.model or request.model,
        served.output_key: min(most, served.output_tokens),
    }
    if request.stream if served.stream is None else served.stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    made |= served.extra
    temperature = request.temperature if served.temperature is None else served.temperature
    if temperature is not None:
        made["temperature"] = temperature
    if served.seeded:
        made["seed"] = (request.seed + request.attempt) % 2**31
    if served.api == "completion":
        said = "".join(_turn(m["role"], m["content"]) for m in _as_text(messages, tools))
        return {**made, "prompt": f"{said}Assistant:"}
    if tools and (request.native_tools if served.native_tools is None else served.native_tools):
        return {**made, "messages": _native(messages), "tools": tools}
    return {**made, "messages": _as_text(messages, tools)}


def _turn(role: str, content: str) -> str:
    return f"{role.capitalize()}: {_TURN.sub(lambda found: f'{found[0]} ', content)}\n\n"


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
        role, content = message["role"], message["content"]
        if role == "tool":
            role, content = "user", result_as_text(content)
        out.append({"role": role, "content": content})
    if tools:
        told = tools_as_text(tools)
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
        role, content = message["role"], message["content"]
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
            "function": {
                "name": STANDARD.broken(call.name),
                "arguments": STANDARD.broken(json.dumps(call.arguments, ensure_ascii=False)),
            },
        }
        for index, call in enumerate(action.calls)
    ]
    return {"role": "assistant", "content": STANDARD.broken(action.said), "tool_calls": calls}


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


def text_of(reply: Mapping[str, Any], request: ChatRequest, *, native: bool = False) -> str:
    """What was said, in the action grammar where a move was asked for. Where the tools were sent natively, only native
    calls are calls: one that the text quotes is text. Raises Unreadable."""
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
    if request.purpose == "user" and message.get("tool_calls"):
        return _users_calls(said, message["tool_calls"])
    if request.purpose != "move":
        said = said.rpartition(UNTHINK)[2].strip() if UNTHINK in said else said
        return quoted(said) if native and request.purpose == "user" else said
    return _move(quoted(said) if native else said, message)


def cut_short(reply: Mapping[str, Any]) -> bool:
    """Whether a readable reply says that it broke off at the limit of its length."""
    return bool(reply["choices"][0].get("finish_reason") == "length")


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


def _users_calls(said: str, calls: Any) -> str:
    """A simulated user's native calls in the grammar, without its thought. Raises Unreadable: nobody is told why."""
    beside = said.rpartition(UNTHINK)[2].replace(OPEN, " ").replace(CLOSE, " ").strip()
    made = [_rendered(call) for call in calls] if isinstance(calls, Sequence) and not isinstance(calls, str) else [""]
    try:
        for call in made:
            parse(call)
    except ActionError as err:
        raise Unreadable(f"a native call cannot be read: {err}") from None
    return "\n".join([*([beside] if beside else []), *made])


def _rendered(call: Any) -> str:
    """One native call in the grammar. What cannot be read is passed on as it came: the parser tells the agent why."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return f"{OPEN}{call!s:.200}{CLOSE}"
    return rendered_call(function.get("name"), function.get("arguments"))
