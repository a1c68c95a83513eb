"""Finds the cheapest known solution of each task, tries graded solvers on it, and stores both beside the tasks.

Cheapest known: of the gold path and its alternatives, each without the reads that it can do without and still be judged
right, the one with the smallest bill. It follows the policy's order (identify, read, confirm, write, tell), uses an id
only when the policy, the user or a result has said it (domain_player.py), and calls what it can in one turn; which of
several things is meant it knows. That nothing is cheaper is not proven. The format, and what is read from it, is
envs/domains/toolscale/known_costs.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import write_whole
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.known_costs import (
    FILE,
    KnownCost,
    Setting,
    calls_by_tool,
    entry,
    packed,
    zipped,
)
from toolorchestra.envs.domains.toolscale.source import forget
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.wishes import requests_along
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.synth.proof.domain_player import DomainPlayer, SaidIds, untold
from toolorchestra.synth.proof.solvers import GRADED, Arena, Scripted

SHEET = "paper-2025-11"
ORCHESTRATOR = "qwen3-8b"
SEED = 0
SOLVERS: tuple[Scripted, ...] = GRADED[1:]
"""Tried on every task: all graded ones but the oracle, which passes always."""
TRIES = 4
Seen = Callable[[int, int], None]
"""Function that is told how many of how many tasks are done."""


class Solution(NamedTuple):
    """A way to solve a task: some of the calls of one of its paths."""

    found_by: str
    path: int
    kept: tuple[int, ...]


def trimmed(bench: DomainPlayer, task: SqlTask, path: Sequence[GoldCall]) -> list[int]:
    """The places in a path that are left when every read that is not needed is taken out: neither to be judged right
    nor to learn an id that is used later. Policies ask for the calls that identify, so they stay."""
    kept = list(range(len(path)))
    for place in range(len(path) - 1, task.identify - 1, -1):
        if bench.domain.tools[path[place].name].kind == "read":
            without = [other for other in kept if other != place]
            calls = [path[at] for at in without]
            if bench.judged(task, calls).value and not untold(bench, task, calls):
                kept = without
    return kept


def solutions(bench: DomainPlayer, task: SqlTask) -> Iterator[Solution]:
    """A solution for each path of a task, the gold one first, without the reads that are not needed. An alternative
    that uses an id which nothing has said is none: it cannot be played."""
    for number, path in enumerate((task.actions, *task.alternatives)):
        if number and untold(bench, task, path):
            continue
        kept = trimmed(bench, task, path)
        name = "alternative" if number else "gold"
        yield Solution(name + ", trimmed" * (len(kept) < len(path)), number, tuple(kept))


def along(task: SqlTask, path: int, kept: Sequence[int]) -> SqlTask:
    """The task with a solution as its gold path."""
    actions = (task.actions, *task.alternatives)[path]
    new = {place: at for at, place in enumerate(kept)}
    requests = tuple(
        replace(request, actions=tuple(new[n] for n in request.actions if n in new))
        for request in requests_along(task, actions)
    )
    identify = sum(place in new for place in range(task.identify))
    return replace(task, actions=tuple(actions[place] for place in kept), requests=requests, identify=identify)


def together(made: Iterator[str], said: SaidIds) -> Iterator[str]:
    """The oracle's turns, calls that follow each other in one of them: its context is read once for all. A call that
    uses an id which nothing has said waits for the results of those before it; `said` is told of them meanwhile."""
    calls: list[str] = []
    for text in made:
        if text.startswith("<tool_call>"):
            if calls and any(said.missing(GoldCall(*call)) for call in parse(text).calls):
                yield "\n".join(calls)
                calls = []
            calls.append(text)
            continue
        if calls:
            yield "\n".join(calls)
            calls = []
        yield text
    if calls:
        yield "\n".join(calls)


def steps(env: OrchestraEnv, observation: Any, domain: SqlDomain, task: SqlTask) -> Iterator[Any]:
    """Plays the oracle's turns, calls together, in an environment that was just reset; gives what each step gives."""
    said = SaidIds(*(message["content"] for message in observation["messages"]))
    for text in together(moves(domain, task), said):
        stepped = env.step(text)
        _, *answers = stepped[-1]["new_messages"]  # what the agent says itself tells it nothing
        for message in answers:
            said.add(message["content"])
        yield stepped


def played(arena: Arena, task: SqlTask, solution: Solution, setting: Setting) -> KnownCost | None:
    """A solution through the environment; None when it does not solve the task."""
    short = along(task, *solution[1:])
    options = {"task_id": f"toolscale/{arena.domain.name}/{task.task_id}", "prices": setting.sheet}
    observation, _ = arena.env.reset(seed=setting.seed, options=options)
    opening = sum(len(message["content"]) for message in observation["messages"])
    said, answered, reward = [], [], 0.0
    info: dict[str, Any] = {}
    for stepped in steps(arena.env, observation, arena.domain, short):
        _, reward, terminated, truncated, info = stepped
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
        task.task_id, solution.found_by, solution.path, solution.kept, calls, opening, tuple(said),
        tuple(answered), ledger.seconds, ledger.nano_usd, {}, setting,
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


def stored(one: KnownCost) -> Solution:
    """The solution whose costs these are."""
    return Solution(one.found_by, one.path, one.kept)


def fault(arena: Arena, one: KnownCost) -> str:
    """What playing a stored solution again finds wrong with it, or ""."""
    task = arena.domain.tasks[one.task_id]
    again = played(arena, task, stored(one), one.setting)
    if again is None:
        return "its cheapest known solution does not solve it"
    same = again == replace(one, passes={})
    return "" if same else f"its cheapest known solution has another bill: {again.nano_usd}, stored {one.nano_usd}"


async def measure(folder: Path, seen: Seen | None = None) -> tuple[Setting, list[KnownCost]]:
    """Every task of a domain folder."""
    arena = _arena(folder)
    setting = Setting(SHEET, ORCHESTRATOR, SEED, _tools_characters(arena), tuple(s.name for s in SOLVERS), TRIES)
    made = []
    for number, (name, task) in enumerate(arena.domain.tasks.items(), 1):
        passed = {solver.name: await arena.passes(solver, name, TRIES) for solver in SOLVERS}
        made.append(replace(cheapest(arena, task, setting), passes=passed))
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


def store(folder: Path, setting: Setting, made: Sequence[KnownCost]) -> None:
    """The file, and then its place in the manifest: what the manifest does not list is not read."""
    data = packed(setting, made)
    write_whole(folder / FILE, zipped(data))
    head = {**loader.manifest(folder), "costs": entry(data)}
    write_whole(folder / "domain.json", (json.dumps(head, indent=2, ensure_ascii=False) + "\n").encode())
