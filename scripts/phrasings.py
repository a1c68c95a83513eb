"""How many tasks the oracle loses when it talks like other agents: `python scripts/phrasings.py --tasks 300`.

Each row plays the same tasks, spread over all shipped domains, once with each half of a bank of phrasings: messages of
one kind are drawn from it, or all of them. The oracle does the right calls in every row, so a task that it does not
solve was lost in the talk with the scripted user. The held-out half shows how the user does with what it was not
written for.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth.proof.phrasings import HALVES, KINDS, PhrasedOracle, Phrasing, load
from toolorchestra.synth.proof.solvers import Arena


@dataclass(frozen=True)
class PhrasingsOptions:
    """What to play."""

    bank: Path = Path("tests/data/agent_phrasings.json")
    """The phrasings: a JSON list of {"kind", "half", "text"}."""
    tasks: int = 300
    """Of all domains together."""
    each: bool = False
    """Also every phrasing of the bank alone, where it loses a task."""
    lost: bool = False
    """Also the ids of lost tasks."""
    values: bool = False
    """Instead: the oracle says dates, times and amounts in words."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1})


@lru_cache(maxsize=32)
def arena(name: str) -> Arena:
    return Arena(name)


def sample(tasks: int) -> list[tuple[str, str]]:
    """So many tasks, as many of each domain."""
    names = loader.names()
    found = []
    for number in range(tasks):
        ids = list(arena(names[number % len(names)]).domain.tasks)
        share = -(-tasks // len(names))
        found.append((names[number % len(names)], ids[number // len(names) * len(ids) // share]))
    return found


def lost_tasks(bank: Sequence[Phrasing], kinds: Sequence[str], tasks: Sequence[tuple[str, str]]) -> list[str]:
    """The tasks that are not solved."""
    solver = PhrasedOracle("oracle, phrased", bank, kinds)

    async def play() -> list[str]:
        return [f"{name}/{number}" for name, number in tasks if not (await arena(name).play(solver, number, 0)).solved]

    return asyncio.run(play())


def run(given: PhrasingsOptions) -> int:
    """Play, and print a Markdown table: tasks solved by kind and half."""
    bank, tasks = load(given.bank), sample(given.tasks)
    if given.values:
        lost = lost_tasks((), (), tasks)
        say(f"values in words: {len(tasks) - len(lost)} of {len(tasks)} solved" + f"; lost: {lost}" * given.lost)
        return DONE
    halves = {half: [one for one in bank if one.half == half] for half in HALVES}
    halves = {half: own for half, own in halves.items() if own}
    say(f"| solved of {len(tasks)} (SIMULATED user) | phrasings | {' | '.join(halves)} |")
    say("|---|---|" + "---|" * len(halves))
    for row, kinds in (*((kind, (kind,)) for kind in KINDS), ("all kinds", KINDS)):
        lost_in = {half: lost_tasks(own, kinds, tasks) for half, own in halves.items()}
        count = sum(one.kind in kinds for one in bank)
        say(f"| {row} | {count} | {' | '.join(str(len(tasks) - len(lost_in[half])) for half in halves)} |")
        if given.lost:
            for half in halves:
                say(f"  lost, {half}: {', '.join(lost_in[half]) or 'none'}")
    for one in bank if given.each else ():
        if lost_alone := lost_tasks([one], [one.kind], tasks):
            say(f"- {one.kind}, {one.half}: {len(tasks) - len(lost_alone)} solved with {one.text!r}")
    return DONE


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(PhrasingsOptions, run, given, about=__doc__)


if __name__ == "__main__":
    sys.exit(main())
