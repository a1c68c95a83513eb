"""Whether a sampler and the trainer hold the same model: log-probabilities of the same tokens, side by side."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from toolorchestra.agents.engines.base import Datum, Probed, Sample, SamplingParams, TrainingFailed
from toolorchestra.envs.base.errors import ConfigError

TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 2e-2}
"""Most mean gap, in nats. In 16 bits two kernels that are both right differ by a few hundredths."""
NOISE = 2.0
"""How many times the trainer's gap to itself, alone and in a batch, the sampler's may be: in 16 bits a logit of 20 is
rounded to an eighth, and no two kernels round alike."""
PROBES, PROBE_TOKENS, PROBE_PROMPT = 4, 8, 160
MOST_LOST = 0.2
"""Largest share that a sampler may lack of what training has changed by an adapter."""
CLEAR = 10.0
"""How much larger the square of a change has to be than that of what else two kernels differ by, to be judged."""
TEMPERATURES = (1.0, 0.5)
"""Temperatures of the probes. There are two: a sampler that reports the log-probabilities of another distribution than
it drew from is found out."""

Scores = Callable[[Sequence[Datum], float], list[list[float]]]


class Drift(TrainingFailed):
    """The sampler's model is not the trainer's."""


class Agreement(NamedTuple):
    """Gaps between the sampler's log-probabilities and the trainer's, in nats."""

    mean: float
    worst: float
    moved: float = 0.0
    """How far training has moved the trainer's from those of the model it began with: root mean square."""
    lost: float = 0.0
    """Share of this change that the sampler lacks; below 0 it has more of it than the trainer. 0 where the change does
    not stand out of what two kernels differ by."""
    noise: float = 0.0
    """The trainer's mean gap to itself: each sequence alone, and all of them in one batch."""


def probe_prompts(vocabulary: int, most_tokens: int, seed: int, asked: Sequence[Sequence[int]] = ()) -> list[list[int]]:
    """The ends of prompts that the model was asked for; random ones where there were none yet. They are longer than a
    prefix cache's block: one that outlived a sync shows."""
    rng = random.Random(seed)
    size = min(PROBE_PROMPT, most_tokens - PROBE_TOKENS)
    if size < 1:
        raise ConfigError(f"the context must hold {PROBE_TOKENS + 1} tokens to verify the sampler, got {most_tokens}")
    if not asked:
        return [[rng.randrange(vocabulary) for _ in range(size)] for _ in range(PROBES)]
    return [list(asked[n % len(asked)])[-size:] for n in range(PROBES)]


def measure(
    sampler: Probed,
    scores: Scores,
    prompts: Sequence[Sequence[int]],
    start: Scores | None = None,
    together: Scores | None = None,
) -> Agreement:
    """Sample a few tokens after each prompt, and let the trainer score what was sampled: each alone, all `together`
    where it can, and by the model that training began with, where that is at hand."""
    theirs, ours, began, batched = (list[float]() for _ in range(4))
    for temperature in TEMPERATURES:
        samples = sampler.probe(prompts, SamplingParams(PROBE_TOKENS, temperature))
        data = [_datum(prompt, sample) for prompt, sample in zip(prompts, samples, strict=True)]
        theirs.extend(p for sample in samples for p in sample.logprobs)
        for ask, kept in ((scores, ours), (start, began), (together, batched)):
            if ask is not None:
                kept.extend(p for scored in ask(data, temperature) for p in scored)
    gaps = [mine - other for mine, other in zip(theirs, ours, strict=True)]
    mean, worst = sum(map(abs, gaps)) / len(gaps), max(map(abs, gaps))
    noise = sum(abs(a - b) for a, b in zip(ours, batched, strict=False)) / max(1, len(batched))
    if not began:
        return Agreement(mean, worst, noise=noise)
    moves = [now - then for now, then in zip(ours, began, strict=True)]
    return Agreement(mean, worst, math.sqrt(_square(moves) / len(moves)), lost_share(gaps, moves), noise)


def _datum(prompt: Sequence[int], sample: Sample) -> Datum:
    given, said = len(prompt), len(sample.tokens)
    mask = [*[False] * given, *[True] * said]
    return Datum([*prompt, *sample.tokens], [*[0.0] * given, *sample.logprobs], [0.0] * (given + said), mask)


def lost_share(gaps: Sequence[float], moves: Sequence[float]) -> float:
    """How much of the trainer's moves the sampler's gaps to it undo: the slope of a straight line through 0. What is
    not on the line is the kernels' own; a change that is no larger cannot be told from it."""
    change = _square(moves)
    if not change:
        return 0.0
    lost = -sum(gap * move for gap, move in zip(gaps, moves, strict=True)) / change
    rest = _square([gap + lost * move for gap, move in zip(gaps, moves, strict=True)])
    return lost if change >= CLEAR * rest else 0.0


def _square(values: Sequence[float]) -> float:
    return sum(value * value for value in values)


def check(found: Agreement, tolerance: float) -> None:
    """Stop a run whose rollouts come from another model than the one that is trained: far from it in nats, or near to
    it and yet not moved as it was."""
    most = max(tolerance, NOISE * found.noise)
    if not found.mean <= most:
        raise Drift(
            f"the sampler's log-probabilities differ from the trainer's by {found.mean:.2g} nats on average (worst "
            f"{found.worst:.2g}), and the trainer's in a batch from those alone by {found.noise:.2g}; expected at most "
            f"{most:g}. Check that every weight was handed over (lm_head too), that both use one dtype and its cache "
            "no narrower one (model.cache=auto), that no default of the server's changes the distribution (start it "
            "with --generation-config vllm --logprobs-mode processed_logprobs), and that its prefix cache is salted or "
            "reset"
        )
    if not abs(found.lost) <= MOST_LOST:
        raise Drift(
            f"training has changed the log-probabilities by {found.moved:.2g} nats, and the sampler lacks "
            f"{found.lost:.0%} of this change; expected at most {MOST_LOST:.0%}. Its weights are nearly those that the "
            "run began with, which a mean gap does not tell while the change is small. Check that it was given the "
            "adapter alone and in its own scale, and not weights of 16 bits that the adapter was added into (these "
            "round it away)"
        )
