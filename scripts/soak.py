"""Hundreds of episodes at once against slow servers, for minutes: does memory or the number of open files grow?

    make soak                                       # ten minutes, 512 episodes at once
    python scripts/soak.py --minutes 1 --at-once 64

The servers run in another process, on loopback: models that think for a while. Each episode that ends makes room for
the next. Every few seconds the process is measured; the slopes are fitted over the run without its first quarter, in
which caches fill. The exit code is 1 where something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import platform
import random
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import gymnasium as gym
import numpy as np

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.evaluation.trials import play, trials_of
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.testing.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.tools.backends import Backing, Wanted

ENVS = ("HLE-v0", "FRAMES-v0")
SERVERS = 2
MOST_KIB_A_MINUTE, MOST_FILES_A_MINUTE = 512.0, 1.0
"""What still counts as flat."""


@dataclass
class Reading:
    """The process at one moment."""

    minutes: float
    resident_kib: float
    files: int
    threads: int
    tasks: int


@dataclass
class Soak:
    """What was seen."""

    readings: list[Reading] = field(default_factory=list)
    episodes: int = 0
    failed: int = 0

    def slope(self, name: str) -> float:
        """Growth a minute, fitted over the run without its first quarter."""
        kept = self.readings[len(self.readings) // 4 :]
        return float(np.polyfit([r.minutes for r in kept], [getattr(r, name) for r in kept], 1)[0])


def serve(pipe: Connection, seconds: float) -> None:
    """A process with the servers, until the pipe is closed."""
    rng = random.Random(0)

    def reply(asked: ReceivedRequest) -> ServerReply:
        for server in servers:
            server.seen.clear()
        return ServerReply(said(asked.text), seconds=seconds * rng.uniform(0.5, 1.5))

    servers = [Loopback(reply) for _ in range(SERVERS)]
    for server in servers:
        server.__enter__()
    pipe.send([server.base_url for server in servers])
    with suppress(EOFError):
        pipe.recv()
    for server in servers:
        server.__exit__()


def said(text: str) -> str:
    """What a model says: a query, a program, an answer, or the orchestrator's next call."""
    if "<query>" in text:
        return f"<query>{' '.join(re.findall(r'[A-Z][a-z]+', text)[-6:])}</query>"
    if "```python" in text:
        return "```python\nprint(sum(range(10)))\n```"
    if "<answer>" in text:
        return "I have read it all. <answer>42</answer>"
    calls = [("search", "search-3"), ("enhance_reasoning", "reasoner-3"), ("answer", "answer-4")]
    name, alias = calls[min(text.count("<tool_response>"), 2)]
    return render_call(name, {"model": alias})


def factories(urls: Sequence[str], at_once: int) -> list[EpisodeFactory]:
    """One for each environment, over one set of endpoints."""
    ends = {f"server{i}": {"base_url": url, "in_flight": at_once} for i, url in enumerate(urls)}
    model = {"deadline_seconds": 120.0, "price": {"usd_per_mtok": {"input": 1, "output": 1}}}
    endpoints = Endpoints.read({"endpoints": ends, "models": {"*": model}}, "soak")
    backing = Backing(Wanted("soak", endpoints=endpoints))
    return [factory(**gym.spec(full_id(env)).kwargs, backends=backing) for env in ENVS]


def now(started: float) -> Reading:
    """Measure this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    kib = pages * os.sysconf("SC_PAGE_SIZE") / 1024
    threads = len(os.listdir("/proc/self/task"))
    files = len(os.listdir("/proc/self/fd"))
    return Reading((time.monotonic() - started) / 60, kib, files, threads, len(asyncio.all_tasks()))


async def soak(made: Sequence[EpisodeFactory], minutes: float, at_once: int, every_seconds: float) -> Soak:
    """Keep so many episodes going."""
    seen, gates, started = Soak(), Gates(), time.monotonic()
    seeds = iter(range(10**9))

    async def one_after_the_other(number: int) -> None:
        played_by = made[number % len(made)]
        chat = player("chat", played_by).move
        while time.monotonic() - started < 60 * minutes:
            (trial,) = trials_of("soak", played_by, "chat", 1, next(seeds), 1)
            played = await play(trial, played_by, chat, gates)
            seen.episodes += 1
            seen.failed += played.row.status == "failed"

    async def watch() -> None:
        while time.monotonic() - started < 60 * minutes:  # not the end, when episodes become fewer
            seen.readings.append(now(started))
            await asyncio.sleep(every_seconds)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(one_after_the_other(number) for number in range(at_once)))
    await watching
    for one in made:
        await one.source.backing.aclose()  # type: ignore[attr-defined]
    return seen


def report(seen: Soak, minutes: float, at_once: int) -> str:
    """As docs/results has it."""
    last = seen.readings[-1]
    rows = [
        f"{at_once} episodes at once for {minutes:g} minutes: {seen.episodes} episodes, {seen.failed} failed. "
        f"{os.cpu_count()} cores, Python {platform.python_version()}. SIMULATED models behind real sockets.",
        "",
        "| | at the start of the fit | at the end | slope a minute |",
        "|---|---|---|---|",
    ]
    first = seen.readings[len(seen.readings) // 4]
    for name, told in (("resident_kib", "memory, KiB"), ("files", "open files"), ("threads", "threads"),
                       ("tasks", "tasks")):  # fmt: skip
        a, b = getattr(first, name), getattr(last, name)
        rows.append(f"| {told} | {a:.0f} | {b:.0f} | {seen.slope(name):+.2f} |")
    return "\n".join(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=512)
    parser.add_argument("--model-seconds", type=float, default=2.0, help="how long a model thinks, on average")
    parser.add_argument("--every-seconds", type=float, default=5.0, help="between two readings")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    servers = context.Process(target=serve, args=(theirs, given.model_seconds), daemon=True)
    servers.start()
    urls = ours.recv()
    seen = asyncio.run(soak(factories(urls, given.at_once), given.minutes, given.at_once, given.every_seconds))
    ours.close()
    print(report(seen, given.minutes, given.at_once))
    flat = seen.slope("resident_kib") <= MOST_KIB_A_MINUTE and seen.slope("files") <= MOST_FILES_A_MINUTE
    return 0 if flat and not seen.failed else 1


if __name__ == "__main__":
    sys.exit(main())
