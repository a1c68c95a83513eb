"""What SkyRL imports. Nothing here calls it."""

from __future__ import annotations

from typing import Any


def launch_router(*_: Any, **__: Any) -> Any:
    """Not without vLLM."""
    raise RuntimeError("vllm-router is not installed: this stands in for it in tests")
