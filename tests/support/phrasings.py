"""The oracle in other words: the same moves, said as a bank of phrasings has them.

It shows whether the scripted user understands how agents talk. The oracle goes on as planned whatever the user says, so
a task is lost when the user ends the talk, or gives up, before the work is done.

`python -m tests.support.phrasings 30` plays each bank over so many tasks of each domain, and says how many are solved.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.paths import REPOSITORY
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import OracleWords, moves
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTask
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.solvers import Arena, Player, scripted

KINDS = ("hold", "ask", "confirm", "tell", "done", "refuse", "transfer")
HALVES = ("seen", "held out")
"""`held out`: written before the user's code, which was never changed to fit them."""


class Phrasing(NamedTuple):
    """One way to say one kind of message; {facts}, {plan} and {values} are filled in, as {..._list} one to a line."""

    kind: str
    half: str
    text: str


def load(path: Path) -> tuple[Phrasing, ...]:
    """A bank: a JSON list of {"kind", "half", "text"}."""
    return tuple(Phrasing(**row) for row in json.loads(path.read_text()))


class PhrasedWords(OracleWords):
    """Draws each message of some kinds from a bank."""

    def __init__(self, bank: Sequence[Phrasing], kinds: Collection[str], rng: random.Random) -> None:
        self._texts = {kind: [one.text for one in bank if one.kind == kind] for kind in kinds}
        self._rng = rng

    def _drawn(self, kind: str, plain: str, **filled: str) -> str:
        texts = self._texts.get(kind)
        if not texts:
            return plain
        said = self._rng.choice(texts).format_map(filled)
        return said[:1].upper() + said[1:]

    def hold(self) -> str:
        return self._drawn("hold", "")

    def ask_identity(self, labels: Sequence[str]) -> str:
        return self._drawn("ask", super().ask_identity(labels), facts=" and ".join(labels), facts_list=_lines(labels))

    def ask_details(self, labels: Sequence[str]) -> str:
        return self._drawn("ask", super().ask_details(labels), facts=" and ".join(labels), facts_list=_lines(labels))

    def confirm(self, plan: str) -> str:
        return self._drawn("confirm", super().confirm(plan), plan=plan)

    def settled(self, inform: Sequence[str]) -> str:
        plain = super().settled(inform)
        if not inform:
            return self._drawn("done", plain)
        return self._drawn("tell", plain, values=", ".join(inform), values_list=_lines(inform))

    def refuse(self, inform: Sequence[str]) -> str:
        return super().refuse(inform) if inform else self._drawn("refuse", super().refuse(inform))

    def insist(self, inform: Sequence[str]) -> str:
        return super().insist(inform) if inform else self._drawn("refuse", super().insist(inform))

    def hand_over(self, inform: Sequence[str]) -> str:
        return super().hand_over(inform) if inform else self._drawn("transfer", super().hand_over(inform))


def _lines(parts: Sequence[str]) -> str:
    return "\n".join(f"- {part}" for part in parts)


class PhrasedOracle:
    """A solver: the oracle with messages of some kinds drawn anew for each task."""

    def __init__(self, name: str, bank: Sequence[Phrasing], kinds: Collection[str]) -> None:
        self.name = name
        self._bank, self._kinds = bank, kinds

    def begin(self, bench: DomainPlayer, task: SqlTask, seed: int) -> Player:
        rng = random.Random(f"{task.task_id}/{seed}")
        return scripted(moves(bench.domain, task, PhrasedWords(self._bank, self._kinds, rng)))


def main(number: int) -> None:
    """Print how many tasks are solved with each bank."""
    arenas = [Arena(name) for name in loader.names()]
    for path in sorted((REPOSITORY / "tests" / "data").glob("agent_phrasings*.json")):
        solver, lost, tries = PhrasedOracle(path.stem, load(path), KINDS), list[str](), 0
        for arena in arenas:
            tasks = list(arena.domain.tasks)
            for task_id in (tasks[place * len(tasks) // number] for place in range(number)):
                tries += 1
                if not asyncio.run(arena.passes(solver, task_id)):
                    lost.append(f"{arena.domain.name}/{task_id}")
        print(f"| {path.stem} | {tries - len(lost)} / {tries} | {' '.join(lost)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
