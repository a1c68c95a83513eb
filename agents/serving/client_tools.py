"""A client's own tools, and the conversation that waits while the client runs them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolorchestra.agents.serving.openai_api import Call
from toolorchestra.agents.serving.solving import Solution, Solving
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult

ID_BYTES = 12
QUEUED, PARKED = "waits for a place", "waits for the client"
"""What a conversation does while it does not run."""
_LOOP = re.compile(r"(?:(?:chatcmpl|decision)-|call_)([0-9a-f]{24})(?:_|$)")


class ClientTools:
    """The client's own tools in one conversation: a call waits until the client sends its result."""

    def __init__(self, functions: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """`seconds`: the most that a request may take, so that a conversation ends before one of its calls does."""
        self.tools = [self._tool(function, seconds) for function in functions]
        self.waiting: dict[str, tuple[Call, asyncio.Future[str]]] = {}
        self.called = asyncio.Event()
        self._results: Mapping[str, str] = {}

    def _tool(self, function: Mapping[str, Any], seconds: float) -> Tool:
        name = str(function["name"])

        async def run(context: ToolContext, /, **arguments: Any) -> ToolResult:
            del context
            call = Call(f"call_{secrets.token_hex(ID_BYTES)}", name, arguments)
            result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.waiting[call.call_id] = (call, result)
            self.called.set()
            found = await result
            del self.waiting[call.call_id]  # one that its episode's end breaks off stays: its client may yet come
            return ToolResult(found, seconds=0.0)

        schema = function.get("parameters") or {"type": "object", "properties": {}}
        about = str(function.get("description") or name)
        return Tool(name, about, schema, run, suspends=True, deadline_seconds=seconds)

    def take(self, results: Mapping[str, str]) -> None:
        """Keep results until `answer`. Raises ConfigError where a call that waits has none."""
        if missing := [call_id for call_id in self.waiting if call_id not in results]:
            raise ConfigError(f"the request: no result of the call {missing[0]!r}, which waits; send all at once")
        self._results = results

    def answer(self) -> None:
        """Hand over the results that were taken."""
        self.called.clear()
        for call_id, (_, future) in list(self.waiting.items()):
            if not future.done():
                future.set_result(self._results[call_id])


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
    told: Solution | None = None
    """What it had come to when its client was told last."""
    expires: asyncio.TimerHandle | None = None
    watch: Callable[[str], None] | None = None
    """Is told each step, in words."""
    own_alone: bool = False
    loop: str = ""
    """Name of the tool loop that it is part of, which the ids of its calls carry: see loop_of."""
    whole: Toolbox | None = None
    """The tools of its episode, as they were before an expert was kept."""
    state: str = QUEUED
    """What it does at the moment, in words."""

    def offer(self, keep_experts: bool) -> None:
        """Offer the policy, for what follows on results of the client's, each tool with the expert that it asked last
        in this conversation; or all experts again."""
        episode = self.running.episode
        world: Any = episode.world  # each has a slot for its tools
        self.whole = self.whole or world.toolbox
        asked = [charge.tool for charge in reversed([*episode.ledger])] if keep_experts else []
        world.toolbox = Toolbox(_kept(tool, asked) for tool in self.whole)


def _kept(tool: Tool, asked: Sequence[str]) -> Tool:
    """A tool with the expert alone that was asked last; as it is where none was."""
    alias = next((key for key in asked if key in tool.keys), "") if tool.offers else ""
    if not alias:
        return tool
    arguments = tool.parameters["properties"]
    arguments = {**arguments, tool.keyed_by: {**arguments[tool.keyed_by], "enum": [alias]}}
    return replace(
        tool,
        description=f"{tool.description}\nThis conversation stays with {alias}.",
        parameters={**tool.parameters, "properties": arguments},
        offers=tuple(offer for offer in tool.offers if offer.alias == alias),
    )


def loop_of(ids: Iterable[str]) -> str:
    """The tool loop that ids of calls or of its first request name; "" where they name none."""
    return next((found[1] for one in ids if (found := _LOOP.match(one))), "")
