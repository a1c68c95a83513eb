"""What question tools read: the question, the documents and results gathered so far, as text within limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolorchestra.envs.base.types import Message, Passage, Question, Transcript
from toolorchestra.envs.models import DEFAULT_LIMITS, ContextLimits
from toolorchestra.envs.models.simulated import RESULT_MARK


class QuestionMaterial(Protocol):
    """The gathered material of one episode. Tools read it; the world adds to it."""

    @property
    def question(self) -> Question: ...
    @property
    def documents(self) -> Sequence[Passage]: ...
    @property
    def results(self) -> Sequence[str]: ...


def gathered(material: QuestionMaterial, limits: ContextLimits = DEFAULT_LIMITS) -> str:
    """Documents, then computed results; what is too long loses its beginning, since the latest finds stand last."""
    documents = "\n".join(f"[{p.title}] {p.text[: limits.document]}" for p in material.documents)
    results = "\n".join(f"{RESULT_MARK} {_plain(r)}" for r in material.results)[-limits.results :]
    parts = [f"Documents:\n{documents}" if documents else "", results]
    return "\n\n".join(p for p in parts if p)[-limits.total :]


def _plain(text: str) -> str:
    """Put on one line and without the mark, so that what an agent writes cannot pass for further results."""
    return " ".join(text.replace(RESULT_MARK, " ").split())


def brief(
    material: QuestionMaterial, instruction: str, question: str = "", limits: ContextLimits = DEFAULT_LIMITS
) -> Transcript:
    """What an expert is shown: the instruction, the material, the question."""
    found = gathered(material, limits)
    asked = _plain(question) or material.question.text
    body = f"{found}\n\nQuestion: {asked}" if found else f"Question: {asked}"
    return (Message(role="system", content=instruction), Message(role="user", content=body))
