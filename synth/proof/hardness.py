"""What makes a task hard, as a vector, and its level by a stated rule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.domains.toolscale.tool_runs import Called

_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-]|\.\d)")
_TOKEN = re.compile(r"[\w.@+-]+")
ELEMENTS = ("distractors", "arithmetic", "branches", "user", "goal", "paging", "refusals")
"""What makes a task hard for the right reasons. A task has an element where its number is above 0."""
MOST_EASY_REQUESTS = 2
MANY_REQUESTS = 4


def numbers(text: str) -> list[str]:
    """The numbers of a text, as they stand there."""
    return _NUMBER.findall(text)


def level(vector: Mapping[str, int]) -> str:
    """easy: no element and at most two requests; hard: two elements or more, or one in four requests or more; else
    medium."""
    elements = sum(vector[name] > 0 for name in ELEMENTS)
    if not elements:
        return "easy" if vector["requests"] <= MOST_EASY_REQUESTS else "medium"
    return "hard" if elements > 1 or vector["requests"] >= MANY_REQUESTS else "medium"


def hardness(
    shape: Mapping[str, Any], made: Sequence[Called], candidates: Sequence[int], computed: int
) -> dict[str, Any]:
    """The vector of a draft whose gold path gave these results."""
    requests = shape["toolscale"]["requests"]
    vector = {
        "requests": len(requests),
        "depth": depth(requests, made),
        "distractors": sum(number - 1 for number in candidates),
        "arithmetic": computed,
        "branches": sum("branch" in request for request in requests),
        "user": sum("first" in request for request in requests),
        "goal": sum("." in request["intent"] for request in requests),
        "paging": sum(isinstance(page := c.arguments.get("page"), int) and page > 1 for c in made),
        "refusals": sum(request["ending"] == "refuse" for request in requests),
    }
    return {"level": level(vector), **vector}


def depth(requests: Sequence[Mapping[str, Any]], made: Sequence[Called]) -> int:
    """The longest chain of calls of which each takes an argument from a result of the one before."""
    said: set[str] = set()
    for request in requests:
        first = request.get("first", {})
        for text in (*request["say"], *first.get("say", ()), *first.get("then", ())):
            said.update(_TOKEN.findall(text))
    chains: list[tuple[int, frozenset[str]]] = []
    longest = 0
    for called in made:
        wanted = {str(value) for value in called.arguments.values()} - said
        own = 1 + max((length for length, told in chains if wanted & told), default=0)
        chains.append((own, frozenset(_TOKEN.findall(called.text))))
        longest = max(longest, own)
    return longest
