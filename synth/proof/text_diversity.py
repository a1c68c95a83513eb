"""How different the texts of tasks are from each other: different runs of words over all runs of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.synth.proof import similarity


class TextDiversity(NamedTuple):
    """How different the requests of some tasks are from each other, without names and numbers."""

    tasks: int
    distinct_1: float
    distinct_2: float
    distinct_3: float
    openings: float
    """How many different first three words there are, divided by the number of tasks."""

    def text(self) -> str:
        """The measures in one line of text."""
        return (
            f"{self.tasks} tasks: distinct-1 {self.distinct_1:.3f}, distinct-2 {self.distinct_2:.3f},"
            f" distinct-3 {self.distinct_3:.3f}, different openings {self.openings:.3f}"
        )


def measure(shapes: Iterable[Mapping[str, Any]]) -> TextDiversity:
    """Measures how different the requests of these tasks are from each other."""
    said = [similarity.normal(shape["user_scenario"]["instructions"]["reason_for_call"]).split() for shape in shapes]
    openings = {tuple(words[:3]) for words in said}
    one, two, three = (_distinct(said, size) for size in (1, 2, 3))
    return TextDiversity(len(said), one, two, three, len(openings) / max(1, len(said)))


def _distinct(said: Sequence[Sequence[str]], size: int) -> float:
    runs = [tuple(words[at : at + size]) for words in said for at in range(len(words) - size + 1)]
    return len(set(runs)) / max(1, len(runs))
