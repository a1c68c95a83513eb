"""The ids: one table, registered with Gymnasium by `import toolorchestra`. Importing this imports no environment."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, no_such

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.envs.registration import EnvSpec

NAMESPACE = "ToolOrchestra"
SOURCES: Mapping[str, str] = {
    "HLE-v0": "toolorchestra.envs.domains.hle.source:HleSource",
    "FRAMES-v0": "toolorchestra.envs.domains.frames.source:FramesSource",
    "ToolScale-v0": "toolorchestra.envs.domains.toolscale.source:ToolScaleSource",
    "Tau2-v0": "toolorchestra.envs.domains.tau2.source:Tau2Source",
}
"""Name in the namespace -> "module:Class" of its task source. A new source: a folder in domains/ and a line here."""
OF_YOUR_OWN: Mapping[str, str] = {
    "GAIA-v0": "toolorchestra.envs.domains.gaia.source:GaiaSource",
    "Recorded-v0": "toolorchestra.envs.domains.recorded.source:RecordedSource",
}
"""Ids that need data of yours, given to gym.make: they have no tasks without it."""
DEFAULTS: Mapping[str, Mapping[str, object]] = {"Tau2-v0": {"max_turns": 100}}
"""What an id has otherwise than the others: τ²-Bench's 200 steps are 100 turns, each with its answer."""


def ids() -> list[str]:
    """The ids that `gym.make` takes, such as "ToolOrchestra/HLE-v0"."""
    return [f"{NAMESPACE}/{name}" for name in SOURCES]


def full_id(name: str) -> str:
    """`HLE-v0` as `ToolOrchestra/HLE-v0`; an id of one's own stays as it is. Unknown ones are refused."""
    import gymnasium as gym

    if not isinstance(name, str):
        raise ConfigError(
            f"an environment is named by its id, such as 'HLE-v0', got {name!r:.60}; a source of yours gets an id by "
            "register(id, source)"
        )
    if ":" in name:  # "module:id", which gymnasium imports
        if not all(part.isidentifier() for part in name.rpartition(":")[0].split(".")):
            raise ConfigError(
                f"{name!r}: before the colon stands a module, as Python imports it and not as a path, such as "
                "my_env:Mine/MyEnv-v0; put its folder in PYTHONPATH"
            )
        return name
    own = name in gym.registry and "source" in gym.registry[name].kwargs
    env_id = name if own or "/" in name else f"{NAMESPACE}/{name}"
    if env_id in gym.registry:
        return env_id
    prefix = f"{NAMESPACE}/"
    known = [one.removeprefix(prefix) for one, spec in gym.registry.items() if "source" in spec.kwargs]
    hint = " One of your own is named with its module: my_env:Mine/MyEnv-v0" if "/" in name.removeprefix(prefix) else ""
    raise ConfigError(no_such("environment", name.removeprefix(prefix), known) + hint)


def make(name: str, **arguments: Any) -> Env[Any, Any]:
    """Make an environment by its id, as `gym.make` does; ids of this package need no "ToolOrchestra/"."""
    import gymnasium as gym

    return gym.make(full_id(name), **arguments)


def spec_of(name: str) -> EnvSpec:
    """What is registered under an id; of "module:id" the module is imported first."""
    import gymnasium as gym

    module, _, env_id = name.rpartition(":") if isinstance(name, str) else ("", "", name)
    if module:
        full_id(name)
        try:
            import_module(module)
        except ImportError as err:
            raise ConfigError(
                f"{name!r} names a module that cannot be imported: {err}; install it, or put its folder in PYTHONPATH"
            ) from err
    return gym.spec(full_id(env_id))


def register(env_id: str, source: str | type, **defaults: object) -> None:
    """Register a task source of your own, a class or its "module:Class", under an id of your own, with defaults of
    gym.make's arguments where they are to be others. Of the same source again, the last ones hold."""
    import gymnasium as gym

    if not (isinstance(env_id, str) and isinstance(source, str | type)):
        raise ConfigError(
            f"register takes an id and a source, such as register('Coins-v0', Coins), got {env_id!r:.40} and "
            f'{source!r:.60}; give the class of a Source, or its "module:Class"'
        )
    if env_id in SOURCES or env_id in OF_YOUR_OWN:
        raise ConfigError(f"{env_id!r} is {NAMESPACE}/{env_id} for short; take another id, such as 'Mine/{env_id}'")
    if isinstance(source, type):
        if "." in source.__qualname__:
            raise ConfigError(
                f"{source.__qualname__} is made inside something else, where gym.make cannot load it; define the class "
                "at the top of a module"
            )
        source = f"{source.__module__}:{source.__qualname__}"
    if env_id in gym.registry:
        taken = gym.registry[env_id].kwargs.get("source")
        if taken != source:
            raise ConfigError(f"{env_id!r} is registered for {taken!r} already; take another id for {source!r}")
        del gym.registry[env_id]  # gymnasium warns of what it writes over
    gym.register(
        id=env_id,
        entry_point="toolorchestra.envs.env:OrchestraEnv",
        vector_entry_point="toolorchestra.envs.vector:OrchestraVectorEnv",
        kwargs={"source": source, **defaults},
        # Both checks are the episode's own here; the wrappers would cost each step more than the step itself.
        order_enforce=False,
        disable_env_checker=True,
    )


def register_all() -> None:
    """Register this package's ids with Gymnasium. `import toolorchestra` does it."""
    for name, source in {**SOURCES, **OF_YOUR_OWN}.items():
        register(f"{NAMESPACE}/{name}", source, **DEFAULTS.get(name, {}))
