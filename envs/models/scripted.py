"""A model that answers from a function: for tests and plumbing, yours too."""

from __future__ import annotations

from collections.abc import Callable

from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import Tokens, Usage


class ScriptedModel:
    """Completes with `reply(request)`. Tokens are counted as words."""

    suspends = False

    def __init__(self, reply: Callable[[ChatRequest], str], seconds: float = 0.0) -> None:
        self._reply = reply
        self._seconds = seconds

    async def complete(self, request: ChatRequest) -> Completion:
        text = self._reply(request)
        words = sum(len(str(m["content"]).split()) for m in request.messages)
        tokens = Tokens(input=words, output=len(text.split()))
        return Completion(text, Usage(request.model, request.role, tokens, seconds=self._seconds))
