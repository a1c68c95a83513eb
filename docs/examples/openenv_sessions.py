"""Sessions of OpenEnv's harness over `toolorchestra serve environments`, for trainers that take a
ResourceSessionFactory, such as TRL's HarnessRolloutWorker. It needs OpenEnv, and nothing of toolorchestra."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from openenv.core import GenericEnvClient
from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, VerifyResult


class ToolOrchestraSession(ResourceSession):
    """One rollout's episode, on a connection of its own. A failed one raises, so that nothing is learnt from it."""

    def __init__(self, url: str, asked: dict[str, Any]) -> None:
        self._client: Any = GenericEnvClient(base_url=url, message_timeout_s=600).sync()
        self._reward, self._done, self._lock = 0.0, False, threading.Lock()
        try:
            self._first = self._client.reset(**asked).observation
        except Exception:
            self.close()
            raise

    def initial_messages(self) -> list[dict[str, Any]]:
        return list(self._first["messages"])

    def list_tools(self) -> list[Tool]:
        functions = [tool["function"] for tool in self._first["tools"]]
        return [Tool(name=f["name"], description=f["description"], input_schema=f["parameters"]) for f in functions]

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        said = self._plays({"message": "", "tool_calls": [{"name": name, "arguments": arguments}]})
        return ToolResult(data=said, done=self._done)

    def verify(self, transcript: list[dict[str, Any]], final_state: Any = None) -> VerifyResult:
        if not self._done and transcript[-1]["role"] == "assistant":  # words without a call are a turn too
            self._plays({"message": transcript[-1].get("content") or ""})
        return VerifyResult(env_reward=self._reward, done=self._done, metrics=self._asks("state"))

    def close(self) -> None:
        with self._lock:
            self._client, client = None, self._client
            if client is not None:
                client.close()

    def _asks(self, what: str, *of: Any) -> Any:
        with self._lock:  # a worker that stops closes sessions that others play, and OpenEnv's client then hangs
            if self._client is None:
                raise RuntimeError("the session is closed")
            return getattr(self._client, what)(*of)

    def _plays(self, action: dict[str, Any]) -> str:
        result = self._asks("step", action)
        self._reward, self._done = self._reward + result.reward, result.done
        return "\n\n".join(message["content"] for message in result.observation["messages"])


@dataclass
class ToolOrchestraSessions(ResourceSessionFactory):
    """A session for each rollout. Rollouts of one seed play one task, each with draws of its own."""

    url: str
    env: str
    options: dict[str, Any] = field(default_factory=dict)

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> ToolOrchestraSession:
        luck = int(episode_id, 16) % 2**31 if episode_id else None
        options = {"luck": luck, **self.options}
        return ToolOrchestraSession(self.url, dict(env=self.env, seed=seed, episode_id=episode_id, options=options))
