"""The Python API, from docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from reference_pages.documented import page
from reference_pages.environments import as_markdown

PUBLIC: dict[str, tuple[str, ...]] = {
    "toolorchestra.envs": (
        "render_call", "action_of", "from_openai", "to_openai", "to_native", "to_hermes", "hermes_prompt",
    ),
    "toolorchestra.envs.env": ("OrchestraEnv",),
    "toolorchestra.envs.vector": ("OrchestraVectorEnv",),
    "toolorchestra.envs.factory": ("factory", "EpisodeFactory", "episode_seeds"),
    "toolorchestra.envs.registration": ("register", "ids"),
    "toolorchestra.envs.tools": ("tool", "Tool", "ToolResult", "ToolContext", "Toolbox", "Offer"),
    "toolorchestra.envs.money.prices": ("PriceSheet", "Price", "Usage", "Tokens", "Charge", "load_sheet"),
    "toolorchestra.envs.money.ledger": ("Ledger",),
    "toolorchestra.envs.money.spend_cap": ("SpendCap",),
    "toolorchestra.envs.base.preference": ("Preference",),
    "toolorchestra.envs.base.errors": ("ConfigError", "PriceError", "ToolError", "ResetNeeded", "Outage", "SpendCapReached"),
    "toolorchestra.envs.models": ("ChatModel", "ChatRequest", "Completion"),
    "toolorchestra.envs.domains.source": ("TaskSource", "Scene"),
    "toolorchestra.envs.testing": ("check_environment",),
    "toolorchestra.envs.runtime.driver": ("advance",),
    "toolorchestra.agents.engines.base": ("Engine", "LossParams"),
    "toolorchestra.agents.rollouts.rewards": ("GroupReward", "Measure"),
    "toolorchestra.agents.rollouts.group_reward": ("preference_reward",),
}  # fmt: skip
"""What is promised to stay: modules, and the names in them."""


def python_api() -> str:
    parts = []
    for path, names in PUBLIC.items():
        module = import_module(path)
        parts.append(f"## {path}")
        for name in names:
            parts += _entry(name, getattr(module, name))
    about = (
        "The public names, with the docstrings of the code. Wrappers are on [a page of their own](wrappers.md), and so are the "
        "arguments of [gym.make](gym-make.md). Everything else may change without notice."
    )
    return page("Python API", about, *parts)


def _entry(name: str, thing: Any) -> list[str]:
    made = [f"### {name}"]
    if not (inspect.isclass(thing) and (_is_protocol(thing) or issubclass(thing, Exception))):
        made.append(f"```text\n{name}{_signature(thing)}\n```")
    made.append(as_markdown(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing):
        for method, value in vars(thing).items():
            if method.startswith("_") or not _documented(value):
                continue
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            told = method if isinstance(value, property) else f"{method}{_signature(function, bound=True)}"
            made.append(f"- `{told}`: {' '.join((inspect.getdoc(function) or '').split())}")
    return _lists_together(made)


def _lists_together(parts: list[str]) -> list[str]:
    """The lines of a list as one part."""
    items = [part for part in parts if part.startswith("- `")]
    return [part for part in parts if not part.startswith("- `")] + (["\n".join(items)] if items else [])


def _documented(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return (inspect.isfunction(function) or isinstance(value, property)) and bool(inspect.getdoc(function))


def _is_protocol(thing: type) -> bool:
    return bool(getattr(thing, "_is_protocol", False))


def _signature(thing: Any, bound: bool = False) -> str:
    parts, named = [], False
    for one in inspect.signature(thing).parameters.values():
        if bound and one.name in ("self", "cls"):
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not named:
            parts.append("*")
        named = named or one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is inspect.Parameter.empty else f": {one.annotation}"
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        parts.append(f"{stars}{one.name}{kind}{default}")
    return f"({', '.join(parts)})"
