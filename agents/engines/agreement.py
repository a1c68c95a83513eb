"""Whether a sampler and the trainer hold the same model: log-probabilities of the same tokens, side by side."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from toolorchestra.agents.engines.base import Datum, Probed, SamplingParams
from toolorchestra.envs.base.errors import ConfigError

TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 2e-2}
"""Most mean gap, in nats. In 16 bits two kernels that are both right differ by a few hundredths."""
PROBES, PROBE_TOKENS, PROBE_PROMPT = 4, 8, 160
MOST_LOST = 0.2
"""Largest share that a sampler may lack of what training has changed by an adapter."""
CLEAR = 10.0
"""How much larger the square of a change has to be than that of what else two kernels differ by, to be judged."""
TEMPERATURES = (1.0, 0.5)
"""Temperatures of the probes. There are two: a sampler that reports the log-probabilities of another distribution than
it drew from is found out."""

Scores = Callable[[Sequence[Datum], float], list[list[float]]]


class Drift(RuntimeError):
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


class ProbeLogprobs(NamedTuple):
    """Log-probabilities of the tokens that were sampled after the probes."""

    sampler: list[float]
    trainer: list[float]
    start: list[float]
    """Log-probabilities by the model that training began with, where it is at hand."""


def probe_prompts(vocabulary: int, most_tokens: int, seed: int) -> list[list[int]]:
    """The same prompts after every sync, longer than a prefix cache's block: one that outlived the sync shows too."""
    rng = random.Random(seed)
    size = min(PROBE_PROMPT, most_tokens - PROBE_TOKENS)
    if size < 1:
        raise ConfigError(f"the context must hold {PROBE_TOKENS + 1} tokens to verify the sampler, got {most_tokens}")
    return [[rng.randrange(vocabulary) for _ in range(size)] for _ in range(PROBES)]


def measure(
    sampler: Probed, scores: Scores, prompts: Sequence[Sequence[int]], start: Scores | None = None
) -> Agreement:
    """Sample a few tokens after each prompt, and let the trainer score what was sampled; and the model that training
    began with, where it is at hand."""
    found = probed(sampler, scores, prompts, start)
    gaps = [ours - theirs for ours, theirs in zip(found.sampler, found.trainer, strict=True)]
    sizes = [abs(gap) for gap in gaps]
    mean, worst = sum(sizes) / len(sizes), max(sizes)
    if not found.start:
        return Agreement(mean, worst)
    moves = [now - then for now, then in zip(found.trainer, found.start, strict=True)]
    return Agreement(mean, worst, math.sqrt(_square(moves) / len(moves)), lost_share(gaps, moves))


def probed(
    sampler: Probed, scores: Scores, prompts: Sequence[Sequence[int]], start: Scores | None = None
) -> ProbeLogprobs:
    """Samples a few tokens after each prompt and scores them; returns the log-probabilities that measure() compares."""
    made = ProbeLogprobs([], [], [])
    for temperature in TEMPERATURES:
        samples = sampler.probe(prompts, SamplingParams(PROBE_TOKENS, temperature))
        data = [
            Datum(
                [*prompt, *sample.tokens],
                [*[0.0] * len(prompt), *sample.logprobs],
                [0.0] * (len(prompt) + len(sample.tokens)),
                [*[False] * len(prompt), *[True] * len(sample.tokens)],
            )
            for prompt, sample in zip(prompts, samples, strict=True)
        ]
        made.sampler.extend(p for sample in samples for p in sample.logprobs)
        made.trainer.extend(p for scored in scores(data, temperature) for p in scored)
        if start is not None:
            made.start.extend(p for scored in start(data, temperature) for p in scored)
    return made


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
    if not found.mean <= tolerance:
        raise Drift(
            f"the sampler's log-probabilities differ from the trainer's by {found.mean:.2g} nats on average (worst "
            f"{found.worst:.2g}); expected at most {tolerance:g}. Check that every weight was handed over (lm_head "
            "too), that both use one dtype, that no default of the server's changes the distribution (start it with "
            "--generation-config vllm --logprobs-mode processed_logprobs), and that its prefix cache is salted or "
            "reset; where a 16-bit model merely rounds more, raise model.tolerance"
        )
    if not abs(found.lost) <= MOST_LOST:
        raise Drift(
            f"training has changed the log-probabilities by {found.moved:.2g} nats, and the sampler lacks "
            f"{found.lost:.0%} of this change; expected at most {MOST_LOST:.0%}. Its weights are nearly those that the "
            "run began with, which a mean gap does not tell while the change is small. Check that it was given the "
            "adapter alone and in its own scale, and not weights of 16 bits that the adapter was added into (these "
            "round it away)"
        )
