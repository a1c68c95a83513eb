"""Finds the cheapest known solution of each task, tries graded solvers on it, and stores both beside the tasks.

Cheapest known: of the gold path and its alternatives, each without the reads that it can do without and still be judged
right, the one with the smallest bill. It follows the policy's order (identify, read, confirm, write, tell), calls what
it can in one turn, and is found by somebody who knows the answers; that nothing is cheaper is not proven. The format,
and what is read from it, is envs/domains/toolscale/known_costs.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlTask
from toolorchestra.envs.domains.toolscale.known_costs import (
    FILE,
    KnownCost,
    Setting,
    calls_by_tool,
    entry,
    packed,
    zipped,
)
from toolorchestra.envs.domains.toolscale.oracle import moves
from toolorchestra.envs.domains.toolscale.paths import requests_along
from toolorchestra.envs.domains.toolscale.source import ready
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.synth.proof.solvers import GRADED, Arena, Scripted
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.storage.stage_store import replace as write

SHEET = "paper-2025-11"
ORCHESTRATOR = "qwen3-8b"
SEED = 0
SOLVERS: tuple[Scripted, ...] = GRADED[1:]
"""Tried on every task: all graded ones but the oracle, which passes always."""
TRIES = 4
Passes = Mapping[str, Mapping[str, int]]
"""Task -> solver -> tries passed."""
Seen = Callable[[int, int], None]
"""Told how many of how many tasks are done."""


class Solution(NamedTuple):
    """A way to solve a task: some of the calls of one of its paths."""

    found_by: str
    path: int
    kept: tuple[int, ...]


def trimmed(bench: DomainPlayer, task: SqlTask, path: Sequence[GoldCall]) -> list[int]:
    """The places in a path that are left when every read that is not needed is taken out; policies ask for the calls
    that identify, so they stay."""
    kept = list(range(len(path)))
    for place in range(len(path) - 1, task.identify - 1, -1):
        if bench.domain.tools[path[place].name].kind == "read":
            without = [other for other in kept if other != place]
            if bench.judged(task, [path[other] for other in without]).value:
                kept = without
    return kept


def solutions(bench: DomainPlayer, task: SqlTask) -> Iterator[Solution]:
    """One of each path."""
    for number, path in enumerate((task.actions, *task.alternatives)):
        kept = trimmed(bench, task, path)
        name = "alternative" if number else "gold"
        yield Solution(name if len(kept) == len(path) else f"{name}, trimmed", number, tuple(kept))


def along(task: SqlTask, path: int, kept: Sequence[int]) -> SqlTask:
    """The task with a solution as its gold path."""
    actions = (task.actions, *task.alternatives)[path]
    new = {old: number for number, old in enumerate(kept)}
    requests = tuple(
        replace(request, actions=tuple(new[n] for n in request.actions if n in new))
        for request in requests_along(task, actions)
    )
    return replace(task, actions=tuple(actions[n] for n in kept), requests=requests)


def together(made: Iterator[str]) -> Iterator[str]:
    """The oracle's turns, calls that follow each other in one of them: its context is read once for all."""
    calls: list[str] = []
    for text in made:
        if text.startswith("<tool_call>"):
            calls.append(text)
            continue
        if calls:
            yield "\n".join(calls)
            calls = []
        yield text
    if calls:
        yield "\n".join(calls)


def played(arena: Arena, task: SqlTask, solution: Solution, setting: Setting) -> KnownCost | None:
    """A solution through the environment; None when it does not solve the task."""
    short = along(task, solution.path, solution.kept)
    options = {"task_id": f"toolscale/{arena.domain.name}/{task.task_id}", "prices": setting.sheet}
    observation, _ = arena.env.reset(seed=setting.seed, options=options)
    opening = sum(len(message["content"]) for message in observation["messages"])
    said, answered, reward = [], [], 0.0
    info: dict[str, Any] = {}
    for text in together(moves(arena.domain, short)):
        _, reward, terminated, truncated, info = arena.env.step(text)
        own, *others = (len(message["content"]) for message in info["new_messages"])
        said.append(own)
        answered.append(sum(others))
        if terminated or truncated:
            break
    if reward != 1.0:
        return None
    assert arena.env.episode is not None
    ledger = arena.env.episode.ledger
    calls = calls_by_tool(task, solution.path, solution.kept)
    made = KnownCost(
        task.task_id, *solution, calls, opening, tuple(said), tuple(answered), ledger.seconds, ledger.nano_usd, {},
        setting,
    )  # fmt: skip
    if made.billed(load_sheet(setting.sheet)) != ledger.nano_usd:
        raise ConfigError(f"task {task.task_id}: its solution's sizes do not give its bill; this is a bug, report it")
    return made


def cheapest(arena: Arena, task: SqlTask, setting: Setting) -> KnownCost:
    """The solution with the smallest bill; of equal ones the first. Raises ConfigError when none solves the task."""
    found = [played(arena, task, solution, setting) for solution in solutions(arena.bench, task)]
    solved = [one for one in found if one is not None]
    if not solved:
        raise ConfigError(f"task {task.task_id}: no known solution solves it; this is a bug, report it")
    return min(solved, key=lambda one: one.nano_usd)


def fault(arena: Arena, one: KnownCost) -> str:
    """What playing a stored solution again finds wrong with it, or ""."""
    task = arena.domain.tasks[one.task_id]
    again = played(arena, task, Solution(one.found_by, one.path, one.kept), one.setting)
    if again is None:
        return "its cheapest known solution does not solve it"
    same = again == replace(one, passes={})
    return "" if same else f"its cheapest known solution has another bill: {again.nano_usd}, stored {one.nano_usd}"


async def measure(
    folder: Path, passes: Passes | None = None, tries: int = TRIES, seen: Seen | None = None
) -> tuple[Setting, list[KnownCost]]:
    """Every task of a domain folder. `passes`: what solvers passed of so many tries, where they were tried before;
    without it, SOLVERS are tried here."""
    arena = _arena(folder)
    names = tuple(next(iter(passes.values()))) if passes else tuple(solver.name for solver in SOLVERS)
    setting = Setting(SHEET, ORCHESTRATOR, SEED, _tools_characters(arena), names, tries if passes else TRIES)
    made = []
    for number, (name, task) in enumerate(arena.domain.tasks.items(), 1):
        passed = passes[name] if passes else {s.name: await arena.passes(s, name, TRIES) for s in SOLVERS}
        made.append(replace(cheapest(arena, task, setting), passes=dict(passed)))
        if seen is not None:
            seen(number, len(arena.domain.tasks))
    return setting, made


def _tools_characters(arena: Arena) -> int:
    first = next(iter(arena.domain.tasks))
    arena.env.reset(seed=SEED, options={"task_id": f"toolscale/{arena.domain.name}/{first}", "prices": SHEET})
    assert arena.env.episode is not None
    return arena.env.episode.world.toolbox.schema_characters


def _arena(folder: Path) -> Arena:
    """On the folder as it is now, though one of its name may have been read before it was written anew."""
    arena = Arena(str(folder))
    if arena.domain.manifest == loader.manifest(folder):
        return arena
    forget()
    return Arena(str(folder))


def forget() -> None:
    """Read folders anew from now on."""
    loader.load.cache_clear()
    ready.cache_clear()


def store(folder: Path, setting: Setting, made: Sequence[KnownCost]) -> None:
    """The file, and then its place in the manifest: what the manifest does not list is not read."""
    data = packed(setting, made)
    write(folder / FILE, zipped(data))
    head = {**loader.manifest(folder), "costs": entry(data)}
    write(folder / "domain.json", (json.dumps(head, indent=2, ensure_ascii=False) + "\n").encode())
