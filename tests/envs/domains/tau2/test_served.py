"""Tau2-v0's user behind a real server on loopback: it speaks, is billed, and fails the episode when it breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tau2_playing import SOURCE, needs_package
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.factory import factory
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.runtime.driver import advance, begin
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply

pytest.importorskip("openai", reason='needs pip install ".[models]"')
from toolorchestra.envs.models.openai import OpenAiModels

pytestmark = needs_package
ITEM = "gpt-5-mini"


def played(server: Loopback) -> tuple[str, Step]:
    """The user's first words, and the step in which the agent says goodbye."""
    row = {"deadline_seconds": 2.0, "patience_seconds": 4.0, "retries": 1}
    ends = {"endpoints": {"here": {"base_url": server.base_url}}, "models": {"*": row}}
    models = OpenAiModels(Endpoints.read(ends, "test"), seed=0)
    settings: dict[str, Any] = {"domain": "retail", "split": "test", "user": "llm", "preference": "none"}

    async def talk() -> tuple[str, Step]:
        try:
            episode = factory(SOURCE, user_model=(models, ITEM), **settings).start(3).episode
            observation = await begin(episode, Gates())
            first = str(observation["messages"][-1]["content"])
            return first, await advance(episode, "Is there anything else?", Gates())
        finally:
            await models.aclose()

    return asyncio.run(talk())


def test_a_served_user_opens_leaves_and_is_billed_as_the_user() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}

    def customer(asked: ReceivedRequest) -> ServerReply:
        del asked
        return ServerReply("###STOP###" if len(server.seen) > 1 else "I want to return a lamp.", usage=usage)

    with Loopback(customer) as server:
        first, step = played(server)
    assert first == "I want to return a lamp."
    assert step.terminated
    assert step.info["outcome"]["evidence"]["termination"] == "user_stop"
    assert len(server.seen) == 2
    bought = [c for c in step.info["charges"] if c.usage.role == "user"]
    assert [(c.usage.tokens.input, c.usage.tokens.output) for c in bought] == [(1000, 10)] * 2


def test_a_served_user_that_breaks_fails_the_episode() -> None:
    with Loopback(lambda asked: ServerReply("oops", 500)) as server:
        _, step = played(server)
    assert step.reward != step.reward  # nan: no evidence of anything
    assert step.info["failed"]
