"""`ToolOrchestra/HLE-v0`: hard-to-guess questions of ten subjects and five levels, with exact answers. SIMULATED."""

from __future__ import annotations

import random
from functools import cache

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.handbook import handbook
from toolorchestra.envs.domains.hle.subjects import LEVELS, SUBJECTS
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

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
