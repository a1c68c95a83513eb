"""Integrations with other people's trainers, one file each, and what several of them say of an episode."""

from __future__ import annotations

import json
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode, Step


def account_of(episode: Episode, earned: float, step: Step | None = None) -> dict[str, Any]:
    """What a trainer is told of the episode so far. The money of a failed one stands here too."""
    info = step.info if step else {}
    ended = {name: info.get(name) for name in ("outcome", "failed", "truncated_by")}
    earned += step.reward if step and not ended["failed"] else 0.0
    counted = {"turns": episode.turn, "calls": dict(episode.calls), "tool_calls": sum(episode.calls.values())}
    return {"reward": earned, **ended, **counted, **episode.ledger.summary()}


async def json_body(request: Any, most_bytes: int, too_large: Exception) -> dict[str, Any]:
    """The JSON object that a request of Starlette's has; {} where it has no body. Raises ConfigError, or what is given
    for one that is too large."""
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > most_bytes:
            raise too_large
    try:
        data = json.loads(bytes(raw) or b"{}")
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"the request is not JSON: {err}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"the request must be a JSON object, got {type(data).__name__}")
    return data
