"""Environments: tasks, tools and money. No torch, and no network, at import; importing this imports no environment."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolorchestra.envs.base.actions import hermes_prompt, render_call
    from toolorchestra.envs.base.openai_messages import action_of, from_openai, to_hermes, to_native, to_openai

__all__ = ["action_of", "from_openai", "hermes_prompt", "render_call", "to_hermes", "to_native", "to_openai"]

_PLACES = {
    "render_call": "actions",
    "hermes_prompt": "actions",
    **dict.fromkeys(("action_of", "from_openai", "to_hermes", "to_native", "to_openai"), "openai_messages"),
}
"""Where the public names stand, in `base`. They are imported when somebody asks, as registering the ids needs none."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.base.{_PLACES[name]}"), name)
