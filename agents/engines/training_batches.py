"""Which sequences go through the model together in training, and what they begin with in common.

A group's rollouts share their prompt, which is most of a sequence. In one batch it is run once, and the gradients of
all meet in it: the same step, for a fraction of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.engines.decoder import KNOWN
from toolorchestra.agents.engines.settings import EngineSettings

LEAST_PARAMETERS = 10_000_000
"""Of a model for which fewer tokens make up for more passes; the passes of a smaller one are bound by overhead."""
MOST_PADDING = 0.05
"""Share of a large model's batch that is padding: beyond it the shorter sequences get a batch of their own."""
MOST_PADDING_OF_SMALL = 0.1
"""The same of a small model, for which one more pass costs more than some padding."""
LEAST_SHARED = 64
"""Tokens in common below which it is not worth two passes."""


def can_share(model: Any, settings: EngineSettings) -> bool:
    """Whether a prompt is run once for several sequences: of plain attention, with its activations kept, and large."""
    plain = model.config.model_type in KNOWN and not settings.gradient_checkpointing
    return plain and is_large(model)


def is_large(model: Any) -> bool:
    """Whether a pass takes as long as its tokens, and not as long as its overhead."""
    return bool(sum(p.numel() for p in model.parameters()) >= LEAST_PARAMETERS)


def batches(
    data: Sequence[Datum], tokens: int, *, share: bool = False, most_padding: float = 1.0
) -> Iterator[list[Datum]]:
    """Sequences of like length together, at most this many padded tokens at a time, and at most this share of them
    padding; where `share`, those that begin alike, whose beginning counts once, however much is padded behind it. Those
    without a token that counts are left out."""
    learnt = [d for d in data if any(d.mask)]
    groups = alike(learnt) if share else [[d] for d in learnt]
    alone = [group[0] for group in groups if len(group) == 1]
    together = [group for group in groups if len(group) > 1]
    return chain(*(_cut(group, tokens, share, most_padding) for group in [*together, alone]))


def alike(data: Sequence[Datum]) -> list[list[Datum]]:
    """Groups of those that have at least half of their tokens in common with the first."""
    groups: list[list[Datum]] = []
    for d in sorted(data, key=lambda d: list(d.tokens)):
        if groups and 2 * _worth(shared([groups[-1][0], d])) >= len(d.tokens):
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def _worth(common: int) -> int:
    return common if common >= LEAST_SHARED else 0


def shared(batch: Sequence[Datum]) -> int:
    """How many tokens all of them begin with, before the token whose successor is the first that counts."""
    most = min(list(d.mask).index(True) - 1 for d in batch)
    first, most = batch[0].tokens, max(most, 0)
    for d in batch[1:]:
        most = next((i for i in range(most) if d.tokens[i] != first[i]), most)
    return most


def _cut(data: Sequence[Datum], tokens: int, share: bool, most_padding: float) -> Iterator[list[Datum]]:
    left = sorted(data, key=lambda d: len(d.tokens))
    while left:
        common = _worth(shared(left)) if share and len(left) > 1 else 0
        longest = len(left[-1].tokens)
        count = max(1, (tokens - common) // max(1, longest - common))
        if not common:  # what is run once pays for more padding than this
            filled = accumulate(len(d.tokens) for d in reversed(left[-count:]))
            count = sum(1 for n, real in enumerate(filled, 1) if real >= (1 - most_padding) * n * longest)
        batch, left = left[-count:], left[:-count]
        yield batch


def hidden_states(base: Any, tokens: Tensor, common: int) -> Tensor:
    """Of every place behind the first `common`, which all rows have alike and which are run once."""
    if not common:
        # Padding stands on the right, so causal attention alone keeps it out of sight.
        made: Tensor = base.model(input_ids=tokens, use_cache=False).last_hidden_state
        return made
    from transformers import DynamicCache

    cache: Any = DynamicCache()
    base.model(input_ids=tokens[:1, :common], past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys = layer.keys.expand(len(tokens), -1, -1, -1)
        layer.values = layer.values.expand(len(tokens), -1, -1, -1)
    made = base.model(input_ids=tokens[:, common:], past_key_values=cache, use_cache=True).last_hidden_state
    return torch.nn.functional.pad(made, (0, 0, common, 0))
