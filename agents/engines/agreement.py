"""Whether a sampler and the trainer hold the same model: log-probabilities of the same tokens, side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from toolorchestra.agents.engines.base import Datum, Probed, SamplingParams
from toolorchestra.envs.base.errors import ConfigError

TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 2e-2}
"""Most mean gap, in nats. In 16 bits two kernels that are both right differ by a few hundredths."""
PROBES, PROBE_TOKENS, PROBE_PROMPT = 4, 8, 160
TEMPERATURES = (1.0, 0.5)
"""Two of them: a sampler that reports the log-probabilities of another distribution than it drew from is found out."""

Scores = Callable[[Sequence[Datum], float], list[list[float]]]


class Drift(RuntimeError):
    """The sampler's model is not the trainer's."""


class Agreement(NamedTuple):
    """Gaps between the sampler's log-probabilities and the trainer's, in nats."""

    mean: float
    worst: float


def probe_prompts(vocabulary: int, most_tokens: int, seed: int) -> list[list[int]]:
    """The same prompts after every sync, longer than a prefix cache's block: one that outlived the sync shows too."""
    rng = random.Random(seed)
    size = min(PROBE_PROMPT, most_tokens - PROBE_TOKENS)
    if size < 1:
        raise ConfigError(f"the context must hold {PROBE_TOKENS + 1} tokens to verify the sampler, got {most_tokens}")
    return [[rng.randrange(vocabulary) for _ in range(size)] for _ in range(PROBES)]


def measure(sampler: Probed, scores: Scores, prompts: Sequence[Sequence[int]]) -> Agreement:
    """Sample a few tokens after each prompt, and let the trainer score what was sampled."""
    gaps: list[float] = []
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
        for sample, scored in zip(samples, scores(data, temperature), strict=True):
            gaps += [abs(a - b) for a, b in zip(sample.logprobs, scored, strict=True)]
    return Agreement(sum(gaps) / len(gaps), max(gaps))


def check(found: Agreement, tolerance: float) -> None:
    """Stop a run whose rollouts come from another model than the one that is trained."""
    if not found.mean <= tolerance:
        raise Drift(
            f"the sampler's log-probabilities differ from the trainer's by {found.mean:.2g} nats on average (worst "
            f"{found.worst:.2g}); expected at most {tolerance:g}. Check that every weight was handed over (lm_head "
            "too), that both use one dtype, that no default of the server's changes the distribution (start it with "
            "--generation-config vllm --logprobs-mode processed_logprobs), and that its prefix cache is salted or "
            "reset; where a 16-bit model merely rounds more, raise model.tolerance"
        )
