"""The served policies as an MCP server: other agents ask them, see prices, and what is left of their key."""

from __future__ import annotations

from typing import Any

from toolorchestra.agents.serving.accounts import Refused
from toolorchestra.agents.serving.service import PolicyService
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import NANO, tool_price

try:  # up here, since the SDK reads the tools' annotations
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.transport_security import TransportSecuritySettings
except ImportError:  # not installed, or of another major version
    MCPServer = None  # type: ignore[assignment,misc]

PATH = "/mcp"
_ABOUT = "Answers questions by calling tools and models, and pays for each call. Every answer has its cost."


def mcp_app(service: PolicyService) -> Any:
    """The ASGI application under PATH, by the official SDK; None where that is not installed."""
    if MCPServer is None:
        return None
    server = MCPServer("toolorchestra", instructions=_ABOUT, log_level="WARNING")

    def account_of(context: Context) -> str:
        try:
            return service.accounts.who((context.headers or {}).get("authorization", ""))
        except Refused as err:
            raise ToolError(str(err)) from None

    async def ask(
        question: str, context: Context, model: str = "", budget_usd: float | None = None, preference: str = ""
    ) -> dict[str, Any]:
        """Answer a question. The bill comes with the answer. `budget_usd` limits what it may cost."""
        body: dict[str, Any] = {
            "model": model or next(iter(service.solvers)),
            "messages": [{"role": "user", "content": question}],
        }
        body |= {"budget_usd": budget_usd, "preference": preference or None}
        try:
            reply = await service.reply(await service.begin(body, account_of(context)))
        except (ConfigError, Refused) as err:
            raise ToolError(str(err)) from None
        usage = reply.usage
        told = {"answer": reply.text, "ended": reply.ended, "cost_usd": usage["cost"], "calls": usage["calls"]}
        return {**told, "cost_by_role": usage["cost_by_role"], "failure": reply.failure}

    async def prices(context: Context, model: str = "") -> dict[str, str]:
        """Tell what the models and services behind a policy cost."""
        account_of(context)  # as /v1/models does, it asks for a key
        factory = service.solvers[service.policy_of(model or next(iter(service.solvers)))[0]].factory
        config = getattr(factory.source, "config", None)
        items = [factory.settings.orchestrator, *(config.models if config is not None else ())]
        return {item: tool_price(factory.sheet, (item,)) for item in items}

    async def budget_left(context: Context) -> dict[str, float | None]:
        """Tell what this key may still spend, in dollars; null: no limit."""
        name = account_of(context)
        used = next(one for one in await service.books.aside(service.accounts.accounts) if one.name == name)
        limit = service.accounts.limit_of(name)
        left = None if limit is None else limit - (used.spent + used.held) / NANO
        return {"usd": left, "spent_usd": used.spent / NANO}

    for function in (ask, prices, budget_left):
        server.add_tool(function)
    # The SDK answers under names of the loopback alone, which keeps pages of other sites out. Keys do that too, and a
    # server with keys has a name of its own.
    checked = TransportSecuritySettings(enable_dns_rebinding_protection=False) if service.accounts.keys else None
    return server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=checked)
