"""Chat-model backends behind one protocol. A request says in typed fields what it is for; nobody reads model names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from toolorchestra.envs.prices import Usage
from toolorchestra.envs.types import Question, Transcript

Purpose = Literal["query", "code", "answer"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One completion to make."""

    model: str
    """Price sheet item and backend name of the model."""
    purpose: Purpose
    messages: Transcript
    seed: int = 0
    attempt: int = 0
    """Number of the turn: asking the same again may go better."""
    truth: Question | None = None
    """For simulated models only: what is being asked, with its answer. Real backends never see it."""


class Completion(NamedTuple):
    """What came back, and what it used."""

    text: str
    usage: Usage


class ChatModel(Protocol):
    """A backend. `suspends` says whether completing waits for I/O."""

    @property
    def suspends(self) -> bool: ...

    async def complete(self, request: ChatRequest) -> Completion: ...
