"""Playing the tests' own sources in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolorchestra.envs.base.actions import render, render_call
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.vector import OrchestraVectorEnv

ADD = render_call("add", {"a": 1, "b": 2})
FREE = {"preference": "none"}
"""No preference in the system message, so that what a turn costs depends on the test alone."""
HLE = "toolorchestra.envs.domains.hle.source:HleSource"


def env_of(source: Any, **settings: Any) -> OrchestraEnv:
    """An environment, reset: over a source of tests.sources by its short name, or over any other."""
    env = OrchestraEnv(source if ":" in str(source) else f"tests.sources:{source}Source", **settings)
    env.reset(seed=0)
    return env


def step(env: OrchestraEnv, *calls: ToolCall | str) -> Step:
    """One turn: a text, or some calls at once."""
    if len(calls) == 1 and isinstance(calls[0], str):
        return Step(*env.step(calls[0]))
    return Step(*env.step(render([c for c in calls if isinstance(c, ToolCall)])))


def usage_of(charge: Mapping[str, Any]) -> Usage:
    """What was used, of a charge as `info["charges"]` has it."""
    tokens = Tokens(**charge["tokens"])
    return Usage(charge["item"], charge["role"], tokens, charge["units"], charge["seconds"], charge["estimated"])


def vector_of(name: str, num_envs: int = 3, **settings: Any) -> OrchestraVectorEnv:
    """A vector environment over a source of tests.sources, reset."""
    env = OrchestraVectorEnv(num_envs, f"tests.sources:{name}Source", **{**FREE, **settings})
    env.reset(seed=0)
    return env
