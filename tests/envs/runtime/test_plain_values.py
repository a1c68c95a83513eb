"""Values that a tool gives without a ToolResult: what the agent reads of them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from toolorchestra.envs.episode.calls import CallResult, ReadyCall
from toolorchestra.envs.runtime.invoke import perform_here
from toolorchestra.envs.tools import Tool, ToolContext


def given(value: Any) -> CallResult:
    tool = Tool("give", "Gives.", {"type": "object", "properties": {}}, lambda context: value, suspends=False)
    return perform_here(ReadyCall(tool, {}, ToolContext(None, 0)))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("a 'text'", "a 'text'"),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        ({"größe": [1, None], "on": False}, '{"größe": [1, null], "on": false}'),
        (("a", 2), '["a", 2]'),
        ({"day": datetime.date(2026, 11, 29)}, '{"day": "2026-11-29"}'),
        ({(1, 2): "a pair"}, "{(1, 2): 'a pair'}"),
    ],
)
def test_it_is_read_as_json(value: Any, read: str) -> None:
    done = given(value)
    assert (done.failure, done.result.content) == (None, read)


async def lazily() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("value", "kind"), [((n for n in "ab"), "generator"), (lazily(), "async_generator"), (map(str, "ab"), "map")]
)
def test_what_is_no_value_yet_fails_the_call(value: Any, kind: str) -> None:
    failure = given(value).failure
    assert failure is not None
    assert failure.error.startswith(f"TypeError: a tool gives a text or a value, got {kind}, ")
