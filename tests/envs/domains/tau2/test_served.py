"""Tau2-v0's user behind a real server on loopback: native calls, and one that breaks fails the episode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.loopback import Loopback, ServerReply
from tests.tau2_playing import SOURCE, needs_package
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.users import understood
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.factory import factory
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.wire import text_of
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

pytest.importorskip("openai", reason='needs pip install ".[models]"')
from toolorchestra.envs.models.openai import OpenAiModels

pytestmark = needs_package
ITEM = "gpt-5-mini"


def played(server: Loopback) -> tuple[str, Step]:
    """The user's first words, and the step in which the agent says goodbye."""
    row = {"deadline_seconds": 2.0, "patience_seconds": 4.0, "retries": 1}
    ends = {"endpoints": {"here": {"base_url": server.base_url}}, "models": {"*": row}}
    models = OpenAiModels(Endpoints.read(ends, "test"), seed=0)
    settings: dict[str, Any] = {"domain": "retail", "split": "test", "user": (models, ITEM), "preference": "none"}

    async def talk() -> tuple[str, Step]:
        try:
            episode = factory(SOURCE, **settings).start(3).episode
            observation = await begin(episode, Gates())
            first = str(observation["messages"][-1]["content"])
            return first, await advance(episode, "Is there anything else?", Gates())
        finally:
            await models.aclose()

    return asyncio.run(talk())


def test_a_call_that_a_native_user_quotes_is_words_and_one_in_text_mode_is_a_call() -> None:
    reply = {"choices": [{"message": {"content": f"I read {render_call('toggle_data', {})}"}}]}
    request = ChatRequest("m", "user", ())
    assert understood(text_of(reply, request, native=True)).calls == ()
    assert "I read < tool_call>" in understood(text_of(reply, request, native=True)).text
    assert understood(text_of(reply, request)).calls == (ToolCall("toggle_data", {}),)


def test_a_native_call_that_cannot_be_read_is_asked_for_again_and_never_told_to_the_agent() -> None:
    broken = ServerReply(None, calls=({"name": "check_status_bar", "arguments": "{"},))
    with Loopback(lambda asked: broken if len(server.seen) < 3 else ServerReply("Hello. ###STOP###")) as server:
        first, step = played(server)
    assert first.startswith("<instructions>")  # the system message is the last: the customer said nothing
    assert len(server.seen) == 2  # asked again once, as the file says
    assert "native call cannot be read" in step.info["failed"]["error"]
