"""Transcripts and charges in the form of Inspect AI's logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.money.prices import NANO


def inspect_messages(kept: Sequence[Mapping[str, Any]], model: str) -> Iterator[dict[str, Any]]:
    """A transcript with its calls apart from its words. A text that is no action stays as it was said."""
    waiting: list[tuple[str, str]] = []
    for number, message in enumerate(kept):
        role, content = message["role"], message["content"]
        if role == "assistant":
            made = _said(content, number)
            waiting = [(call["id"], call["function"]) for call in made.get("tool_calls", ())]
            yield {"role": role, "source": "generate", "model": model, **made}
        elif role == "tool":
            own = next((call for call in waiting if call[1] == message.get("name")), (None, None))
            waiting = [call for call in waiting if call[0] != own[0]]
            yield {"role": role, "content": content, "function": message.get("name"), "tool_call_id": own[0]}
        else:
            yield {"role": role, "content": content}


def _said(text: str, number: int) -> dict[str, Any]:
    try:
        action = parse(text)
    except ActionError:
        return {"content": text}
    thought = [{"type": "reasoning", "reasoning": action.thought}, {"type": "text", "text": action.said}]
    content: dict[str, Any] = {"content": thought if action.thought else action.said}
    calls = [
        {"id": f"call-{number}-{place}", "function": call.name, "arguments": call.arguments, "type": "function"}
        for place, call in enumerate(action.calls)
    ]
    return {**content, "tool_calls": calls} if calls else content


def inspect_usages(charges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens and dollars by model and by role. Inspect's output tokens hold the reasoning."""
    made: dict[str, dict[str, dict[str, Any]]] = {"model_usage": {}, "role_usage": {}}
    for charge in charges:
        tokens = charge["tokens"]
        told = {
            "input_tokens": tokens["input"],
            "output_tokens": tokens["output"] + tokens["reasoning"],
            "total_tokens": sum(tokens.values()),
            "input_tokens_cache_read": tokens["cached"],
            "reasoning_tokens": tokens["reasoning"],
            "total_cost": charge["nano_usd"] / NANO,
        }
        for kind, name in (("model_usage", charge["item"]), ("role_usage", charge["role"])):
            sums = made[kind].setdefault(name, dict.fromkeys(told, 0))
            for key, value in told.items():
                sums[key] += value
    return made
