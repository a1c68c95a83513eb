"""The seam between the algorithm and whatever runs the model: tokens in, tokens out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol


class SamplingParams(NamedTuple):
    """How one turn is sampled."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest token."""


class Sample(NamedTuple):
    """One sampled turn: the exact ids, with their log-probabilities under the distribution they were drawn from."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool
    """Whether the model ended its turn; False when it ran into max_tokens."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One append-only sequence. Advantage 0 masks a token: prompts, tool results, filtered turns."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Of the sampler; 0 where nothing was sampled."""
    advantages: Sequence[float]


@dataclass(frozen=True, slots=True)
class LossParams:
    """The loss of one optimiser step, a mean over all tokens that are not masked."""

    kind: Literal["ppo", "cross_entropy"] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 10.0
    """Bound on the loss of tokens with a negative advantage whose probability has grown."""
    kl: Literal["", "k2", "k3"] = ""
    """Estimator of the KL to the reference model; "" leaves it out."""
    kl_weight: float = 0.0
    entropy_weight: float = 0.0
    temperature: float = 1.0
    """At which the data were sampled: log-probabilities are of that distribution."""


class Engine(Protocol):
    """A model that can be sampled from and trained."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt. Prompts of one session extend each other, which lets an engine keep its cache."""

    def release(self, session: str) -> None:
        """The session is over: its cache may go."""

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """One optimiser step; metrics as plain numbers."""

    def averaged(self) -> AbstractContextManager[None]:
        """While it lasts, sampling is from the running average of the weights, where the engine keeps one."""

    def save(self, path: Path) -> None:
        """Weights, optimiser and random state into a folder."""

    def load(self, path: Path) -> None:
        """What save() wrote."""
