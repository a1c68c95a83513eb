"""`ToolOrchestra/FRAMES-v0`: multi-hop questions over a fictional encyclopaedia that is really searched. SIMULATED."""

from __future__ import annotations

import random
from functools import cache

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.frames.encyclopaedia import build
from toolorchestra.envs.domains.frames.patterns import PATTERNS
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

ENCYCLOPAEDIA_SEED = 0


@cache
def _index() -> Bm25:
    return Bm25(build(ENCYCLOPAEDIA_SEED).passages)


class FramesSource(QaSource):
    """Questions drawn evenly over the reasoning patterns."""

    embedded_name = "frames-sim"
    real_name = "frames"

    def generate(self, rng: random.Random) -> Question:
        pattern = rng.choice(tuple(PATTERNS))
        return PATTERNS[pattern](build(ENCYCLOPAEDIA_SEED), rng)

    def retriever(self) -> Bm25:
        return _index()
