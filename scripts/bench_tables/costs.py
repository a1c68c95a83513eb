"""The costs table of the benchmarks: `python scripts/bench.py --table costs`. CPU times; all dollars are SIMULATED.

Of each shipped domain: what its stored costs take, what they say, and that they bill under another sheet what playing
the same solutions there bills. Reading and pricing are what the environment does at an episode's end.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.known_costs import FILE, KnownCost, known
from toolorchestra.envs.domains.toolscale.source import ready
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.synth.proof import cheapest_solutions
from toolorchestra.synth.proof.solvers import Arena

OTHER = "unseen-2026-01"
ROUNDS = 5
SAMPLE = 45


def read_ms(name: str) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        known.cache_clear()
        started = time.process_time()
        known(ready(name).domain)
        best = min(best, time.process_time() - started)
    return best * 1e3


def price_us(found: Mapping[str, KnownCost], shown: int) -> float:
    sheet = load_sheet(OTHER)
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for one in found.values():
            one.evidence(sheet, shown)
        best = min(best, time.process_time() - started)
    return best / len(found) * 1e6


def repriced(name: str, found: Mapping[str, KnownCost]) -> tuple[int, int]:
    """How many of how many sampled solutions bill under the other sheet what playing them there bills."""
    arena = Arena(name)
    sheet = load_sheet(OTHER)
    same = 0
    sampled = list(found.values())[:: len(found) // SAMPLE][:SAMPLE]
    for one in sampled:
        task = arena.domain.tasks[one.task_id]
        options = {"task_id": f"toolscale/{name}/{one.task_id}", "prices": OTHER}
        observation, _ = arena.env.reset(seed=one.setting.seed, options=options)
        short = cheapest_solutions.along(task, *cheapest_solutions.stored(one)[1:])
        deque(cheapest_solutions.steps(arena.env, observation, arena.domain, short), maxlen=0)
        episode = arena.env.episode
        assert episode is not None
        same += one.billed(sheet, episode.world.toolbox.schema_characters) == episode.ledger.nano_usd
    return same, len(sampled)


def measure_seconds(name: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        shutil.copytree(loader.SHIPPED / name, folder)
        started = time.process_time()
        asyncio.run(cheapest_solutions.measure(folder))
        return time.process_time() - started


def rows(seconds: float = 1.0) -> Iterator[tuple[str, str, str]]:
    """The table. Below a second, the costs are not measured anew: that takes minutes."""
    total = 0
    for name in loader.names():
        size = (loader.SHIPPED / name / FILE).stat().st_size
        total += size
        found = known(ready(name).domain)
        tasks = ready(name).domain.tasks
        n = len(found)
        calls, gold = (
            sum(sum(one.calls.values()) for one in found.values()),
            sum(len(task.actions) for task in tasks.values()),
        )
        how = ", ".join(f"{key} {count}" for key, count in Counter(k.found_by for k in found.values()).most_common())
        yield f"{name}, stored", f"{size / 1e3:.1f} KB", f"{n} tasks, {size / n:.0f} bytes each"
        cents = 100 * sum(one.usd for one in found.values()) / n
        turns = sum(one.turns for one in found.values()) / n
        yield (
            "  cheapest known solution (SIMULATED)",
            f"{cents:.3f} cents",
            f"{turns:.1f} turns, {calls} calls, {gold} in gold paths; {how}",
        )
        same, of = repriced(name, found)
        other = 100 * sum(one.billed(load_sheet(OTHER)) for one in found.values()) / 1e9 / n
        yield f"  under {OTHER}", f"{other:.3f} cents", f"{same} of {of} played there have the stored bill to the digit"
        shown = next(iter(found.values())).setting.tools_characters
        yield "  read, once a process", f"{read_ms(name):.1f} ms CPU", ""
        yield "  priced, at an episode's end", f"{price_us(found, shown):.0f} us CPU", ""
        if seconds >= 1:
            yield "  measured, with 12 tries a task", f"{measure_seconds(name):.1f} s CPU", ""
    yield "all domains, stored", f"{total / 1e3:.0f} KB", ""
