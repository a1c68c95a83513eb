"""What a call of a model costs this process, beside a bare client: `make bench`. CPU times.

A server in another process answers at once. 512 calls are in flight, of the same conversation: by the SDK alone, by
the models backend with its limits, bill and checks, and by whole evaluated episodes, whose tools and grading are in it.
The three take turns, and the least of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.openai import OpenAiModels
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.tools.backends import Backing, NamedBackends

IN_FLIGHT, CALLS, ROUNDS = 512, 3072, 3
ASKED = (Message(role="system", content="x" * 2000), Message(role="user", content="y" * 2000))


def _serve(pipe: Connection, seconds: float) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        server.seen.clear()
        text = asked.text
        calls = [("search", "search-3"), ("enhance_reasoning", "reasoner-3"), ("answer", "answer-4")]
        name, alias = calls[min(text.count("<tool_response>"), 2)]
        said = "<answer>42</answer>" if "<answer>" in text else render_call(name, {"model": alias})
        return ServerReply(said, seconds=seconds * random.uniform(0.5, 1.5))

    with Loopback(reply) as server:
        pipe.send(server.base_url)
        with suppress(EOFError):
            pipe.recv()


@contextmanager
def served(seconds: float = 0.0) -> Iterator[str]:
    """The address of a server in another process that thinks for so many seconds, more or less."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, seconds), daemon=True)
    server.start()
    yield ours.recv()
    ours.close()


def endpoints(url: str, in_flight: int) -> Endpoints:
    """Every model behind that server."""
    ends = {"here": {"base_url": url, "in_flight": in_flight}}
    row = {"deadline_seconds": 120.0, "price": {"usd_per_mtok": {"input": 1, "output": 1}}}
    return Endpoints.read({"endpoints": ends, "models": {"*": row}}, "bench")


def made_over(url: str, in_flight: int) -> EpisodeFactory:
    """HLE-v0 with its experts behind that server."""
    backing = Backing(NamedBackends("bench", endpoints=endpoints(url, in_flight)))
    return factory(**gym.spec(full_id("HLE-v0")).kwargs, backends=backing)


async def _all(make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one() -> None:
        async with places:
            await make()

    await asyncio.gather(*(one() for _ in range(CALLS)))


async def bare(url: str) -> int:
    """The SDK alone. Gives how many calls were made."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=120.0)
    messages: Any = [dict(message) for message in ASKED]
    await _all(lambda: client.chat.completions.create(model="m", messages=messages, max_tokens=64))
    await client.close()
    return CALLS


async def backend(url: str) -> int:
    """The models backend."""
    models = OpenAiModels(endpoints(url, IN_FLIGHT))
    await _all(lambda: models.complete(ChatRequest("m", "answer", ASKED)))
    await models.aclose()
    return CALLS


async def episodes(url: str) -> int:
    """Whole episodes: the orchestrator and its experts behind the server."""
    made = made_over(url, IN_FLIGHT)
    trials = trials_of("HLE-v0", made, "chat", IN_FLIGHT, 0, 1)
    run = EvaluationRun()
    await run.play(Contest("HLE-v0", made.settings.split, "chat", made, player("chat", made), trials), IN_FLIGHT)
    assert all(row.status == "ended" for row in run.rows.values())
    return sum(row.turns + sum(row.calls.values()) for row in run.rows.values())


WAYS = {"the SDK alone": bare, "the models backend": backend, "evaluated episodes": episodes}


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    best: dict[str, float] = {}
    with served() as url:
        for _ in range(ROUNDS):
            for name, way in WAYS.items():
                began = time.process_time()
                calls = asyncio.run(way(url))
                each = 1000 * (time.process_time() - began) / calls
                best[name] = min(each, best.get(name, each))
    for name, each in best.items():
        of = each / best["the SDK alone"]
        print(f"{name:53} {each:11.2f} CPU ms/call  {of:.2f} x the SDK (goal <= 0.25, episodes 0.33)")


if __name__ == "__main__":
    main()
