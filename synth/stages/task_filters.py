"""Which self-consistent tasks are kept: not nearly the same as another, not solved by doing nothing much, and neither
too easy nor out of reach for given policies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.solvers import TRIVIAL, Arena, Solver
from toolorchestra.synth.stages.domain_folder import Seen
from toolorchestra.synth.stages.task_drafts import Shape


@dataclass(frozen=True)
class Band:
    """Which share of its tries a task must see solved, over all given solvers."""

    low: float = 0.05
    high: float = 0.95
    k: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1 or self.k < 1:
            raise ConfigError(f"a band is 0 <= low <= high <= 1 with k >= 1 tries, got {self}")


class Sifted(NamedTuple):
    """What the filters let through."""

    kept: list[Shape]
    dropped: Counter[str]
    examples: dict[str, str]
    passes: dict[str, dict[str, int]]
    """Task -> solver -> how many of k tries it passed. Tasks by the ids that they had when they were tried."""


@dataclass
class TaskFilter:
    """The filters, in the order of their price."""

    arena: Arena
    solvers: Sequence[Solver]
    band: Band
    seen: Seen | None = None
    _dropped: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, str] = field(default_factory=dict)
    _passes: dict[str, dict[str, int]] = field(default_factory=dict)

    async def sift(self, shapes: Sequence[Shape]) -> Sifted:
        """Runs all filters over the tasks, and returns those that are kept with what was dropped and why."""
        different = self._different(shapes)
        kept = []
        for number, shape in enumerate(different, 1):
            if await self._trivial(shape) or not await self._in_band(shape):
                continue
            kept.append(shape)
            if self.seen is not None:
                self.seen(number, len(different))
        return Sifted(kept, self._dropped, self._examples, self._passes)

    def _drop(self, reason: str, shape: Shape, seen: str) -> bool:
        self._dropped[reason] += 1
        self._examples.setdefault(reason, f"{shape['description']['purpose']}: {seen}")
        return True

    def _different(self, shapes: Sequence[Shape]) -> list[Shape]:
        groups: dict[str, list[frozenset[str]]] = defaultdict(list)
        kept = []
        for shape in shapes:
            group, own = groups[similarity.calls(shape)], similarity.shingles(similarity.words(shape))
            if any(similarity.overlap(own, other) >= similarity.NEAR for other in group):
                self._drop("near-duplicate", shape, "an earlier task has the same calls in nearly the same words")
                continue
            group.append(own)
            kept.append(shape)
        return kept

    async def _trivial(self, shape: Shape) -> bool:
        if self.arena.domain.tasks[shape["id"]].idle:
            return False  # to change and tell nothing is what these ask for
        for solver in TRIVIAL:
            if await self.arena.passes(solver, shape["id"], 1):
                return self._drop("solved by a trivial policy", shape, solver.name)
        return False

    async def _in_band(self, shape: Shape) -> bool:
        if not self.solvers:
            return True
        k = self.band.k
        passed = {solver.name: await self.arena.passes(solver, shape["id"], k) for solver in self.solvers}
        self._passes[shape["id"]] = passed
        share = sum(passed.values()) / (k * len(self.solvers))
        if share < self.band.low:
            return not self._drop(f"pass@{k} below the band", shape, told(passed, k))
        if share > self.band.high:
            return not self._drop(f"pass@{k} above the band", shape, told(passed, k))
        return True


def told(passed: Mapping[str, int], k: int) -> str:
    """How often each solver passed in k tries, as text."""
    return ", ".join(f"{name} {number}/{k}" for name, number in passed.items())
