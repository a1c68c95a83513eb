"""Chat-model backends behind one protocol. A request says in typed fields what it is for; nobody reads model names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from toolorchestra.envs.prices import EXPERT, Usage
from toolorchestra.envs.types import Question, Transcript

Purpose = Literal["query", "code", "answer", "move", "user", "judge"]
"""A search query, a program, an answer, a turn of the agent's on its behalf, a simulated user's turn, a verdict."""


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
    tools: Sequence[Mapping[str, Any]] = ()
    """Schemas of tools that the model may call. Native calls come back as text, in the action grammar."""
    role: str = EXPERT
    """Under which role of the ledger the completion is billed."""


class Completion(NamedTuple):
    """What came back, and what it used."""

    text: str
    usage: Usage


class ChatModel(Protocol):
    """A backend. `suspends` says whether completing waits for I/O."""

    @property
    def suspends(self) -> bool: ...

    async def complete(self, request: ChatRequest) -> Completion: ...
