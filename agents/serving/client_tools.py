"""A client's own tools, and the conversation that waits while the client runs them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.serving.openai_api import Call
from toolorchestra.agents.serving.solving import Solution, Solving
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.tools import Tool, ToolContext, ToolResult

ID_BYTES = 12


class ClientTools:
    """The client's own tools in one conversation: a call waits until the client sends its result."""

    def __init__(self, functions: Sequence[Mapping[str, Any]], seconds: float) -> None:
        self.tools = [self._tool(function, seconds) for function in functions]
        self.waiting: dict[str, tuple[Call, asyncio.Future[str]]] = {}
        self.called = asyncio.Event()

    def _tool(self, function: Mapping[str, Any], seconds: float) -> Tool:
        name = str(function["name"])

        async def run(context: ToolContext, /, **arguments: Any) -> ToolResult:
            del context
            call = Call(f"call_{secrets.token_hex(ID_BYTES)}", name, arguments)
            result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.waiting[call.call_id] = (call, result)
            self.called.set()
            try:
                return ToolResult(await result, seconds=0.0)
            finally:
                self.waiting.pop(call.call_id, None)

        schema = function.get("parameters") or {"type": "object", "properties": {}}
        about = str(function.get("description") or name)
        return Tool(name, about, schema, run, suspends=True, deadline_seconds=seconds)

    def answer(self, results: Mapping[str, str]) -> None:
        """Hand over results. Raises ConfigError where a call that waits has none."""
        if missing := [call_id for call_id in self.waiting if call_id not in results]:
            raise ConfigError(f"the request: no result of the call {missing[0]!r}, which waits; send all at once")
        self.called.clear()
        for call_id, (_, future) in list(self.waiting.items()):
            if not future.done():
                future.set_result(results[call_id])


@dataclass(eq=False)
class ClientSession:
    """One request, or a conversation of several, while the client runs tools of its own."""

    request_id: str
    account: str
    model: str
    policy: str
    running: Solving
    client: ClientTools
    began: float
    ignored: Sequence[str] = ()
    task: asyncio.Task[Solution] | None = None
    told_nano_usd: int = 0
    expires: asyncio.TimerHandle | None = None
    watch: Callable[[str], None] | None = None
    """Is told each step, in words."""
    own_alone: bool = False
    state: str = "waits for a place"
    """What it does at the moment, in words."""
