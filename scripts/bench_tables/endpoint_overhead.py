"""What a call of a model costs this process, beside a bare client: `bench.py --table endpoints`. CPU times.

A server in another process answers at once. 512 calls are in flight, of the same conversation: by the SDK alone, by
the models backend with its limits, bill and checks, and by whole evaluated episodes, whose tools and grading are in it.
The three take turns, and the least of the rounds counts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.factory import factory
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.openai import OpenAiModels
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.tools.backends import Backing, Wanted

IN_FLIGHT, CALLS, ROUNDS = 512, 3072, 3
ASKED = (Message(role="system", content="x" * 2000), Message(role="user", content="y" * 2000))


def serve(pipe: Connection) -> None:
    """The server, until the pipe is closed."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        server.seen.clear()
        text = asked.text
        answered = "<answer>" in text
        calls = [("search", "search-3"), ("enhance_reasoning", "reasoner-3"), ("answer", "answer-4")]
        name, alias = calls[min(text.count("<tool_response>"), 2)]
        return ServerReply("<answer>42</answer>" if answered else render_call(name, {"model": alias}))

    with Loopback(reply) as server:
        pipe.send(server.base_url)
        with suppress(EOFError):
            pipe.recv()


async def _all(make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one() -> None:
        async with places:
            await make()

    await asyncio.gather(*(one() for _ in range(CALLS)))


async def bare(url: str) -> int:
    """The SDK alone. Gives how many calls were made."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="none", base_url=url, max_retries=0)
    messages: Any = [dict(message) for message in ASKED]
    await _all(lambda: client.chat.completions.create(model="m", messages=messages, max_tokens=64))
    await client.close()
    return CALLS


def _endpoints(url: str) -> Endpoints:
    ends = {"here": {"base_url": url, "in_flight": IN_FLIGHT}}
    row = {"price": {"usd_per_mtok": {"input": 1, "output": 1}}}
    return Endpoints.read({"endpoints": ends, "models": {"*": row}}, "bench")


async def backend(url: str) -> int:
    """The models backend."""
    models = OpenAiModels(_endpoints(url))
    await _all(lambda: models.complete(ChatRequest("m", "answer", ASKED)))
    await models.aclose()
    return CALLS


async def episodes(url: str) -> int:
    """Whole episodes: the orchestrator and its experts behind the server."""
    made = factory(**gym.spec(full_id("HLE-v0")).kwargs, backends=Backing(Wanted("bench", endpoints=_endpoints(url))))
    trials = trials_of("HLE-v0", made, "chat", IN_FLIGHT, 0, 1)
    run = EvaluationRun()
    await run.play(Contest("HLE-v0", made.settings.split, "chat", made, player("chat", made), trials), IN_FLIGHT)
    assert all(row.status == "ended" for row in run.rows.values())
    return sum(row.turns + sum(row.calls.values()) for row in run.rows.values())


def rows() -> Sequence[str]:
    """The table's lines, in Markdown."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = ours.recv()
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, way in (("the SDK alone", bare), ("the models backend", backend), ("evaluated episodes", episodes)):
            began = time.process_time()
            calls = asyncio.run(way(url))
            each = 1000 * (time.process_time() - began) / calls
            best[name] = min(each, best.get(name, each))
    ours.close()
    floor = best["the SDK alone"]
    lines = [f"| {name} | {each:.2f} | {each / floor:.2f} |" for name, each in best.items()]
    return [f"| {IN_FLIGHT} calls in flight | CPU ms a call | times the SDK |", "|---|---|---|", *lines]
