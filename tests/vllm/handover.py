"""How much of a LoRA update reaches vLLM, by the adapter alone and by weights of 16 bits that it was added into.

A random Qwen3 whose weights bfloat16 holds exactly is trained for some steps by an adapter. Then vLLM is handed the
adapter alone, or whole weights with the adapter added in and rounded to bfloat16, and samples. The tokens that it
sampled are scored by the trainer, and by the model that training began with. KL(sampler || trainer) is what the
hand-over lost, KL(sampler || start) how far the sampler is from the untrained model; both are estimated from these
tokens as the mean of exp(d) - d - 1, d being the difference of the log-probabilities.

In float32 nothing but the hand-over is seen. In bfloat16 the two sides' kernels differ too: the row of 0 steps is that
difference alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY
from toolorchestra.agents.engines import agreement
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.lora import adapter_of
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import VllmSampler
from toolorchestra.agents.engines.weights import held_in, named_weights

ALONE, MERGED = "adapter alone", "merged in bfloat16"
PROMPT = 24
CPU = torch.device("cpu")


class Shape(NamedTuple):
    """Of what is trained."""

    hidden: int = 128
    layers: int = 2
    rank: int = 64


class Row(NamedTuple):
    """One hand-over."""

    dtype: str
    """That both sides compute in."""
    rate: float
    steps: int
    way: str
    to_trainer: float
    """KL of the sampler to the trainer."""
    to_start: float
    """KL of the sampler to the untrained model."""
    lost: float
    """Share of the change that it lacks, by the check of each sync; 0 where the kernels hide it."""

    @property
    def ratio(self) -> float:
        """What has to be small."""
        return self.to_trainer / self.to_start


def divergence(sampled: Sequence[float], scored: Sequence[float]) -> float:
    """KL of the distribution that was sampled from to the one that scored, from the sampled tokens."""
    gaps = [b - a for a, b in zip(sampled, scored, strict=True)]
    return sum(math.expm1(gap) - gap for gap in gaps) / len(gaps)


def lessons(count: int = 8, size: int = 48) -> list[Datum]:
    """Texts to imitate, the same in every run."""
    rng = random.Random(5)
    texts = [[rng.randrange(2, VOCABULARY) for _ in range(size)] for _ in range(count)]
    given = [False] * PROMPT + [True] * (size - PROMPT)
    return [Datum(text, [0.0] * size, [1.0] * size, given) for text in texts]


def untrained(shape: Shape, dtype: str, sampler: VllmSampler) -> LocalEngine:
    """The engine before training."""
    rounded = held_in(build_model(VOCABULARY, shape.hidden, shape.layers), CPU, torch.bfloat16)
    config = LocalConfig(length=CONFIG.length, lora_rank=shape.rank, dtype=dtype)
    return LocalEngine(held_in(rounded, CPU, torch.float32), [STOP], config, sampler)


def handed_over(engine: LocalEngine, way: str, rate: float, steps: int) -> Row:
    """What the sampler has of the engine's training when it was given it in this way."""
    sampler: Any = engine.sampler
    version = max(0, sampler.version) + 1
    if way == ALONE:
        sampler.sync(named_weights(engine.model, adapted=False), version, adapter_of(engine.model, version))
    else:
        merged = named_weights(engine.model)
        sampler.sync(((name, weight.bfloat16().to(weight.dtype)) for name, weight in merged), version)
    prompts = [d.tokens[:size] for d in lessons() for size in (PROMPT - 8, PROMPT, PROMPT + 8)]
    found = agreement.probed(sampler, engine.logprobs, prompts, engine.first_logprobs)
    gaps = [a - b for a, b in zip(found.sampler, found.trainer, strict=True)]
    moves = [a - b for a, b in zip(found.trainer, found.start, strict=True)]
    to_trainer, to_start = (divergence(found.sampler, other) for other in (found.trainer, found.start))
    return Row(engine.config.dtype, rate, steps, way, to_trainer, to_start, agreement.lost_share(gaps, moves))


def measure(sampler: VllmSampler, shape: Shape, rates: Sequence[float], steps: int) -> Iterator[Row]:
    """One hand-over before training, and both ways after this many steps at each rate."""
    dtype = sampler.config.dtype
    yield handed_over(untrained(shape, dtype, sampler), ALONE, 0.0, 0)
    for rate in rates:
        engine = untrained(shape, dtype, sampler)
        for _ in range(steps):
            engine.train(lessons(), LossParams("cross_entropy"), rate)
        for way in (ALONE, MERGED):
            yield handed_over(engine, way, rate, steps)
