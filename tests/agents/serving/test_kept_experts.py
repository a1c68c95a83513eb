"""In a loop of the client's tools an expert that was asked stays, unless the request says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.support.loopback import ReceivedRequest, ServerReply
from tests.support.served import ServedPolicies, running_over
from toolorchestra.envs.base.actions import render_call

FETCH: Any = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
USED = {"prompt_tokens": 100, "completion_tokens": 100}
MOVES = [
    render_call("enhance_reasoning", {"model": "reasoner-1"}),
    render_call("fetch", {}),
    render_call("enhance_reasoning", {"model": "reasoner-2"}),
    render_call("fetch", {}),
    render_call("enhance_reasoning", {"model": "reasoner-2"}),
    render_call("answer", {"model": "answer-3"}),
]


def orchestrating(moves: list[str]) -> Callable[[ReceivedRequest], ServerReply]:
    """Reply as a model that makes these moves, one a turn, and as experts."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.json["model"] != "qwen3-8b":
            return ServerReply("```python\nprint(1)\n```<answer>Paris</answer>", usage=USED)
        turn = sum(message["role"] == "assistant" for message in asked.json["messages"])
        return ServerReply(moves[turn], usage=USED)

    return reply


def looped(server: ServedPolicies, *keeps: bool) -> tuple[str, dict[str, Any]]:
    """Ask, and send a result for each of the flags: the expert that a decision named first, and the last answer."""
    messages: list[Any] = [{"role": "user", "content": "Capital?"}]
    offers: Any = {"tools": [FETCH], "orchestrator_tools": ["enhance_reasoning", "answer"]}
    body = {"model": "chat", "messages": messages, **offers}
    (decided,) = httpx.post(f"{server.url}/v1/decision", json=body, timeout=20).json()["calls"]
    answer = server.ask("chat", messages, **offers).json()
    for keep in keeps:
        message = answer["choices"][0]["message"]
        (call,) = message["tool_calls"]
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "1"}]
        answer = server.ask("chat", messages, keep_experts=keep, **offers).json()
    assert answer["choices"][0]["message"]["content"] == "Paris"
    return decided["model"], answer


def billed(server: ServedPolicies) -> list[str]:
    charges = server.service.latest[-1].trajectory["charges"]
    return [charge["item"] for charge in charges if charge["role"] == "expert"]


def test_another_expert_is_not_to_be_had_until_the_request_says_so(tmp_path: Path) -> None:
    with running_over(orchestrating(MOVES), tmp_path, "chat") as (server, _):
        decided, answer = looped(server, True, False)
        first, second, last = billed(server)
        said, calls = server.service.latest[-1].trajectory["messages"], server.service.latest[-1].calls
    assert decided == first != second
    assert answer["usage"]["calls"] == {"reasoner-2": 1, "answer-3": 1}  # of what came since the last tool call
    assert calls == {"fetch": 2, "reasoner-1": 1, "reasoner-2": 1, "answer-3": 1}
    refused = [
        message["content"] for message in said if "reasoner-1" in message["content"] and message["role"] == "tool"
    ]
    assert len(refused) == 1  # the second round kept the expert, the third did not
    assert last


def test_the_expert_that_was_asked_stays_and_the_others_are_not_offered(tmp_path: Path) -> None:
    moves = [*MOVES[:2], MOVES[0], MOVES[5]]
    with running_over(orchestrating(moves), tmp_path, "chat") as (server, expert):
        looped(server, True)
        first, second, _ = billed(server)
        (tool,) = (one for one in server.service.latest[-1].trajectory["tools"] if one["function"]["name"] != "answer"
                   and one["function"]["name"] != "fetch")  # fmt: skip
        asked = [one for one in expert.seen if one.json["model"] == "qwen3-8b"]
    assert first == second
    assert tool["function"]["parameters"]["properties"]["model"]["enum"] == ["reasoner-1"]
    assert ["stays with reasoner-1" in str(one.json) for one in asked] == [False, False, False, True, True]
