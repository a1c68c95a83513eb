"""The ids in calls: what a path works on, and what an agent has touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolorchestra.envs.domains.toolscale.domain import GoldCall
from toolorchestra.envs.domains.toolscale.tool_runs import Called

_ID = "_id"


def entities(path: Iterable[GoldCall]) -> set[str]:
    """The ids among a path's arguments, those of rows that the path itself made included."""
    return {
        value
        for action in path
        for name, value in action.arguments.items()
        if name.endswith(_ID) and isinstance(value, str)
    }


def touched(calls: Iterable[Called]) -> set[str]:
    """Every id in the arguments and results of calls."""
    seen: set[str] = set()
    for called in calls:
        _collect(called.arguments, seen)
        _collect(called.value, seen)
    return seen


def _collect(value: Any, seen: set[str]) -> None:
    if type(value) is dict or isinstance(value, Mapping):  # the first is told much sooner, and nearly always so
        for name, part in value.items():
            if isinstance(part, str):
                if name.endswith(_ID):
                    seen.add(part)
            elif part is not None and not isinstance(part, int | float):
                _collect(part, seen)
    elif isinstance(value, list):
        for part in value:
            _collect(part, seen)
