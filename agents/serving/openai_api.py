"""What clients of OpenAI's chat API send and are sent: bodies read, answers and chunks written. No I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from toolorchestra.agents.serving.solving import Asked, Solution
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.actions import Action, parse
from toolorchestra.envs.base.errors import POSITIVE, ActionError, ConfigError, one_line, require
from toolorchestra.envs.base.openai_messages import from_openai
from toolorchestra.envs.base.types import Message, Transcript
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.money.prices import NANO, Tokens
from toolorchestra.envs.tools import Tool

STEP_CHARACTERS = 400
IGNORED = (
    "frequency_penalty", "include", "logit_bias", "max_completion_tokens", "max_output_tokens", "max_tokens",
    "parallel_tool_calls", "presence_penalty", "reasoning", "reasoning_effort", "service_tier", "stop", "store",
    "temperature", "text", "tool_choice", "top_p", "truncation", "user",
)  # fmt: skip
"""Fields of OpenAI's that say nothing to an orchestrator. They are taken, and named in the answer."""


@dataclass(frozen=True)
class ChatBody:
    """The body of a request, with our own fields last."""

    model: str
    messages: Any
    stream: bool = False
    stream_options: Mapping[str, Any] | None = None
    """Options of a stream: with include_usage the bill has a chunk of its own, without a choice; else the last one."""
    tools: Any = None
    seed: int | None = None
    n: int | None = None
    response_format: Any = None
    metadata: Mapping[str, str] | None = None
    """What the trajectory says of the task beside the question; a subject is the family that a fit sees."""
    budget_usd: float | None = None
    """The most that the answer may cost."""
    deadline_seconds: float | None = None
    preference: Any = None
    """A kind's name, weights, or a sentence."""
    orchestrator_tools: tuple[str, ...] | None = None
    """The orchestrator's own tools to keep, by name; an empty list leaves the request's `tools` alone."""
    keep_experts: bool = True
    """Whether the orchestrator, after results of the client's tools, keeps to the expert of each tool that it asked."""
    steps: bool = False
    """Whether a stream tells each step as reasoning."""

    def __post_init__(self) -> None:
        limits = ("budget_usd", "deadline_seconds")
        require(self, POSITIVE, *(name for name in limits if getattr(self, name) is not None))
        if self.budget_usd is not None and self.budget_usd * NANO < 1:
            raise ConfigError(f"budget_usd must be 1e-9, a nano-dollar, or more, got {self.budget_usd!r}")


class Spoken(NamedTuple):
    """The messages of a request, taken apart."""

    system: str
    said: Transcript
    results: Mapping[str, str]
    """The last messages, where they are results of calls, by the calls' ids."""


def read_body(data: Mapping[str, Any]) -> tuple[ChatBody, list[str]]:
    """The body, and which of its fields are ignored. Raises ConfigError for what cannot be honoured."""
    ignored = [name for name in data if name in IGNORED]
    body = shapes.read(ChatBody, {k: v for k, v in data.items() if k not in ignored and v is not None}, "the request")
    if body.n not in (None, 1):
        raise ConfigError(f"the request: n must be 1, got {body.n}; send several requests for several answers")
    if isinstance(body.response_format, Mapping) and body.response_format.get("type") != "text":
        raise ConfigError("the request: response_format must be text: an orchestrator answers with an expert's words")
    return body, ignored


def conversation(messages: Any) -> Spoken:
    """The system message, what was said after it as a transcript, and results that wait to be taken up."""
    if not isinstance(messages, list) or not messages:
        raise ConfigError("the request: messages must be a list of messages, one at least")
    system: list[str] = []
    said: list[Message] = []
    names: dict[str, str] = {}
    results: dict[str, str] = {}
    for number, message in enumerate(messages):
        where = f"the request: messages[{number}]"
        if not isinstance(message, Mapping):
            raise ConfigError(f"{where} must be an object, got {type(message).__name__}")
        role = message.get("role")
        if role in ("system", "developer"):
            system.append(_text(message.get("content"), where))
        elif role == "user":
            results = {}
            said.append(Message(role="user", content=_text(message.get("content"), where)))
        elif role == "assistant":
            results = {}
            try:  # its calls are written in the grammar
                calls = {str(call["id"]): str(call["function"]["name"]) for call in message.get("tool_calls") or ()}
                said.append(Message(role="assistant", content=from_openai(message)))
            except (TypeError, LookupError, ValueError) as err:
                raise ConfigError(f"{where} cannot be read as an assistant's message: {err!s:.200}") from None
            names |= calls
        elif role == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id not in names:
                raise ConfigError(f"{where} is a result of call {call_id!r}, which no message before it has made")
            results[call_id] = _text(message.get("content"), where)
            said.append(Message(role="tool", name=names[call_id], content=results[call_id]))
        else:
            raise ConfigError(f"{where}: role must be system, developer, user, assistant or tool, got {role!r:.40}")
    return Spoken("\n\n".join(system), tuple(said), results)


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise ConfigError(f"{where}: content must be text, or a list of text parts, got {content!r:.60}")


def asked_of(body: ChatBody, spoken: Spoken, own: Sequence[Tool], most_usd: float, most_seconds: float) -> Asked:
    """What a request asks. Of a conversation the last message is the question; the ones before it stand above it."""
    alone = body.orchestrator_tools == ()
    if not spoken.said or (not alone and spoken.said[-1]["role"] != "user"):
        raise ConfigError("the request: the last message must be a user's, or a result of a call that waits")
    question = spoken.said[-1]["content"]
    if len(spoken.said) > 1:
        # Further lines are moved in, so that no text passes for another speaker's.
        told = ["\n  ".join(message["content"].splitlines()) for message in spoken.said[:-1]]
        before = "\n".join(f"{m['role'].capitalize()}: {text}" for m, text in zip(spoken.said, told, strict=False))
        question = f"The conversation so far:\n{before}\n\nThe user now says:\n{question}"
    if spoken.system:
        question = f"{spoken.system}\n\n{question}"
    return Asked(
        question,
        budget_usd=min(body.budget_usd or most_usd, most_usd),
        deadline_seconds=min(body.deadline_seconds or most_seconds, most_seconds),
        preference="none" if body.preference is None else body.preference,
        tools=body.orchestrator_tools,
        own=tuple(own),
        seed=body.seed or 0,
        said=spoken.said if alone else (),
        system=spoken.system,
        metadata=body.metadata or {},
    )


def schemas(tools: Any) -> list[Mapping[str, Any]]:
    """The functions of a request's `tools`."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise ConfigError(f"the request: tools must be a list, got {type(tools).__name__}")
    found = []
    for number, one in enumerate(tools):
        function = one.get("function") if isinstance(one, Mapping) and one.get("type") == "function" else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ConfigError(f"the request: tools[{number}] must be of type function and have a name, got {one!r:.80}")
        if not isinstance(function.get("parameters"), Mapping | None):
            raise ConfigError(f"the request: tools[{number}].function.parameters must be a schema's object")
        found.append(function)
    return found


# -- what is sent ------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of one of the client's own tools."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


class ChatReply(NamedTuple):
    """What one request comes to: an answer, or calls that the client has to make."""

    request_id: str
    model: str
    text: str = ""
    calls: Sequence[Call] = ()
    ended: str = ""
    """"tool_calls" where calls wait."""
    usage: Mapping[str, Any] = MappingProxyType({})
    ignored: Sequence[str] = ()
    failure: str = ""
    thought: str = ""


def part_of(now: Solution, before: Solution | None) -> Solution:
    """What came after the last that a conversation's client was told."""
    if before is None:
        return now
    return replace(
        now,
        usd=round(now.usd - before.usd, 9),
        unconfirmed_usd=round(now.unconfirmed_usd - before.unconfirmed_usd, 9),
        usd_by_role={role: round(usd - before.usd_by_role.get(role, 0.0), 9) for role, usd in now.usd_by_role.items()},
        seconds=now.seconds - before.seconds,
        calls={name: more for name, count in now.calls.items() if (more := count - before.calls.get(name, 0))},
        tokens=Tokens(*(one - other for one, other in zip(now.tokens, before.tokens, strict=True))),
    )


def usage_of(solution: Solution) -> dict[str, Any]:
    """The bill of an answer, in OpenAI's fields and ours."""
    tokens = solution.tokens
    into, out = tokens.input + tokens.cached, tokens.output + tokens.reasoning
    return {
        "prompt_tokens": into,
        "completion_tokens": out,
        "total_tokens": into + out,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "cost": solution.usd,
        "cost_by_role": dict(solution.usd_by_role),
        "calls": dict(solution.calls),
        "seconds": solution.seconds,
        "ended": solution.ended,
        "savings_estimate_usd": solution.savings_usd,
        **({"cost_unconfirmed": solution.unconfirmed_usd} if solution.unconfirmed_usd else {}),
        **({"right": solution.right} if solution.right is not None else {}),
    }


def headers(reply: ChatReply) -> dict[str, str]:
    """The bill again, for who reads no body."""
    usage = reply.usage
    return {
        "x-request-id": reply.request_id,
        "x-toolorchestra-cost-usd": f"{usage['cost']:.9f}",
        "x-toolorchestra-calls": str(sum(usage["calls"].values())),
        "x-toolorchestra-seconds": f"{usage['seconds']:.3f}",
        "x-toolorchestra-ended": reply.ended,
    }


def whole(reply: ChatReply) -> dict[str, Any]:
    """The answer as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    if reply.thought:
        message["reasoning_content"] = reply.thought
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply), "logprobs": None}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": dict(reply.usage), **_told(reply)}


def opening(request_id: str, model: str) -> bytes:
    """The first piece of a stream, before anything is known."""
    return _piece(ChatReply(request_id, model), {"role": "assistant", "content": ""})


def step(request_id: str, model: str, text: str) -> bytes:
    """A step of the orchestrator's, told as reasoning."""
    return _piece(ChatReply(request_id, model), {"reasoning_content": text})


def ending(reply: ChatReply, usage_apart: bool) -> Iterator[bytes]:
    """The last pieces of a stream: the answer and the bill, or what failed with the bill."""
    if reply.ended == "failed":
        yield _event(failed(reply))
    else:
        delta: dict[str, Any] = {"content": reply.text}
        if reply.calls:
            delta["tool_calls"] = [{"index": number, **_call(call)} for number, call in enumerate(reply.calls)]
        yield _piece(reply, delta)
        usage = {"usage": dict(reply.usage)}
        yield _piece(reply, {}, _reason(reply), **_told(reply), **({} if usage_apart else usage))
        if usage_apart:
            yield _event({**_head(reply, "chat.completion.chunk"), "choices": [], **usage})
    yield b"data: [DONE]\n\n"


def failed(reply: ChatReply) -> dict[str, Any]:
    """What failed, with the bill."""
    return {**problem(reply.failure, "server_error", "failed"), "usage": dict(reply.usage)}


def _piece(reply: ChatReply, delta: Mapping[str, Any], reason: str | None = None, **told: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _event({**_head(reply, "chat.completion.chunk"), "choices": [choice], **told})


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def action_in(text: str) -> Action:
    """What the policy said: what cannot be read is its words."""
    try:
        return parse(text)
    except ActionError:
        return Action("", (), text)


def told_step(step: Step) -> str:
    """A step in a line or two: the calls, what came back, and what it cost."""
    lines = []
    for message in step.info["new_messages"]:
        if message["role"] == "assistant":
            calls = action_in(message["content"]).calls
            lines += [f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in calls]
        else:
            lines.append(f"-> {one_line(message['content'])[:STEP_CHARACTERS]}")
    cost = step.info["cost"]
    return "\n".join([*lines, f"[{cost['usd'] * 100:.3g} ¢, {cost['seconds']:.3g} s]", ""])


def problem(text: str, kind: str, code: str) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    return {"error": {"message": text, "type": kind, "code": code, "param": None}}


def _head(reply: ChatReply, kind: str) -> dict[str, Any]:
    return {"id": reply.request_id, "object": kind, "created": int(time.time()), "model": reply.model}


def _told(reply: ChatReply) -> dict[str, Any]:
    made: dict[str, Any] = {"ended": reply.ended}
    if reply.failure:
        made["failure"] = reply.failure
    return {**made, "ignored": list(reply.ignored)} if reply.ignored else made


def _reason(reply: ChatReply) -> str:
    return "tool_calls" if reply.calls else "stop" if reply.ended == "answered" else "length"


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": call.call_id, "type": "function", "function": function}
