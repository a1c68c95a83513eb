"""`ToolOrchestra/HLE-v0`: hard-to-guess questions of ten subjects and five levels, with exact answers. SIMULATED."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.handbook import contents
from toolorchestra.envs.domains.hle.subjects_code import CODE_TRACING, GRAPH_ALGORITHMS, LOGIC
from toolorchestra.envs.domains.hle.subjects_form import LEVELS, Drafter, Family, pose
from toolorchestra.envs.domains.hle.subjects_math import COMBINATORICS, LINEAR_ALGEBRA, NUMBER_THEORY, PROBABILITY
from toolorchestra.envs.domains.hle.subjects_science import CALENDAR_ASTRONOMY, CHEMISTRY, PHYSICS
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

_DRAFTERS: Mapping[str, tuple[Family, Sequence[Drafter]]] = {
    "number theory": ("math", NUMBER_THEORY),
    "combinatorics": ("math", COMBINATORICS),
    "linear algebra": ("math", LINEAR_ALGEBRA),
    "probability": ("math", PROBABILITY),
    "physics": ("science", PHYSICS),
    "chemistry": ("science", CHEMISTRY),
    "calendar astronomy": ("science", CALENDAR_ASTRONOMY),
    "code tracing": ("code", CODE_TRACING),
    "graph algorithms": ("code", GRAPH_ALGORITHMS),
    "logic": ("logic", LOGIC),
}
SUBJECTS: Mapping[str, Callable[[random.Random, int], Question]] = {
    subject: partial(pose, subject, *drafters) for subject, drafters in _DRAFTERS.items()
}
"""Draws a question of the subject, at a level."""
LEVEL_WEIGHTS = (1, 2, 3, 4, 4)
"""How often each level is drawn: mostly hard, since easy questions leave nothing to route."""
_WEIGHTS = tuple(2 if family == "science" else 1 for family, _ in _DRAFTERS.values())
"""The sciences, whose constants must be looked up, come twice as often: nearly half of the questions need a search."""


@cache
def _index() -> Bm25:
    return Bm25(contents().passages)


class HleSource(QaSource):
    """Questions of ten subjects, the sciences twice as often; their constants stand in a searchable handbook."""

    embedded_name = "hle-sim"
    real_name = "hle"

    def generate(self, rng: random.Random) -> Question:
        subject = rng.choices(tuple(SUBJECTS), _WEIGHTS)[0]
        return SUBJECTS[subject](rng, rng.choices(LEVELS, LEVEL_WEIGHTS)[0])

    def retriever(self) -> Bm25:
        return _index()
