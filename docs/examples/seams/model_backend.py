"""A model backend of your own: any function from messages to a text stands behind the question worlds' experts.

    python model_backend.py

What it used goes onto the bill, under the prices of the sheet. A backend that waits for a network sets `suspends` to
True.
"""

from __future__ import annotations

from collections.abc import Callable

import toolorchestra as to


class FunctionModel:
    """Completes by a function. Tokens are counted as words."""

    suspends = False

    def __init__(self, reply: Callable[[str], str]) -> None:
        self._reply = reply

    async def complete(self, request: to.ChatRequest) -> to.Completion:
        """One completion, with what it used."""
        asked = "\n".join(str(message["content"]) for message in request.messages)
        text = self._reply(asked)
        tokens = to.Tokens(input=len(asked.split()), output=len(text.split()))
        return to.Completion(text, to.Usage(request.model, request.role, tokens, seconds=0.5))


def last_word(asked: str) -> str:
    """Not a clever model."""
    return asked.split()[-1]


def main() -> None:
    """Ask it once, and print the bill."""
    env = to.make("HLE-v0", backends=FunctionModel(last_word), preference="none")
    env.reset(seed=1)
    info = env.step(to.render_call("answer", {"model": "answer-1"}))[4]
    print(info["outcome"]["evidence"]["answer"], info["ledger"]["usd_by_role"])


if __name__ == "__main__":
    main()
