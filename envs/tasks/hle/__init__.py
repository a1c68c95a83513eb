"""`ToolOrchestra/HLE-v0`: hard-to-guess questions of ten subjects and five levels, with exact answers. SIMULATED."""

from __future__ import annotations

import random
from functools import cache

from toolorchestra.envs.retrieval.bm25 import Bm25
from toolorchestra.envs.tasks.hle.handbook import handbook
from toolorchestra.envs.tasks.hle.subjects import LEVELS, SUBJECTS
from toolorchestra.envs.types import Question
from toolorchestra.envs.worlds.qa_source import QaSource


@cache
def _index() -> Bm25:
    return Bm25(handbook())


class HleSource(QaSource):
    """Questions drawn evenly over subjects and levels; constants of the sciences stand in a searchable handbook."""

    name = "hle-sim"

    def generate(self, rng: random.Random) -> Question:
        subject = rng.choice(tuple(SUBJECTS))
        return SUBJECTS[subject](rng, rng.choice(LEVELS))

    def retriever(self) -> Bm25:
        return _index()
