"""`ToolOrchestra/HLE-v0`: hard-to-guess questions of ten subjects and five levels, with exact answers. SIMULATED."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.handbook import handbook
from toolorchestra.envs.domains.hle.subjects_code import code_tracing, graph_algorithms, logic
from toolorchestra.envs.domains.hle.subjects_form import LEVELS
from toolorchestra.envs.domains.hle.subjects_math import combinatorics, linear_algebra, number_theory, probability
from toolorchestra.envs.domains.hle.subjects_science import calendar_astronomy, chemistry, physics
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

SUBJECTS: Mapping[str, Callable[[random.Random, int], Question]] = MappingProxyType(
    {
        "number theory": number_theory,
        "combinatorics": combinatorics,
        "linear algebra": linear_algebra,
        "probability": probability,
        "physics": physics,
        "chemistry": chemistry,
        "calendar astronomy": calendar_astronomy,
        "code tracing": code_tracing,
        "graph algorithms": graph_algorithms,
        "logic": logic,
    }
)
LEVEL_WEIGHTS = (1, 2, 3, 4, 4)
"""How often each level is drawn: mostly hard, since easy questions leave nothing to route."""
LOOKED_UP = ("physics", "chemistry", "calendar astronomy")
_WEIGHTS = tuple(2 if subject in LOOKED_UP else 1 for subject in SUBJECTS)
"""The subjects whose constants must be looked up come twice as often: nearly half of the questions need a search."""


@cache
def _index() -> Bm25:
    return Bm25(handbook())


class HleSource(QaSource):
    """Questions drawn evenly over subjects; constants of the sciences stand in a searchable handbook."""

    embedded_name = "hle-sim"
    real_name = "hle"

    def generate(self, rng: random.Random) -> Question:
        subject = rng.choices(tuple(SUBJECTS), _WEIGHTS)[0]
        return SUBJECTS[subject](rng, rng.choices(LEVELS, LEVEL_WEIGHTS)[0])

    def retriever(self) -> Bm25:
        return _index()
