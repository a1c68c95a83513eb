"""ToolOrchestra: Gymnasium environments for tool orchestration, and an agent trainer. Importing registers the ids.

    import toolorchestra as to

gives all that code of your own needs; each name is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.registration import make, register, register_all

if TYPE_CHECKING:
    from toolorchestra.agents.configuration.config import TrainConfig
    from toolorchestra.agents.policies.base import Player
    from toolorchestra.agents.public import compare, evaluate, load_policy, train
    from toolorchestra.envs.base.actions import parse, render_call
    from toolorchestra.envs.base.errors import ConfigError, ToolError
    from toolorchestra.envs.base.openai_messages import action_of, from_openai, to_native, to_openai
    from toolorchestra.envs.base.preference import Preference
    from toolorchestra.envs.base.types import Answer, Message, Outcome, ToolCall
    from toolorchestra.envs.domains.source import Scene, Source, Task
    from toolorchestra.envs.domains.world import World
    from toolorchestra.envs.models import ChatRequest, Completion
    from toolorchestra.envs.money.prices import PriceSheet, Tokens, Usage
    from toolorchestra.envs.testing import check_environment
    from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult, tool
    from toolorchestra.envs.tools.mcp_servers import mcp_tools
    from toolorchestra.envs.wrappers import RecordTrajectories

__version__ = "0.1.0"

_PLACES = {
    "agents.configuration.config": ("TrainConfig",),
    "agents.public": ("compare", "evaluate", "load_policy", "train"),
    "agents.policies.base": ("Player",),
    "envs.base.actions": ("parse", "render_call"),
    "envs.base.errors": ("ConfigError", "ToolError"),
    "envs.base.openai_messages": ("action_of", "from_openai", "to_native", "to_openai"),
    "envs.base.preference": ("Preference",),
    "envs.base.types": ("Answer", "Message", "Outcome", "ToolCall"),
    "envs.domains.source": ("Scene", "Source", "Task"),
    "envs.domains.world": ("World",),
    "envs.models": ("ChatRequest", "Completion"),
    "envs.money.prices": ("PriceSheet", "Tokens", "Usage"),
    "envs.testing": ("check_environment",),
    "envs.tools": ("Tool", "ToolContext", "ToolResult", "Toolbox", "tool"),
    "envs.tools.mcp_servers": ("mcp_tools",),
    "envs.wrappers": ("RecordTrajectories",),
}
"""Where the public names stand."""
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Answer",
    "ChatRequest",
    "Completion",
    "ConfigError",
    "Message",
    "Outcome",
    "Player",
    "Preference",
    "PriceSheet",
    "RecordTrajectories",
    "Scene",
    "Source",
    "Task",
    "Tokens",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "TrainConfig",
    "Usage",
    "World",
    "action_of",
    "check_environment",
    "compare",
    "evaluate",
    "from_openai",
    "load_policy",
    "make",
    "mcp_tools",
    "parse",
    "register",
    "render_call",
    "to_native",
    "to_openai",
    "tool",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        from toolorchestra.envs.base.errors import no_such

        raise AttributeError(f"toolorchestra: {no_such('public name', name, __all__)}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_all()
