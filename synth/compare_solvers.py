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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, command, say
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.console.worker_processes import workers
from toolorchestra.synth.proof.solvers import GRADED, SHORTCUTS, TRIVIAL, Arena, Try

SOLVERS = (*GRADED, *SHORTCUTS, *TRIVIAL)
MOST_TRIVIAL = 0.1


class Passed(NamedTuple):
    """One domain."""

    domain: str
    tries: int
    shares: dict[str, float]
    """Solver -> share of tries passed."""
    regret_cents: dict[str, float | None]
    """Solver -> what a try that passed cost beyond the cheapest known solution, on average."""

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
    return Passed(arena.domain.name, k * len(ids), shares, {name: _regret(made) for name, made in tries.items()})


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


@dataclass(frozen=True)
class CompareSolversOptions:
    """What `toolorchestra compare-solvers` takes."""

    domain: tuple[str, ...] = ()
    """Names or folders; all that are shipped when left out."""
    tasks: int = 90
    """Of each domain."""
    k: int = 2
    """Tries of each task."""
    at_once: int = os.cpu_count() or 1
    """Processes."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "k": 1, "at_once": 1})


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(CompareSolversOptions, run, given, about=__doc__)


def run(given: CompareSolversOptions) -> int:
    """Compare, and print the tables; a domain that does not tell strong from weak fails the command."""
    started = time.perf_counter()
    with workers(given.at_once) as pool:
        names = given.domain or tuple(loader.names())
        futures = [pool.submit(measure, name, given.tasks, given.k) for name in names]
        found = [future.result() for future in futures]
    faults = [fault for one in found for fault in one.faults]
    say("\n".join([*table(found), *(f"FAULT {fault}" for fault in faults)]))
    say(f"{len(found)} domains, {len(faults)} faults, {time.perf_counter() - started:.0f} s")
    return FAILED if faults else DONE


if __name__ == "__main__":
    sys.exit(main())
