"""OpenTelemetry spans of served requests, by the conventions for generative AI: invoke_agent, execute_tool, chat.

They go wherever the process's tracer sends them: `opentelemetry-instrument toolorchestra serve ...` sets one up.
"""

from __future__ import annotations

from typing import Any

from toolorchestra.agents.serving.service import Ended
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR


class Spans:
    """Makes the spans of a request when it has ended. Texts are left out."""

    def __init__(self) -> None:
        from opentelemetry import trace

        self._trace, self._tracer = trace, trace.get_tracer("toolorchestra")

    def __call__(self, ended: Ended) -> None:
        """Tell of a request: its agent, the calls of tools, and the models behind them."""
        end = round(ended.at * NANO)
        start = end - round(ended.seconds * NANO)
        about: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": ended.policy,
            "gen_ai.request.model": ended.model,
            "gen_ai.conversation.id": ended.request_id,
            "toolorchestra.ended": ended.ended,
            "toolorchestra.cost_usd": ended.usd,
            "enduser.id": ended.account,
        }
        root = self._tracer.start_span(f"invoke_agent {ended.policy}", attributes=about, start_time=start)
        if ended.failure:
            root.set_status(self._trace.StatusCode.ERROR, ended.failure)
        inside = self._trace.set_span_in_context(root)
        at = start
        for charge in ended.trajectory.get("charges", ()):
            until = min(end, at + round(charge["seconds"] * NANO))
            self._of_charge(charge, inside, at, until)
            at = until
        root.end(end)

    def _of_charge(self, charge: dict[str, Any], inside: Any, start: int, end: int) -> None:
        """A call of a tool with the model behind it; a turn of the policy is a chat alone. Calls of one turn stand one
        after the other, since a charge does not say when it began."""
        if charge["role"] != ORCHESTRATOR:
            name = charge["tool"]
            told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            outer = self._tracer.start_span(f"execute_tool {name}", inside, attributes=told, start_time=start)
            inside = self._trace.set_span_in_context(outer)
        tokens = charge["tokens"]
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": charge["item"],
            "gen_ai.usage.input_tokens": tokens["input"] + tokens["cached"],
            "gen_ai.usage.output_tokens": tokens["output"] + tokens["reasoning"],
            "toolorchestra.role": charge["role"],
            "toolorchestra.cost_usd": charge["nano_usd"] / NANO,
        }
        if any(tokens.values()):
            self._tracer.start_span(f"chat {charge['item']}", inside, attributes=about, start_time=start).end(end)
        if charge["role"] != ORCHESTRATOR:
            outer.end(end)
