"""The cheapest known solution of each task and what it costs, in a file beside the tasks: costs.jsonl.gz.

Cheapest known: of the gold path and its alternatives, each without the reads that it can do without and still be judged
right, the one with the fewest calls; not proven to be the least there is, and found by somebody who knows the answers.
Its bill is that of a conversation through the environment, the agent's own tokens estimated from characters at the
price sheet's rates.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.sqldomain.domain import Action, Task
from toolorchestra.envs.sqldomain.oracle import moves
from toolorchestra.synth.bench import Bench
from toolorchestra.synth.solvers import Arena
from toolorchestra.synth.work import replace as write

FILE = "costs.jsonl.gz"
_SEED = 0


class Profile(NamedTuple):
    """What one task costs."""

    task_id: str
    difficulty: int
    gold_calls: int
    calls: int
    reads: int
    writes: int
    turns: int
    usd: float
    seconds: float
    """Of the simulated clock; tools on our own machine take none, the agent's own time is not counted."""
    cheapest: list[dict[str, Any]]
    """The calls, as {"name", "arguments"}."""
    passes: dict[str, int]
    """Solver -> tries that it passed, where solvers were tried."""
    k: int


def trimmed(bench: Bench, task: Task, path: Sequence[Action]) -> list[int]:
    """The places in a path that are left when every read that is not needed is taken out; policies ask for the calls
    that identify, so they stay."""
    kept = list(range(len(path)))
    for place in range(len(path) - 1, task.identify - 1, -1):
        if bench.domain.tools[path[place].name].kind == "read":
            without = [other for other in kept if other != place]
            if bench.judged(task, [path[other] for other in without]).value:
                kept = without
    return kept


def cheapest(bench: Bench, task: Task) -> Task:
    """The task with its cheapest known solution as its gold path."""
    best: Task | None = None
    for path in (task.actions, *task.alternatives):
        other = _along(task, path)
        kept = trimmed(bench, task, path)
        new = {old: number for number, old in enumerate(kept)}
        requests = tuple(
            replace(request, actions=tuple(new[n] for n in request.actions if n in new)) for request in other.requests
        )
        made = replace(other, actions=tuple(path[n] for n in kept), requests=requests)
        if best is None or len(made.actions) < len(best.actions):
            best = made
    assert best is not None
    return best


def _along(task: Task, path: Sequence[Action]) -> Task:
    """The task with another of its paths as gold: one request has other calls, and those behind it move."""
    shift = len(path) - len(task.actions)
    first = next((n for n, (a, b) in enumerate(zip(task.actions, path, strict=False)) if a != b), None)
    if first is None and not shift:
        return task
    requests = []
    for request in task.requests:
        own = request.actions
        if not own or (first is not None and own[-1] < first):
            requests.append(request)
        elif first is None or own[0] <= first:
            requests.append(replace(request, actions=tuple(range(own[0], own[-1] + 1 + shift))))
        else:
            requests.append(replace(request, actions=tuple(n + shift for n in own)))
    return replace(task, actions=tuple(path), requests=tuple(requests))


class _Following:
    def __init__(self, made: Iterator[str]) -> None:
        self._moves = made

    async def move(self, observation: Any) -> str:
        return next(self._moves, "")


async def profile(arena: Arena, task: Task, passes: Mapping[str, int], k: int) -> Profile:
    """Plays the cheapest known solution. Raises ConfigError when it does not solve the task."""
    short = cheapest(arena.bench, task)
    tried = await arena.follow(_Following(moves(arena.domain, short)), task.task_id, _SEED)
    if not tried.solved:
        raise ConfigError(
            f"task {task.task_id}: its cheapest known solution does not solve it; this is a bug, report it"
        )
    kinds = [arena.domain.tools[action.name].kind for action in short.actions]
    rows = [{"name": action.name, "arguments": dict(action.arguments)} for action in short.actions]
    return Profile(
        task.task_id, task.difficulty, len(task.actions), len(kinds), kinds.count("read"), kinds.count("write"),
        tried.turns, tried.usd, tried.seconds, rows, dict(passes), k,
    )  # fmt: skip


async def profiles(arena: Arena, passes: Mapping[str, Mapping[str, int]], k: int) -> list[Profile]:
    """Of all tasks."""
    return [await profile(arena, task, passes.get(name, {}), k) for name, task in arena.domain.tasks.items()]


def packed(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """JSON lines, the same bytes for the same rows."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return gzip.compress(text.encode(), 9, mtime=0)


def store(folder: Path, made: Sequence[Profile]) -> None:
    """Beside the tasks."""
    write(folder / FILE, packed([row._asdict() for row in made]))


def load(folder: Path) -> list[Profile]:
    """What was stored beside a domain's tasks."""
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"no {FILE} in {folder}; generate the domain with --augment or --solvers")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [Profile(**json.loads(line)) for line in lines]
