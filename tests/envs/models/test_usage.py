"""What honest servers say of a reply's usage, each in its own way, and what is billed for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolorchestra.envs.models.streamed_reply import StreamedReply
from toolorchestra.envs.models.usage import usage_of
from toolorchestra.envs.models.wire import Sent
from toolorchestra.envs.money.prices import Tokens

SENT = Sent(3600, 5000, 200)
THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 5000}}


def openais(prompt: Any, completion: Any, total: Any = None, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **more}


@pytest.mark.parametrize(
    ("usage", "tokens", "marked"),
    [
        (openais(900, 100, 1000), Tokens(900, 0, 100, 0), False),
        (openais(900, 100, 6000, **THOUGHT), Tokens(900, 0, 100, 5000), True),
        (openais(900, 100, 1060, completion_tokens_details={"reasoning_tokens": 60}), Tokens(900, 0, 100, 60), False),
        (openais(900, 100, 1000, completion_tokens_details={"reasoning_tokens": 60}), Tokens(900, 0, 40, 60), False),
        (openais(900, 8000, 8900), Tokens(900, 0, 8000, 0), True),
        (openais(60_000, 100, 60_100), Tokens(60_000, 0, 100, 0), True),
        (openais(900, 100, 1500), Tokens(900, 0, 600, 0), True),
        (openais("900", "100", "1000"), Tokens(900, 0, 100, 0), False),
        ({"input_tokens": 900, "output_tokens": 100}, Tokens(900, 0, 100, 0), False),
        (openais(900, 100, 1000, prompt_cache_hit_tokens=300), Tokens(600, 300, 100, 0), False),
        (openais(900, 10**9, 10**9 + 900), Tokens(900, 0, 2, 0), True),
        (openais(900, 8000), Tokens(900, 0, 2, 0), True),
        (openais("many", 100), Tokens(900, 0, 2, 0), True),
    ],
    ids=[
        "OpenAI's", "thought apart", "a little thought apart", "thought within", "more than was allowed",
        "pages that the server added", "more in the total alone", "as text", "by other names", "cached, DeepSeek's",
        "absurd", "more than was allowed, and no total", "none",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["usage", "x_groq", "choices"])
def test_the_larger_of_what_adds_up_is_billed_and_marked(
    place: str, usage: dict[str, Any], tokens: Tokens, marked: bool
) -> None:
    replies = {
        "usage": {"usage": usage},
        "x_groq": {"x_groq": {"usage": usage}},
        "choices": {"choices": [{"usage": usage}]},
    }
    counts = tokens != Tokens(900, 0, 2, 0)
    assert usage_of(replies[place], SENT, "x" * 100, "x" * 8) == ((tokens, marked), counts)


def streamed(*usages: dict[str, Any]) -> tuple[Tokens, bool]:
    made = StreamedReply(lambda text: text)
    for usage in usages:
        made.feed(f"data: {json.dumps({'choices': [{'delta': {'content': 'four'}}], 'usage': usage})}\n\n".encode())
    made.feed(b"data: [DONE]\n\n")
    return usage_of(json.loads(made.raw), SENT, made.raw, "x" * 8)[0]


def test_a_usage_of_each_piece_adds_up_and_one_of_all_so_far_does_not() -> None:
    assert streamed(openais(900, 3), openais(900, 3), openais(900, 2)) == (Tokens(900, 0, 8, 0), True)
    assert streamed(*[openais(900, 1)] * 8) == (Tokens(900, 0, 8, 0), True)
    assert streamed(openais(900, 5), openais(0, 1), openais(0, 2)) == (Tokens(900, 0, 8, 0), True)
    assert streamed(openais(900, 3), openais(900, 6), openais(900, 8)) == (Tokens(900, 0, 8, 0), False)
    assert streamed(openais(900, 0), openais(900, 0), openais(900, 8)) == (Tokens(900, 0, 8, 0), False)
