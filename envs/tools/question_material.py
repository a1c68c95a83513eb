"""What question tools read: the question, the documents and results gathered so far, as text within limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from toolorchestra.envs.base.types import Message, Passage, Question
from toolorchestra.envs.models import DEFAULT_LIMITS, ChatModel, ChatRequest, ContextLimits, Purpose, ask, limits_of
from toolorchestra.envs.models.simulated import RESULT_MARK
from toolorchestra.envs.tools import ToolContext


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
    results = _last("\n".join(f"{RESULT_MARK} {_plain(r)}" for r in material.results), limits.results)
    parts = [f"Documents:\n{documents}" if documents else "", results]
    return _last("\n\n".join(p for p in parts if p), limits.total)


def _last(text: str, most: int) -> str:
    return text[-most:] if most else ""


def _plain(text: str) -> str:
    """Put on one line and without the mark, so that what an agent writes cannot pass for further results."""
    return " ".join(text.replace(RESULT_MARK, " ").split())


class Experts(NamedTuple):
    """The models behind a tool's aliases, which see everything gathered."""

    models: ChatModel
    model_of: Mapping[str, str]

    async def say(
        self, context: ToolContext, alias: str, purpose: Purpose, instruction: str, question: str = ""
    ) -> str:
        """What one of them replies to the instruction, the material and the question."""
        material: QuestionMaterial = context.world
        model, truth = self.model_of[alias], material.question
        found = gathered(material, limits_of(self.models, model))
        asked = f"Question: {_plain(question) or truth.text}"
        shown = f"{found}\n\n{asked}" if found else asked
        messages = (Message(role="system", content=instruction), Message(role="user", content=shown))
        request = ChatRequest(
            model, purpose, messages, context.seed, context.turn, truth, images=truth.images, bill=context.bill
        )
        return (await ask(self.models, request)).text
