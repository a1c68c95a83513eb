"""The tools that an agent is given in a domain, and how its calls are checked before the domain sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.domain import DomainTool, Tau2Domain
from toolorchestra.envs.domains.tau2.schemas import outer
from toolorchestra.envs.domains.tau2.user_and_judge_models import BilledModel
from toolorchestra.envs.money.prices import PriceSheet, offer_line
from toolorchestra.envs.tools import Offer, Tool, Toolbox, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolorchestra.envs.domains.tau2.world import Tau2World

DONE = "done"
EXPERT = "call_expert"
_EXPERT_SECONDS = 30.0


class DomainToolbox(Toolbox):
    """Checks the names and kinds of arguments; the insides of records are the domain's, as the benchmark has it. What
    is hidden can be called, and only its domain checks it."""

    __slots__ = ("_hidden", "_outer", "_whole")

    def __init__(self, tools: Iterable[Tool], hidden: Iterable[Tool] = ()) -> None:
        super().__init__(tools)
        self._hidden = {t.name: t for t in hidden}
        self._outer = {t.name: Checker(outer(t.parameters)) for t in self.tools}
        self._whole: Mapping[str, Sequence[str]] = {
            t.name: [name for name, part in t.parameters["properties"].items() if part.get("type") == "integer"]
            for t in self.tools
        }

    def check(self, call: ToolCall) -> Tool:
        if call.name not in self:
            return self._hidden.get(call.name) or super().check(call)
        self._outer[call.name].check(call.arguments, call.name)
        for name in self._whole[call.name]:
            value = call.arguments.get(name)
            if type(value) is float and not value.is_integer():
                raise ToolError(f"{name} must be integer, got float {value!r:.60}")
        return self[call.name]

    def only(self, names: Sequence[str] | None) -> Self:
        """The named tools; what is hidden stays so, and can be called."""
        kept = super().only(names)
        kept._hidden = self._hidden
        return kept


NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def build_toolbox(
    domain: Tau2Domain,
    sheet: PriceSheet,
    experts: Mapping[str, BilledModel],
    *,
    suspends: bool,
    deadline_seconds: float,
) -> DomainToolbox:
    """The domain's tools; the user's and `done` too for one who works alone; `call_expert` where there are experts, who
    may wait, together with the user, for so long."""
    tools = [_domain_tool(tool) for tool in (*domain.tools, *(domain.user_tools if domain.solo else ()))]
    if domain.solo:
        tools.append(Tool(DONE, "Says that the ticket is solved, and ends the work.", NO_ARGUMENTS, _finish))
    if experts:
        tools.append(_expert_tool(experts, sheet, suspends, deadline_seconds))
    return DomainToolbox(tools, [_domain_tool(DomainTool(name, "", NO_ARGUMENTS)) for name in domain.hidden])


_UNDESCRIBED = {
    "set_network_mode_preference": {"mode": "The network mode to prefer."},
    "check_app_status": {"app_name": "Which app."},
    "check_app_permissions": {"app_name": "Which app."},
}
"""What the benchmark says nothing of. Some trainers refuse a tool with an argument that nobody describes."""


def _domain_tool(tool: DomainTool) -> Tool:
    name = tool.name
    parameters: dict[str, Any] = {**tool.parameters}
    for argument, text in _UNDESCRIBED.get(name, {}).items():
        if argument in parameters["properties"]:
            said = {"description": text, **parameters["properties"][argument]}
            parameters["properties"] = {**parameters["properties"], argument: said}

    def run(context: ToolContext, /, **arguments: Any) -> ToolResult:
        world: Tau2World = context.world
        return world.act(context, ToolCall(name, arguments))

    return Tool(name, tool.description, parameters, run)


def _finish(context: ToolContext) -> ToolResult:
    world: Tau2World = context.world
    return world.finish()


def _expert_tool(
    experts: Mapping[str, BilledModel], sheet: PriceSheet, suspends: bool, deadline_seconds: float
) -> Tool:
    lines = ["Hands this one move to an expert, who sees the conversation and the other tools and acts in your place."]
    lines += [offer_line(sheet, alias, hired.item, hired.item) for alias, hired in experts.items()]
    alias = {"type": "string", "enum": list(experts), "description": "Which expert moves."}

    async def run(context: ToolContext, expert: str) -> ToolResult:
        world: Tau2World = context.world
        return await world.consult(context, expert)

    return Tool(
        EXPERT,
        "\n".join(lines),
        {"type": "object", "properties": {"expert": alias}, "required": ["expert"]},
        run,
        bills=tuple(dict.fromkeys(hired.item for hired in experts.values())),
        keyed_by="expert",
        offers=tuple(Offer(name, hired.item, _EXPERT_SECONDS) for name, hired in experts.items()),
        suspends=suspends,
        deadline_seconds=deadline_seconds,
        in_order=True,
    )
