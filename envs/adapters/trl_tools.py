"""TRL's other door, `environment_factory`: a class whose methods are the tools. It serves ids that give every task the
same tools, and whose tasks need no conversation; docs/trainers/trl.md says what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Literal

import gymnasium as gym

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.world import ENDS_THE_EPISODE
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.registration import spec_of

LOOKED_AT = 16
"""Tasks whose tools are compared before a run; the others are compared when their turn comes."""
KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class ToolMethods:
    """An episode for TRL, which calls its public methods: those that environment_factory() adds."""

    _id = ""
    _arguments: Mapping[str, Any] = {}
    _tools: Any = ()

    def __init__(self) -> None:
        made = gym.make(self._id, **self._arguments).unwrapped
        assert isinstance(made, OrchestraEnv)
        self._env, self._reward, self._over, self._failed = made, 0.0, False, False

    def reset(self, seed: int | None = None, **_row: Any) -> str:
        """What the model is told first: the `seed` column says which task."""
        observation, info = self._env.reset(seed=seed)
        if observation["tools"] != self._tools:
            raise ConfigError(_differ(self._id, info["task_id"]))
        self._reward, self._over, self._failed = 0.0, False, False
        return "\n\n".join(message["content"] for message in observation["messages"])

    def get_reward(self) -> float | None:
        """The environment's own; None, which TRL leaves out, where the episode failed."""
        return None if self._failed else self._reward

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._over:
            return "The episode is over."
        _, reward, terminated, truncated, info = self._env.step(render_call(name, arguments))
        self._over, self._failed = terminated or truncated, bool(info.get("failed"))
        self._reward += reward
        return "\n".join(message["content"] for message in info["new_messages"][1:])


def environment_factory(env_id: str, **arguments: Any) -> type[ToolMethods]:
    """For GRPOTrainer(environment_factory=). Refuses an id whose tasks have different tools, or a user to talk to."""
    env_id = spec_of(env_id).id
    env: Any = gym.make(env_id, **arguments).unwrapped
    tools = env.reset(seed=0)[0]["tools"]
    world = env.episode.world
    if not isinstance(world, QaWorld) and world.listener is not ENDS_THE_EPISODE:
        raise ConfigError(f"{env_id} has a user to talk to, and TRL's tool loop ends with plain words; use TrlRollouts")
    for seed in range(1, LOOKED_AT):
        observation, info = env.reset(seed=seed)
        if observation["tools"] != tools:
            raise ConfigError(_differ(env_id, info["task_id"]))
    methods = {tool["function"]["name"]: _method(tool["function"]) for tool in tools}
    return type(
        env_id.rpartition("/")[2], (ToolMethods,), {"_id": env_id, "_arguments": arguments, "_tools": tools, **methods}
    )


def _differ(env_id: str, task_id: str) -> str:
    return (
        f"{env_id}: the tools of {task_id} are not those of another task, and TRL reads tools from a class, once; use "
        "TrlRollouts, which gives each task its own"
    )


def _method(tool: Mapping[str, Any]) -> Callable[..., str]:
    """With the signature and the docstring from which TRL makes the tool's schema again."""
    properties, required = tool["parameters"].get("properties", {}), tool["parameters"].get("required", ())

    def call(self: ToolMethods, **given: Any) -> str:
        return self._call(tool["name"], given)

    kinds: dict[str, Any] = {}
    for name, schema in properties.items():
        kinds[name] = Literal[tuple(schema["enum"])] if "enum" in schema else KINDS.get(schema.get("type"), str)
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=Parameter.empty if name in required else None)
        for name, kind in kinds.items()
    ]
    signature = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters], return_annotation=str)
    told = "\n".join(f"    {name}: {properties[name].get('description', name)}" for name in properties)
    call.__name__ = call.__qualname__ = tool["name"]
    call.__doc__ = f"{tool['description']}\n\nArgs:\n{told}"
    call.__annotations__ = {**kinds, "return": str}
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
