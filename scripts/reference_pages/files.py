"""The files that a user writes: price sheet, tool configuration, simulated models, backends, servers."""

from __future__ import annotations

from reference_pages.documented import cell, code, fields_table, page, table
from toolorchestra.agents.serving.expert_servers import Server
from toolorchestra.envs.models import ContextLimits
from toolorchestra.envs.models.endpoints import Endpoint, Served
from toolorchestra.envs.models.simulated import Skill
from toolorchestra.envs.money.prices import sheet_names
from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.tools import Offer
from toolorchestra.envs.tools.backends import TABLES
from toolorchestra.envs.tools.tool_config import KINDS, ToolEntry

SHEET = {
    "id": "The sheet's name, as charges and runs have it.",
    "date": "From when its prices are.",
    "source": "Where they are from.",
    "prices": "One row for each item: every model, search service and sandbox that can be billed, and the orchestrator.",
}
ROW = {
    "usd_per_mtok": "Dollars for a million tokens: `input` and `output`; `cached` and `reasoning` where they differ from those.",
    "usd_per_unit": "Dollars for a search, a page, ...",
    "usd_per_second": "Dollars for a second.",
    "free": "Why it costs nothing, in words. A row has this or prices, never both.",
}
TABLES_SAY = {
    "endpoints": "Servers, `[endpoints.NAME]`.",
    "models": "Models as they are served, `[models.NAME]`.",
    "judge": "Who grades answers that no rule grades.",
    "retrieval": "What is searched.",
    "sandbox": "What runs programs.",
    "cassette": "Record, replay or cache.",
}
JUDGE = {
    "models": "Names of the table `models`; several must all say right.",
    "verdicts": "A file that keeps verdicts, so that a known one costs nothing.",
}
RETRIEVAL = {
    "index": 'A folder that `toolorchestra index` made, the address of a served one, or `"embedded"`.',
    "web": "true: `web_search` asks Tavily, with the key in `TAVILY_API_KEY`.",
    "web_url": "Another address for it.",
}
SANDBOX = {
    "kind": "`landlock`, `monty`, `e2b`, `arithmetic`; `unsafe-exec` only together with `--unsafe-exec`.",
    "sessions": "true: an episode's programs share one process with its names.",
    "bubblewrap": "false: no namespaces, also where bwrap could make them.",
}
CASSETTE = {"path": "The file.", "mode": "`record`, `replay` or `cache`."}


def _keys(keys: dict[str, str]) -> str:
    return table(("key", "meaning"), [(code(name), cell(text)) for name, text in keys.items()])


def files() -> str:
    kinds = [(code(kind), "yes" if models else "no") for kind, models in KINDS.items()]
    about = (
        "The files that you can write, key by key. A key that does not exist is refused with the names of those that do. "
        "Examples: [your own tools](../own-tools.md), [the backends file](../real-tools.md#the-backends-file), "
        "[serving](../serving.md)."
    )
    assert set(TABLES_SAY) == set(TABLES)
    return page(
        "Files of yours",
        about,
        "## The price sheet",
        f"JSON. `prices=FILE`, or the name of a packaged one: {', '.join(map(code, sheet_names()))}.",
        _keys(SHEET),
        "A row of `prices`:",
        _keys(ROW),
        "## The tool configuration",
        'JSON, `tools=FILE`: `{"name": ..., "tools": [...]}`. A tool:',
        fields_table(ToolEntry),
        "An offer, of a tool whose kind offers models:",
        fields_table(Offer),
        "The kinds:",
        table(("kind", "offers models"), kinds),
        "## Simulated models",
        'JSON, `simulated=FILE`: `{"models": {NAME: {...}}}`. Every key has to be there:',
        fields_table(Skill),
        "## The backends file",
        "TOML or JSON, `backends=FILE`. Its tables:",
        _keys(TABLES_SAY),
        "### endpoints",
        fields_table(Endpoint, without=["name"]),
        "### models",
        fields_table(Served, without=["name"]),
        "`shown` has these keys, in characters:",
        fields_table(ContextLimits),
        "### judge",
        _keys(JUDGE),
        "### retrieval",
        _keys(RETRIEVAL),
        "### sandbox",
        _keys(SANDBOX),
        "And its limits:",
        fields_table(Bounds),
        "### cassette",
        _keys(CASSETTE),
        "## The servers file",
        "TOML, of `toolorchestra serve-experts`: one table `[servers.NAME]` for each server.",
        fields_table(Server, without=["name"]),
    )
