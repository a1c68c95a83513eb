"""Table of the sandboxes: what each contains, whom it delays, and what a run costs. Called by bench.py."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Iterator
from typing import Any

from bench_tables.tools import load_average
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.sandbox.kinds import interpreter
from toolorchestra.envs.testing.hostile_programs import Containment, examine, programs, quiet, table, works

BOUND_SECONDS = 1.0
KINDS = (
    ("arithmetic", {}),
    ("landlock", {}),
    ("landlock, sessions", {"sessions": True}),
    ("landlock inside bubblewrap", {"bubblewrap": True}),
    ("monty", {}),
    ("e2b", {}),
)
HEAD = (
    "sandbox", "hostile programs contained", "worst seconds over the bound", "worst delay of a neighbour, s",
    "the same with nothing hostile, s", "useful programs that work", "`print(1)`, median / p99 ms",
    "calls a second, 64 at once",
)  # fmt: skip
CALLS, AT_ONCE = 400, 64


def sandbox() -> None:
    """Each kind that is here: the list of what it did with each program, then one table of all in Markdown."""
    rows = []
    for title, settings in KINDS:
        try:
            made: Any = interpreter(title.replace(",", " ").split()[0], Bounds(seconds=BOUND_SECONDS), **settings)
        except ConfigError as err:
            print(f"== {title}: not here ({err})\n")
            continue
        if settings.get("bubblewrap") and not made._bubblewrap:
            print(f"== {title}: not here (no bwrap, or it can make no namespace)\n")
            continue
        rows.append([title, *_row(title, made)])
        getattr(made, "close", lambda: None)()
    system = f"Linux {platform.release()}, Landlock {landlock_abi()}, Python {platform.python_version()}"
    print(f"{system}, {load_average()}")
    print(f"{len(programs())} hostile programs, {BOUND_SECONDS:g} s each, {len(programs('useful'))} useful ones\n")
    for cells in (HEAD, ["---"] * len(HEAD), *rows):
        print(f"| {' | '.join(cells)} |")


def _row(title: str, made: Any) -> Iterator[str]:
    alone = quiet(made, 10.0)
    median = alone[len(alone) // 2]
    hostile, useful = examine(made, BOUND_SECONDS), works(made)
    print(f"== {title}: {len(hostile)} hostile programs\n{table(hostile)}")
    print(f"== {title}: useful programs\n{table(useful, 'works', 'does not')}\n", flush=True)
    yield _share(hostile)
    yield f"{max(0.0, max(v.seconds for v in hostile) - BOUND_SECONDS):.2f}"
    yield f"{max(0.0, max(v.neighbour_seconds for v in hostile) - median):.2f}"
    yield f"{alone[-1] - median:.2f}"
    yield _share(useful)
    times = asyncio.run(_one_by_one(made))
    yield f"{times[CALLS // 2] * 1000:.2f} / {times[CALLS * 99 // 100] * 1000:.2f}"
    yield f"{asyncio.run(_at_once(made)):.0f}"


def _share(verdicts: list[Containment]) -> str:
    return f"{sum(v.contained for v in verdicts)} of {len(verdicts)}"


async def _one_by_one(made: Any) -> list[float]:
    out = []
    for _ in range(CALLS):
        await asyncio.sleep(NEXT_SECONDS)
        started = time.perf_counter()
        await made.run("print(1)")
        out.append(time.perf_counter() - started)
    return sorted(out)


NEXT_SECONDS = 0.02
"""Between two calls of one caller: a model writes longer on a program."""


async def _at_once(made: Any) -> float:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await made.run("print(1)")

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CALLS)))
    return CALLS / (time.perf_counter() - started)
