"""Whether tasks measure something: solvers of graded strength on domains.

`python synth/compare_solvers.py` takes all shipped ones.

The scripted solvers are SIMULATED: the oracle with a chance to slip at each call and each telling. In every domain a
stronger one must pass more tries than a weaker one, and what changes and tells nothing must pass next to none. What a
try that passed cost beyond the cheapest known solution of its task is told beside it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.agents.evaluation.statistics import wilson
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain import SqlTask
from toolorchestra.synth.console.worker_processes import workers
from toolorchestra.synth.proof.reading_agent import LEARNER, READER
from toolorchestra.synth.proof.solvers import GRADED, RULE_BREAKERS, SHORTCUTS, TRIVIAL, Arena, Solver, Try

SOLVERS: tuple[Solver, ...] = (*GRADED, READER, LEARNER, *SHORTCUTS, *TRIVIAL, *RULE_BREAKERS)
MOST_TRIVIAL = 0.1
ONE, SEVERAL = "one request", "several requests"
GROUPS = (ONE, SEVERAL, "easy", "medium", "hard", "test", "heldout")


class Passed(NamedTuple):
    """How often each solver passed the tasks of one domain."""

    domain: str
    tries: int
    shares: dict[str, float]
    """Solver -> share of tries passed."""
    regret_cents: dict[str, float | None]
    """Solver -> what a try that passed cost beyond the cheapest known solution, on average."""
    by_level: Mapping[str, Mapping[str, tuple[int, int]]] = {}
    """How many requests, level, or split `test` or `heldout` -> solver -> first tries passed, of how many."""

    @property
    def faults(self) -> list[str]:
        """Where the domain does not tell strong from weak."""
        graded = [(solver.name, self.shares[solver.name]) for solver in GRADED]
        found = [
            f"{self.domain}: {strong} passes {high:.1%}, {weak} {low:.1%}"
            for (strong, high), (weak, low) in pairwise(graded)
            if high <= low
        ]
        for solver in TRIVIAL:
            if self.shares[solver.name] > MOST_TRIVIAL:
                found.append(f"{self.domain}: {solver.name} passes {self.shares[solver.name]:.1%}")
        return found


def measure(name: str, tasks: int, k: int) -> Passed:
    """All solvers on a sample of one domain's tasks, k tries each."""
    arena = Arena(name)
    ids = list(arena.domain.tasks)
    ids = ids[:: max(1, len(ids) // tasks)][:tasks]

    async def play() -> dict[str, list[Try]]:
        return {s.name: [await arena.play(s, i, seed) for i in ids for seed in range(k)] for s in SOLVERS}

    tries = asyncio.run(play())
    shares = {name: sum(one.solved for one in made) / len(made) for name, made in tries.items()}
    regret = {name: _regret(made) for name, made in tries.items()}
    return Passed(arena.domain.name, k * len(ids), shares, regret, _by_level(arena, ids, tries, k))


def _by_level(
    arena: Arena, ids: Sequence[str], tries: Mapping[str, Sequence[Try]], k: int
) -> dict[str, dict[str, tuple[int, int]]]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    of: Counter[str] = Counter()
    tasks = arena.domain.tasks
    groups = {name: [group for group in _groups(tasks[name]) if group in GROUPS] for name in ids}
    for name in ids:
        of.update(groups[name])
    for group in of:
        found[group] = {}
        for solver, made in tries.items():
            firsts = zip(ids, made[::k], strict=True)
            found[group][solver] = (sum(one.solved for name, one in firsts if group in groups[name]), of[group])
    return found


def _groups(task: SqlTask) -> tuple[str, ...]:
    """Who does the first request alone solves what has no other: so tasks of one request stand apart."""
    return (ONE if len(task.requests) == 1 else SEVERAL, task.level, task.split)


def _regret(tries: Sequence[Try]) -> float | None:
    usd = [one.regret_usd for one in tries if one.solved and one.regret_usd is not None]
    return 100 * sum(usd) / len(usd) if usd else None


def table(found: Sequence[Passed]) -> list[str]:
    """Markdown, SIMULATED in its heading."""
    names = [solver.name for solver in SOLVERS]
    lines = ["| domain (SIMULATED solvers) | tries | " + " | ".join(names) + " |", "|---|" + "---|" * (len(names) + 1)]
    for one in found:
        lines.append(f"| {one.domain} | {one.tries} | " + " | ".join(f"{one.shares[n]:.1%}" for n in names) + " |")
    lines += ["", "Cents beyond the cheapest known solution, of tries that passed (SIMULATED):", lines[0], lines[1]]
    for one in found:
        cents = (one.regret_cents[n] for n in names)
        told = " | ".join("-" if value is None else f"{value:.3f}" for value in cents)
        lines.append(f"| {one.domain} | {one.tries} | {told} |")
    return lines


def levels(found: Sequence[Passed]) -> list[str]:
    """Markdown: all domains together, by level and split, with 95 % intervals (Wilson). SIMULATED."""
    names = [solver.name for solver in SOLVERS]
    groups = [group for group in GROUPS if any(group in one.by_level for one in found)]
    if not groups:
        return []
    lines = ["", "| tasks (SIMULATED solvers, first tries) | n | " + " | ".join(names) + " |"]
    lines.append("|---|" + "---|" * (len(names) + 1))
    for group in groups:
        own = [one.by_level[group] for one in found if group in one.by_level]
        cells = []
        for name in names:
            passed, of = (sum(one[name][place] for one in own) for place in (0, 1))
            interval = wilson(passed / of, of)
            cells.append(f"{passed / of:.1%} ({100 * interval.low:.1f} to {100 * interval.high:.1f})")
        lines.append(f"| {group} | {sum(one[names[0]][1] for one in own)} | " + " | ".join(cells) + " |")
    return lines


@dataclass(frozen=True)
class CompareSolversOptions:
    """What `toolorchestra compare-solvers` takes."""

    domain: tuple[str, ...] = ()
    """Names or folders; all that are shipped when left out."""
    tasks: int = 90
    """How many tasks of each domain are played."""
    k: int = 2
    """How many times each task is tried."""
    at_once: int = os.cpu_count() or 1
    """How many processes work at the same time."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "k": 1, "at_once": 1})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(CompareSolversOptions, run, given, about=__doc__)


def run(given: CompareSolversOptions) -> int:
    """Compare, and print the tables; a domain that does not tell strong from weak fails the command."""
    started = time.perf_counter()
    with workers(given.at_once) as pool:
        names = [str(loader.resolve(name)) for name in given.domain or loader.names()]
        futures = [pool.submit(measure, name, given.tasks, given.k) for name in names]
        found = [future.result() for future in futures]
    faults = [fault for one in found for fault in one.faults]
    say("\n".join([*table(found), *levels(found), *(f"FAULT {fault}" for fault in faults)]))
    say(f"{len(found)} domains, {len(faults)} faults, {time.perf_counter() - started:.0f} s")
    return FAILED if faults else DONE


if __name__ == "__main__":
    sys.exit(main())
