"""An engine of your own: a class that samples tokens and takes optimiser steps, named on the command line.

    PYTHONPATH=. toolorchestra train --engine engine:CountingEngine --out run

This one hands all work to the packaged engine, and counts what passes through. Write the verbs yourself where another
program holds the model; `toolorchestra.agents.testing.check_engine` tries whether an engine keeps its promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training.build import build


class CountingEngine:
    """Counts sampled tokens and optimiser steps, and reports both among the metrics."""

    def __init__(self, config: TrainConfig, chat: Chat) -> None:
        del chat  # the packaged engine makes the same one
        self._inner, _ = build(replace(config, engine="local"))
        self.sampled = self.steps = 0

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """See Engine."""
        sample: Sample = await self._inner.sample(prompt, params, session)
        self.sampled += len(sample.tokens)
        return sample

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """See Engine."""
        self.steps += 1
        metrics = self._inner.train(data, loss, learning_rate)
        return {**metrics, "sampled_tokens": float(self.sampled), "optimiser_steps": float(self.steps)}

    def __getattr__(self, verb: str) -> Any:
        """All other verbs: release, take_reference, averaged, save, load, start_from, close."""
        return getattr(self._inner, verb)
