"""A model backend of your own: any function from messages to a text stands behind the question worlds' experts.

    python model_backend.py

What it used goes onto the bill, under the prices of the sheet. A backend that waits for a network sets `suspends` to
True.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.tools.assemble import Backends
from toolorchestra.envs.tools.backends import Backing, Wanted


class FunctionModel:
    """Completes by a function. Tokens are counted as words."""

    suspends = False

    def __init__(self, reply: Callable[[str], str]) -> None:
        self._reply = reply

    async def complete(self, request: ChatRequest) -> Completion:
        """One completion, with what it used."""
        asked = "\n".join(str(message["content"]) for message in request.messages)
        text = self._reply(asked)
        tokens = Tokens(input=len(asked.split()), output=len(text.split()))
        return Completion(text, Usage(request.model, request.role, tokens, seconds=0.5))


def last_word(asked: str) -> str:
    """Not a clever model."""
    return asked.split()[-1]


def backing(reply: Callable[[str], str]) -> Backing:
    """Backends in which the function stands behind every model; all else stays embedded."""

    def around(embedded: Backends) -> Backends:
        return replace(embedded, models=FunctionModel(reply))

    return Backing(Wanted("model_backend.py"), around)


def main() -> None:
    """Ask it once, and print the bill."""
    env = gym.make("ToolOrchestra/HLE-v0", backends=backing(last_word), preference="none")
    env.reset(seed=1)
    info = env.step(render_call("answer", {"model": "answer-1"}))[4]
    print(info["outcome"]["evidence"]["answer"], info["ledger"]["usd_by_role"])


if __name__ == "__main__":
    main()
