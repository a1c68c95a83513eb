"""OpenEnv: each connection is a client, whose messages are reset, step, state and close. docs/trainers.md"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from toolorchestra.envs.adapters.remote_episodes import RemoteEpisode, RemoteEpisodes, SessionError, answers, shown
from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.openai_messages import action_of

_LOG = logging.getLogger("uvicorn.error")
ACTION = {
    "title": "Turn",
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "What you say; <tool_call>...</tool_call> in it is a call.",
        },
        "tool_calls": {
            "type": "array",
            "description": "Calls of tools, which run at the same time.",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
                "required": ["name", "arguments"],
            },
        },
    },
    "required": ["message"],
}
"""One turn of the agent's, as OpenEnv's clients are told it."""
_LISTS: dict[str, Any] = {"messages": {"type": "array"}, "tools": {"type": "array"}, "bill": {"type": "object"}}
SCHEMAS: dict[str, Any] = {
    "action": ACTION,
    "observation": {"title": "Transcript", "type": "object", "properties": _LISTS},
    "state": {"title": "Account", "type": "object"},
}


class OpenEnvConnection:
    """One client's connection, and the episode that it plays."""

    def __init__(self, episodes: RemoteEpisodes) -> None:
        self._episodes = episodes
        self._one: RemoteEpisode | None = None

    async def reply(self, text: str) -> dict[str, Any] | None:
        """The answer to a message; None: the client says goodbye."""
        try:
            message = json.loads(text)
            kind, data = message["type"], message.get("data", {})
            if not isinstance(data, dict):
                raise TypeError("data is no object")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            return _problem("INVALID_JSON", f'{{"type": ..., "data": {{...}}}} expected: {type(err).__name__}: {err}')
        if kind == "close":
            return None
        kinds = {"reset": self._reset, "step": self._step, "state": self._state}
        made = kinds.get(kind) if isinstance(kind, str) else None
        if made is None:
            return _problem("UNKNOWN_TYPE", f"reset, step, state or close expected, got {kind!r:.60}")
        try:
            return await made(data)
        except ConfigError as err:
            return _problem("VALIDATION_ERROR", str(err))
        except SessionError as err:
            return _problem("CAPACITY_REACHED" if err.status == 503 else "EXECUTION_ERROR", str(err), err.account)
        except Exception as err:  # noqa: BLE001 - the log has it, and the client a reply
            _LOG.exception("a message failed by a fault of the server")
            return _problem("EXECUTION_ERROR", f"the server failed: {type(err).__name__}: {err}")

    async def _state(self, _data: Mapping[str, Any]) -> dict[str, Any]:
        account = self._one.account if self._one else {}
        told = {"episode_id": account.get("episode_id"), "step_count": account.get("turns", 0), **account}
        return {"type": "state", "data": told}

    async def _reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        for name in data:
            one_of("argument of reset", name, ("env", "seed", "options", "episode_id"))
        self.close("reset")
        one = self._one = await self._episodes.start(data)
        made = {"observation": shown(one.observation), "reward": None, "done": False}
        return {"type": "observation", "data": {**made, "metadata": {**one.told, "bill": one.account}}}

    async def _step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if self._one is None:
            raise SessionError(409, "no episode yet: reset first")
        step = await self._episodes.play(self._one, text_of_action(data), data.get("usage"))
        retold = self._one.episode.rules.history == "state"
        seen: dict[str, Any] = {"messages": shown(step.observation)["messages"] if retold else answers(step)}
        bill, over = {"bill": self._one.account}, step.terminated or step.truncated
        made = {"observation": seen | bill if over else seen, "reward": step.reward, "done": over, "metadata": bill}
        return {"type": "observation", "data": made}

    def close(self, why: str = "closed") -> None:
        """End the episode, unless it has ended by itself."""
        if self._one is not None:
            self._episodes.end(self._one, why)
            self._one = None


def _problem(code: str, text: str, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "error", "data": {"message": text, "code": code, **({"bill": account} if account else {})}}


def text_of_action(action: Mapping[str, Any]) -> str:
    """An action as the agent's text. What has another form than ACTION is what the agent said: it may err, and the
    rollout goes on."""
    said = {name: value for name, value in action.items() if name not in ("usage", "metadata")}
    if said and said.keys() <= {"message", "tool_calls"}:
        message, calls = said.get("message") or "", said.get("tool_calls")
        words = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
        try:
            return action_of(calls, words) if calls else words
        except TypeError:
            pass
    return json.dumps(said, ensure_ascii=False)
