"""Hundreds of episodes at once against a slow server, for minutes: does memory or the number of open files grow?

`python -m scripts.soak`, or with `--minutes 1 --at-once 64`. Each episode that ends makes room for the next. The slopes
are fitted over the run without its first quarter, in which caches fill. The exit code is 1 where something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np

from scripts.bench_endpoints import made_over, served
from toolorchestra.agents.evaluation.trials import play, trials_of
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.runtime.invoke import Gates

MOST_A_MINUTE = {"memory, KiB": 512.0, "open files": 1.0, "threads": 0.5, "tasks": float("inf")}
"""What still counts as flat."""
EVERY_SECONDS = 5.0


def reading(started: float) -> list[float]:
    """The process at this moment: minutes, then as MOST_A_MINUTE."""
    kib = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
    count = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")]
    return [(time.monotonic() - started) / 60, kib, *count, len(asyncio.all_tasks())]


async def soak(url: str, minutes: float, at_once: int) -> tuple[np.ndarray, int, int]:
    """Keep so many episodes going: the readings, the episodes, and how many of them failed."""
    made = made_over(url, at_once)
    chat, gates, seeds = player("chat", made).move, Gates(), itertools.count()
    started, failed = time.monotonic(), 0
    readings: list[list[float]] = []

    async def one_after_the_other() -> None:
        nonlocal failed
        while time.monotonic() - started < 60 * minutes:
            (trial,) = trials_of("soak", made, "chat", 1, next(seeds), 1)
            failed += (await play(trial, made, chat, gates)).row.status == "failed"

    async def watch() -> None:
        while time.monotonic() - started < 60 * minutes:
            readings.append(reading(started))
            await asyncio.sleep(EVERY_SECONDS)

    await asyncio.gather(watch(), *(one_after_the_other() for _ in range(at_once)))
    await made.source.backing.aclose()  # type: ignore[attr-defined]
    return np.array(readings[len(readings) // 4 :]), next(seeds), failed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=512)
    given = parser.parse_args()
    with served(seconds=2.0) as url:
        seen, episodes, failed = asyncio.run(soak(url, given.minutes, given.at_once))
    print(f"{given.at_once} episodes at once for {given.minutes:g} minutes: {episodes} episodes, {failed} failed")
    grown = [name for at, name in enumerate(MOST_A_MINUTE, 1) if told(name, seen, at) > MOST_A_MINUTE[name]]
    return 1 if grown or failed else 0


def told(name: str, seen: np.ndarray, at: int) -> float:
    """The slope a minute of one column, printed."""
    slope = float(np.polyfit(seen[:, 0], seen[:, at], 1)[0])
    print(f"{name:12} {seen[0, at]:9.0f} to {seen[-1, at]:9.0f}, {slope:+.2f} a minute")
    return slope


if __name__ == "__main__":
    sys.exit(main())
