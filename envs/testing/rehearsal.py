"""Playing an environment for inspection: a random caller, traces of what happened, and what a process holds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import gymnasium as gym

from toolorchestra.envs.base.actions import render, render_call
from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.random_values import random_value
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.source import Scene, TaskSource
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext
from toolorchestra.envs.vector import OrchestraVectorEnv

Policy = Callable[[Episode], str]
MALFORMED = ("", " \n", "<tool_call>", '<tool_call>{"name": 5}</tool_call>', "<tool_call>[1]</tool_call>")
NO_SUCH = "no_such_name_here"


class RandomCaller:
    """Calls any tools with any arguments that fit their schemas, at times two at once, and now and then talks."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def __call__(self, episode: Episode) -> str:
        tools = episode.world.toolbox.tools
        if not tools or self._rng.random() < 0.1:
            return self._rng.choice(("I think so.", "größer als π?", "<think>hm</think>Done."))
        chosen = self._rng.choices(tools, k=1 + (self._rng.random() < 0.2))
        return render([ToolCall(t.name, self.value(t.parameters)) for t in chosen])

    def value(self, schema: Mapping[str, Any]) -> Any:
        """Something that fits, and is soon done with; see random_values."""
        return random_value(schema, self._rng)


def unusable(episode: Episode) -> Iterator[str]:
    """Actions that nothing can be made of: empty, malformed, or calls that no tool takes."""
    yield from MALFORMED
    yield render_call(NO_SUCH, {})
    for tool in episode.world.toolbox:
        yield from (render_call(tool.name, arguments) for arguments in _misfits(tool) if not fits(tool, arguments))


def _misfits(tool: Tool) -> Iterator[dict[str, Any]]:
    if not tool.parameters.get("additionalProperties", False):
        yield {NO_SUCH: 1}
    if tool.parameters.get("required"):
        yield {}
    for name, part in tool.checker.arguments.items():
        if isinstance(part.get("type"), str) and part["type"] != "object":
            yield {**RandomCaller(0).value(tool.parameters), name: {}}


def fits(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool's schema takes the arguments."""
    try:
        tool.checker.check(arguments, tool.name)
    except ToolError:
        return False
    return True


class Trace(NamedTuple):
    """What was played: for each entry the action, or None for a reset, and what came of it."""

    seed: int
    actions: list[str | None]
    steps: list[Step]

    def episodes(self) -> Iterator[list[Step]]:
        """The steps of each episode, the reset's first."""
        starts = [k for k, action in enumerate(self.actions) if action is None]
        for start, end in zip(starts, chain(starts[1:], [len(self.steps)]), strict=True):
            yield self.steps[start:end]


@dataclass
class Rehearsal:
    """One environment id with its arguments, to be made and played as often as it takes."""

    env_id: str
    seeds: Sequence[int]
    episodes: int
    policy: Policy | None
    abandoned: int
    arguments: Mapping[str, Any]
    episodes_played: int = 0
    steps_played: int = 0

    def make(self, **changes: Any) -> OrchestraEnv:
        """A fresh environment, with some arguments changed."""
        env = gym.make(self.env_id, **{**self.arguments, **changes}).unwrapped
        if not isinstance(env, OrchestraEnv):
            raise TypeError(f"{self.env_id} makes a {type(env).__name__}; register it with registration.register()")
        return env

    def make_vector(self, num_envs: int) -> OrchestraVectorEnv:
        """Makes a new vector environment of the id."""
        made = gym.make_vec(
            self.env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **dict(self.arguments)
        )
        return cast(OrchestraVectorEnv, made.unwrapped)

    def chooser(self, seed: int) -> Policy:
        """The policy under which the environment is played."""
        return self.policy or RandomCaller(seed)

    def play(self, env: OrchestraEnv, seed: int, episodes: int | None = None) -> Trace:
        """Play some episodes, the first with this seed, the others as the environment goes on."""
        policy = self.chooser(seed)
        trace = Trace(seed, [], [])
        for number in range(episodes or self.episodes):
            observation, info = env.reset(seed=None if number else seed)
            trace.actions.append(None)
            trace.steps.append(Step(observation, 0.0, False, False, info))
            while not (trace.steps[-1].terminated or trace.steps[-1].truncated):
                action = policy(cast(Episode, env.episode))
                trace.actions.append(action)
                trace.steps.append(Step(*env.step(action)))
        self.episodes_played += episodes or self.episodes
        self.steps_played += len(trace.steps)
        return trace


def replay(env: OrchestraEnv, trace: Trace) -> Iterator[Step]:
    """The same actions once more, step by step."""
    for number, action in enumerate(trace.actions):
        if action is None:
            observation, info = env.reset(seed=None if number else trace.seed)
            yield Step(observation, 0.0, False, False, info)
        else:
            yield Step(*env.step(action))


def difference(a: Any, b: Any, where: str) -> str:
    """Where two results first differ, in words, or "". nan equals nan."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return f"{where} has the keys {list(a)}, then {list(b)}"
        return next(filter(None, (difference(a[k], b[k], f"{where}[{k!r}]") for k in a)), "")
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next(filter(None, (difference(x, y, f"{where}[{k}]") for k, (x, y) in pairs)), "")
    return "" if a == b or (a != a and b != b) else f"{where} was {a!r:.200}, then {b!r:.200}"


def leaves(value: Any) -> Iterator[Any]:
    """All values inside nested mappings, lists and tuples, one after another."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


class Sabotaged:
    """A task source whose tools all raise."""

    def __init__(self, source: TaskSource) -> None:
        self._source = source
        self.name, self.splits = source.name, source.splits

    def draw(self, split: str, rng: random.Random) -> str:
        return self._source.draw(split, rng)

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        scene = self._source.open(task_id, seed, sheet, tools)
        return scene._replace(world=cast(World, _SabotagedWorld(scene.world)))


class _SabotagedWorld:
    def __init__(self, world: World) -> None:
        self._world = world
        self.toolbox = Toolbox(replace(t, run=_explode, suspends=False) for t in world.toolbox)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


def _explode(context: ToolContext, **arguments: Any) -> NoReturn:
    del context, arguments
    raise RuntimeError("sabotaged by the conformance test")


def twin(env: OrchestraEnv, source: TaskSource) -> OrchestraEnv:
    """An environment with the same settings, over another source."""
    settings = {f.name: getattr(env.factory.settings, f.name) for f in fields(env.factory.settings)}
    return type(env)(source, **settings)


PATIENCE_SECONDS = 2.0


class Held(NamedTuple):
    """What the process holds that an abandoned episode could leak."""

    threads: int
    tasks: int
    processes: int
    files: int
    episodes: int

    @classmethod
    def now(cls) -> Held:
        """Count. The shared background loop is started first, so that it counts in every count."""
        background = BackgroundLoop.shared()
        gc.collect()

        async def waiting() -> int:
            return len(asyncio.all_tasks()) - 1  # without this one

        return cls(
            threading.active_count(),
            background.submit(waiting()).result(10),
            len(multiprocessing.active_children()) + _children(),
            len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0,
            sum(type(o) is Episode for o in gc.get_objects()),
        )

    def leaked_since(self) -> str:
        """What there is more of now, in words, or "". What is on its way out is waited for while it goes on going."""
        last, patience = Held.now(), time.monotonic() + PATIENCE_SECONDS
        while self.exceeded_by(last) and time.monotonic() < patience:
            time.sleep(0.02)
            now = Held.now()
            if now != last:
                last, patience = now, time.monotonic() + PATIENCE_SECONDS
        return self.exceeded_by(last)

    def exceeded_by(self, now: Held) -> str:
        """What `now` has more of."""
        return ", ".join(f"{name}: {b - a} more" for name, a, b in zip(self._fields, self, now, strict=True) if b > a)


def _children() -> int:
    """Processes that this one has started. A thread that ends while this looks has none."""
    count = 0
    for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            count += len(children.read_text().split())
    return count
