"""Turns a tool configuration, a price sheet and backends into a toolbox: the prices shown are the prices billed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.models import ChatModel
from toolorchestra.envs.models.endpoints import ANY, Endpoints
from toolorchestra.envs.money.prices import PriceSheet, brief_offer, item_prices, offer_line
from toolorchestra.envs.retrieval import Retriever, items_of
from toolorchestra.envs.sandbox import Interpreter
from toolorchestra.envs.tools import Offer, Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.code import Code, Computed
from toolorchestra.envs.tools.mcp_servers import McpServer, tools_of
from toolorchestra.envs.tools.question_material import Experts
from toolorchestra.envs.tools.search import Search, SearchSettings, WebSearch
from toolorchestra.envs.tools.tool_config import ToolConfig, ToolEntry

LOCAL_INDEX = "local-index"
LOCAL_SECONDS = 0.2


@dataclass(frozen=True)
class Backends:
    """What stands behind the tools."""

    models: ChatModel
    retriever: Retriever
    interpreter: Interpreter
    search: SearchSettings
    web: Retriever | None = None
    """What `web_search` asks; None: the retriever. Where they are the same, every search is one of the web."""
    endpoints: Endpoints | None = None
    """Where the models' own prices stand."""
    judges: tuple[str, ...] = ()
    """The models that grade; none: answers are graded by rule."""
    cassette: Cassette | None = None
    """What calls of MCP servers are recorded on, or replayed from."""
    deadline_seconds: float = 120.0
    """Deadline of a tool's call; what stands behind it has nearer ones."""

    def priced(self, sheet: PriceSheet, config: ToolConfig) -> PriceSheet:
        """The sheet with the prices of the endpoint file."""
        if self.endpoints is None:
            return sheet
        own = [name for name in self.endpoints.models if name != ANY]
        asked = [name for name in (*config.models, *items_of(self.retriever)) if self.endpoints.names(name)]
        return self.endpoints.priced(sheet, list(dict.fromkeys([*asked, *self.judges, *own])))


Run = tuple[Callable[..., Any], dict[str, str], tuple[str, ...], bool]
"""What runs, what is said of its arguments beside `model`, the other items billed, and whether it suspends."""
_ANSWER = "Answer the question. Give the final answer alone inside <answer></answer>."
ANSWER_CHARACTERS = 2000


def _search(entry: ToolEntry, backends: Backends) -> Search:
    seconds = entry.seconds or LOCAL_SECONDS
    if backends.retriever is backends.web:
        return WebSearch(backends.retriever, backends.search, seconds)
    return Search(backends.retriever, backends.search, LOCAL_INDEX, seconds)


def _of_models(entry: ToolEntry, backends: Backends) -> Run:
    """The run of a tool that offers models."""
    experts = Experts(backends.models, {offer.alias: offer.model for offer in entry.offers})
    search, code, suspends = _search(entry, backends), Code(backends.interpreter), backends.models.suspends

    async def look_up(context: ToolContext, model: str) -> ToolResult:
        return await search.written(context, experts, model)

    async def compute(context: ToolContext, model: str) -> ToolResult:
        return await code.written(context, experts, model)

    async def ask(context: ToolContext, model: str, question: str = "") -> ToolResult:
        """An expert answers; the agent decides what to do with it."""
        said = await experts.say(context, model, "answer", _ANSWER, question)
        return ToolResult(final_answer(said)[:ANSWER_CHARACTERS])

    async def answer(context: ToolContext, model: str) -> ToolResult:
        """An expert gives the final answer."""
        result = await ask(context, model)
        return result._replace(final=True, note=result.content)

    runs: Mapping[str, Run] = {
        "search": (look_up, {}, search.items, suspends or backends.retriever.suspends),
        "enhance_reasoning": (compute, {}, (code.interpreter.item,), suspends or code.interpreter.suspends),
        "ask": (ask, {"question": "Left out: the task itself is asked."}, (), suspends),
        "answer": (answer, {}, (), suspends),
    }
    return runs[entry.kind]


def _of_the_agent(entry: ToolEntry, backends: Backends) -> Run:
    """The run of a tool that takes the agent's own query, program or answer."""
    web = entry.kind == "web_search"
    retriever, code = (web and backends.web) or backends.retriever, Code(backends.interpreter)
    search = WebSearch(retriever, backends.search, entry.seconds) if web else _search(entry, backends)

    def submit(_context: ToolContext, answer: str) -> ToolResult:
        return ToolResult(answer, final=True, note=answer)

    if entry.kind == "python":
        return code.given, {"code": "The program."}, (code.interpreter.item,), code.interpreter.suspends
    if entry.kind == "submit":
        return submit, {"answer": "The final answer."}, (), False
    return search.asked, {"query": "What to search for."}, search.items, retriever.suspends


def assemble(config: ToolConfig, sheet: PriceSheet, backends: Backends) -> Toolbox:
    """The toolbox. Every item that it could bill must have a price on the sheet."""
    tools = [
        tool
        for entry in config.tools
        for tool in (_of_server(entry, sheet, backends) if entry.mcp else [_tool(entry, config, sheet, backends)])
    ]
    sheet.require({item for t in tools for item in t.bills}, f"tool configuration {config.name!r}")
    return Toolbox(tools)


def _of_server(entry: ToolEntry, sheet: PriceSheet, backends: Backends) -> list[Tool]:
    """The tools of an MCP server, whose results experts are shown as those of programs are."""

    def noted(run: Callable[..., Any]) -> Callable[..., Any]:
        async def with_note(context: ToolContext, /, **arguments: Any) -> ToolResult:
            result: ToolResult = await run(context, **arguments)
            return result._replace(note=Computed(result.content))

        return with_note

    server = McpServer(entry.mcp) if isinstance(entry.mcp, str) else entry.mcp
    tools = [replace(one, run=noted(one.run)) for one in tools_of(server, backends.cassette)]
    return list(Toolbox(tools).priced(sheet))


def _tool(entry: ToolEntry, config: ToolConfig, sheet: PriceSheet, backends: Backends) -> Tool:
    run, said, items, suspends = (_of_models if entry.offers else _of_the_agent)(entry, backends)
    properties: dict[str, Any] = {
        name: {"type": "string", "maxLength": 8000, "description": text} for name, text in said.items()
    }
    required = [name for name in properties if name != "question"]
    if entry.offers:
        aliases = [o.alias for o in entry.offers]
        properties = {"model": {"type": "string", "enum": aliases, "description": "Which model."}, **properties}
        required = ["model", *required]
    models = tuple(dict.fromkeys(o.model for o in entry.offers))
    sheet.require_tokens(models, f"tool {entry.name!r}")
    sheet.require(items, f"tool {entry.name!r}")
    return Tool(
        entry.name,
        _describe(entry, config, sheet, backends, items),
        {"type": "object", "properties": properties, "required": required},
        run,
        bills=(*models, *items),
        keyed_by="model" if entry.offers else "",
        offers=entry.offers,
        suspends=suspends,
        deadline_seconds=backends.deadline_seconds,
        kind=entry.kind,
    )


def _told(offer: Offer, config: ToolConfig, endpoints: Endpoints | None) -> tuple[str, float]:
    """What an agent is told of a model, and of its time: what the endpoint file says, else the configuration. What is
    known of a simulated model is not said of a real one that has its name."""
    if endpoints is None or not endpoints.names(offer.model):
        return offer.note, offer.seconds
    served = endpoints.served(offer.model)
    note, seconds = ("", 0.0) if config.of_simulated else (offer.note, offer.seconds)
    return served.note or note, served.typical_seconds or seconds


def _describe(
    entry: ToolEntry, config: ToolConfig, sheet: PriceSheet, backends: Backends, items: tuple[str, ...]
) -> str:
    if config.style == "brief":
        cheapest_first = sorted(entry.offers, key=lambda o: (sheet.price(o.model).pico_usd_per_token or (0, 0, 0))[2])
        brief = [brief_offer(sheet, o.alias, o.model, o.seconds) for o in cheapest_first]
        return ";".join(brief) or entry.name
    lines = [entry.description]
    if entry.kind == "python":
        lines.append(f"It runs {backends.interpreter.describe}.")
    for offer in entry.offers:
        note, seconds = _told(offer, config, backends.endpoints)
        time = f"about {seconds:g} s a call" if seconds else ""
        lines.append(offer_line(sheet, offer.alias, offer.model, note, time))
    if entry.offers and (extra := [item for item in items if not sheet.price(item).free]):
        lines.append(f"Each call also pays {item_prices(sheet, extra)}")
    if not entry.offers:
        lines.append(f"Price: {item_prices(sheet, items) or 'nothing'}; about {entry.seconds:g} s a call.")
    return "\n".join(lines)
