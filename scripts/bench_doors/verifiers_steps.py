"""CPU time of a step in verifiers: ours through the door, and a toy task played by verifiers' own means.

A step is a turn of the model's. The stand-in model answers from a process of its own, whose time is not counted. A step
through verifiers holds two HTTP requests on the loopback (the harness asks verifiers, verifiers asks the model), the
record of the turn on the trace, and a share of what verifiers does once for each episode. The toy offers no tools.

In the environment of `make test-verifiers`:
.venv-verifiers/bin/python scripts/bench_doors/verifiers_steps.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import verifiers.v1 as vf
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from verifiers.v1.clients import ModelContext

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.registration import spec_of
from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply

EPISODES, TURNS, ROUNDS, AT_ONCE = 32, 4, 3, 8
CALLS = [("search", "search-1")] * (TURNS - 1) + [("answer", "answer-1")]
TOY = "counting_toy"
"""The name by which verifiers finds the toy here."""
Timed = Callable[[], float]
__all__ = ["CountingEnv", "CountingHarness", "CountingTaskset", "rows"]


class CountingTask(vf.Task):
    """Says something four times."""

    @vf.reward
    async def said(self, trace: vf.Trace) -> float:
        return float(trace.num_turns == TURNS)


class CountingTaskset(vf.Taskset[CountingTask, vf.TasksetConfig]):
    def load(self) -> Iterator[CountingTask]:
        for number in range(EPISODES):
            yield CountingTask(vf.TaskData(name=f"{number}", prompt="Count."), self.config.task)


class CountingHarness(vf.Harness[vf.HarnessConfig]):
    """As little as a harness in this process can do."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx: Any, _trace: Any, _box: Any, endpoint: str, secret: str, _tools: Any, data: Any) -> Any:
        messages: list[Any] = [{"role": "user", "content": data.prompt}]
        http = DefaultAsyncHttpxClient(verify=False)
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=http) as client:
            for _ in range(TURNS):
                reply = await client.chat.completions.create(model=ctx.model, messages=messages)
                messages += [reply.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "On."}]
        return vf.ProgramResult(0, "", "")


class CountingEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class CountingEnv(vf.Env[CountingEnvConfig]):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)


def answer(asked: ReceivedRequest) -> ServerReply:
    """The stand-in's next turn."""
    if not asked.json.get("tools"):
        return ServerReply("one")
    name, model = CALLS[sum(message["role"] == "assistant" for message in asked.json["messages"])]
    return ServerReply("", calls=({"name": name, "arguments": json.dumps({"model": model})},))


def serve(told: Any) -> None:
    """The stand-in model, until this process's parent ends it."""
    with Loopback(answer) as server:
        told.put(server.base_url)
        time.sleep(3600)


def alone() -> float:
    """Gymnasium's loop, with the resets."""
    env = gym.make(spec_of("HLE-v0"), preference="none")
    started = time.process_time()
    for seed in range(EPISODES):
        env.reset(seed=seed)
        for name, model in CALLS:
            env.step(render_call(name, {"model": model}))
    return (time.process_time() - started) / (EPISODES * TURNS) * 1e6


def through(make: Callable[[], vf.Env[Any]], base_url: str) -> Timed:
    """verifiers' own run of an environment, as `vf-eval` makes it, without its console and files."""
    context = ModelContext(
        client=vf.EvalClientConfig(base_url=base_url), model="stand-in", sampling=vf.SamplingConfig()
    )

    async def played() -> float:
        env, places = make(), asyncio.Semaphore(AT_ONCE)
        tasks = list(env.taskset.take(EPISODES))
        async with env.serving():
            started = time.process_time()
            slots = [slot for task in tasks for slot in env.slots(task, 1)]
            episodes = await asyncio.gather(*(env.run_slot(slot, context, places) for slot in slots))
            spent = time.process_time() - started
        turns = [trace.num_turns for episode in episodes for trace in episode.traces]
        assert all(episode.ok for episode in episodes)
        assert turns == [TURNS] * EPISODES
        return spent / sum(turns) * 1e6

    return lambda: asyncio.run(played())


def loaded(taskset: dict[str, Any]) -> Callable[[], vf.Env[Any]]:
    """What makes an environment of verifiers."""
    return lambda: vf.load_environment(vf.resolve_env_config({"taskset": taskset}))


def rows() -> list[tuple[str, float]]:
    """What was timed, and CPU microseconds a step: the least of some rounds that time all of them in turn."""
    logging.disable(logging.WARNING)
    sys.modules[TOY] = sys.modules[__name__]
    forked = multiprocessing.get_context("fork")
    told = forked.SimpleQueue()
    model = forked.Process(target=serve, args=(told,), daemon=True)
    model.start()
    try:
        base_url = told.get()
        ours = {"id": "toolorchestra-verifiers", "environment": "HLE-v0", "arguments": {"preference": "none"}}
        timed: dict[str, Timed] = {
            "HLE-v0, alone": alone,
            "HLE-v0, through verifiers": through(loaded(ours), base_url),
            "a toy of one line, through verifiers": through(loaded({"id": TOY}), base_url),
        }
        least = dict.fromkeys(timed, float("inf"))
        for _ in range(ROUNDS + 1):  # one more, since the first warms up
            for name, one in timed.items():
                least[name] = min(least[name], one())
    finally:
        model.terminate()
        model.join(10)
    return list(least.items())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"CPU microseconds a step; {AT_ONCE} episodes at once\n")
    print("| what | µs a step |\n| --- | ---: |")
    for row_name, microseconds in rows():
        print(f"| {row_name} | {microseconds:,.0f} |")
