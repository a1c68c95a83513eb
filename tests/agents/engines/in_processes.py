"""A few optimiser steps, saved and gone on with, by as many processes as torchrun starts.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.agents.engines.in_processes FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from toolorchestra.agents.engines.base import Adapter, Datum, LossParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine, together
from toolorchestra.agents.engines.ranks import Following, Ranks
from toolorchestra.agents.engines.tiny import build_model

VOCABULARY, STEPS = 64, 3
PLAIN = LocalConfig(rows=2, length=48, tokens_per_batch=96, seed=3)
KINDS = {
    "all weights": replace(PLAIN, average=0.5, reference=True),
    "adapter": replace(PLAIN, lora_rank=4, gradient_checkpointing=True),
    "bfloat16": replace(PLAIN, lora_rank=4, dtype="bfloat16"),
}
LOSS = LossParams(kl_weight=0.1, entropy_weight=0.01)


def data(step: int, count: int = 7) -> list[Datum]:
    """Rollouts of many lengths; the last one is longer than what it shares a batch with."""
    rng = random.Random(step)
    made = []
    for _ in range(count):
        size = rng.randint(6, 40)
        mask = [False, *[rng.random() < 0.5 for _ in range(size - 2)], True]
        tokens = [rng.randrange(VOCABULARY) for _ in range(size)]
        made.append(Datum(tokens, [-4.0 * m for m in mask], [rng.gauss(0, 1) for _ in range(size)], mask))
    return made


class Taking(Following):
    """A sampler that keeps what it is handed: the sums of the weights, or of the adapter's."""

    def sync(self, weights: Iterable[tuple[str, Any]], version: int, adapter: Adapter | None = None) -> None:
        pairs = adapter.pairs.items() if adapter else ()
        given = [(f"{name}.{n}", half) for name, pair in pairs for n, half in enumerate(pair)] or list(weights)
        self.sums = {name: [float(value.double().sum()), *value.shape] for name, value in given}


class Course:
    """What is to be the same in one process and in several."""

    def __init__(self, folder: Path, ranks: Ranks | None) -> None:
        self.folder, self.ranks = folder, ranks

    @together
    def take(self, kind: str) -> dict[str, Any]:
        """Steps, then the same again from what was saved after the first."""
        config = KINDS[kind]
        made = self.engine(config)
        made.take_reference()
        rows = [dict(made.train(data(0), LOSS, 1e-2))]
        place = self.folder / kind
        place.mkdir(exist_ok=True)
        made.take_reference()
        made.save(place)
        rows += [dict(made.train(data(step), LOSS, 1e-2)) for step in range(1, STEPS)]
        again = self.engine(replace(config, seed=4))
        again.load(place)
        resumed = [dict(again.train(data(step), LOSS, 1e-2)) for step in range(1, STEPS)]
        made._hand_over(1)
        with made.averaged():
            scored = made.logprobs(data(9))
        return {"rows": rows, "resumed": resumed, "handed": made.sampler.sums, "scored": scored}  # type: ignore[attr-defined]

    def engine(self, config: LocalConfig) -> LocalEngine:
        sampler = Taking(takes_adapters=config.dtype == "bfloat16")
        return LocalEngine(build_model(VOCABULARY, 32, 2), [1], config, sampler, self.ranks)


def main() -> None:
    torch.set_num_threads(1)
    ranks = Ranks("cpu")
    course = Course(Path(sys.argv[1]), ranks)
    if ranks.number:
        ranks.follow(course)
        return
    found = {kind: course.take(kind) for kind in KINDS}
    (course.folder / "found.json").write_text(json.dumps(found))
    ranks.end()


if __name__ == "__main__":
    main()
