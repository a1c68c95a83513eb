"""What the engine costs, side by side in one run: `make bench`. CPU times where nothing waits, wall where it does.

The episode is the trivial one of most comparisons: eight turns, seven `add(a, b)` calls and an answer, scripted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module

import gymnasium as gym
from bench_tables import sandbox as sandbox_table
from bench_tables import tools as tool_tables

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.domains.toy import TURNS, script
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import register
from toolorchestra.envs.runtime.driver import advance
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.vector import OrchestraVectorEnv

ADDER = "ToolOrchestra/ToyAdder-v0"
SOURCE = "toolorchestra.envs.domains.toy:AdderSource"
SCRIPT, SLOW_SCRIPT = script(), script("slow_add")


class Bare:
    """The floor: the same episode as a plain class with a plain parser."""

    def reset(self) -> str:
        self.total = 0
        return "sum"

    def step(self, action: str) -> tuple[str, float, bool]:
        if action.startswith("<tool_call>"):
            call = json.loads(action[len("<tool_call>") : -len("</tool_call>")])
            return str(call["arguments"]["a"] + call["arguments"]["b"]), 0.0, False
        return "", float(action == SCRIPT[-1]), True


def bare_episodes(seconds: float) -> int:
    env, steps, end = Bare(), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        env.reset()
        for action in SCRIPT:
            _, reward, _ = env.step(action)
        assert reward == 1.0
        steps += TURNS
    return steps


def single_episodes(env: gym.Env) -> Callable[[float], int]:
    def run(seconds: float) -> int:
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            env.reset()
            for action in SCRIPT:
                _, reward, *_ = env.step(action)
            assert reward == 1.0
            steps += TURNS
        return steps

    return run


def step_alone_us(env: gym.Env, episodes: int = 500) -> float:
    """CPU microseconds of a step, without the resets between episodes."""
    spent = 0.0
    for _ in range(episodes):
        env.reset()
        started = time.process_time()
        for action in SCRIPT:
            env.step(action)
        spent += time.process_time() - started
    return spent / (episodes * TURNS) * 1e6


def vector_episodes(n: int) -> Callable[[float], int]:
    env = gym.make_vec(ADDER, num_envs=n, vectorization_mode="vector_entry_point", autoreset_mode="Disabled")

    def run(seconds: float) -> int:
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            env.reset()
            for action in SCRIPT:
                _, rewards, *_ = env.step([action] * n)
            assert rewards.sum() == n
            steps += TURNS * n
        return steps

    return run


def cpu_us_per_step(run: Callable[[float], int], seconds: float) -> float:
    started = time.process_time()
    steps = run(seconds)
    return (time.process_time() - started) / steps * 1e6


def least(rounds: int, **timed: Callable[[], float]) -> dict[str, float]:
    """The least of each over some rounds. Every round times all of them in turn, so that a machine that is slow for a
    while is so for all of them; the first round only warms up."""
    best = dict.fromkeys(timed, math.inf)
    for warm in range(rounds + 1):
        for name, measure in timed.items():
            value = measure()
            if warm:
                best[name] = min(best[name], value)
    return best


async def _floor_episode(number: int, first: float, each: float, done: list[float], started: float) -> None:
    for turn, action in enumerate(SCRIPT):
        if action.startswith("<tool_call>"):
            json.loads(action[len("<tool_call>") : -len("</tool_call>")])
            wait = first if turn == 0 and number == 0 else each
            if wait:
                await asyncio.sleep(wait)
    done.append(time.perf_counter() - started)


def floor(n: int, first: float, each: float) -> list[float]:
    """Finishing times of n episodes as bare coroutines on one loop."""

    async def together() -> list[float]:
        done: list[float] = []
        started = time.perf_counter()
        await asyncio.gather(*(_floor_episode(k, first, each, done, started) for k in range(n)))
        return done

    return asyncio.run(together())


def free_running(n: int, first: float, each: float, *, collector: int | None = None) -> list[float]:
    """Finishing times of n episodes through recv and send. `collector` sets its threshold in place of the suite's."""
    env = OrchestraVectorEnv(n, SOURCE, autoreset_mode="Disabled", clock="wall", tool_seconds=each, first_seconds=first)
    env.reset(options={"task_id": "toy-adder/train/1"})
    env.reset(options={"task_id": "toy-adder/train/0", "reset_mask": [True] + [False] * (n - 1)})
    if collector is not None:
        gc.set_threshold(collector)
    turn = [1] * n
    done: list[float] = []
    started = time.perf_counter()
    env.send([SLOW_SCRIPT[0]] * n, range(n))
    while len(done) < n:
        got = env.recv(timeout=30)
        on = []
        for env_id, over in zip(got.env_ids.tolist(), got.terminations.tolist(), strict=True):
            if over:
                done.append(time.perf_counter() - started)
            else:
                on.append(env_id)
        env.send([SLOW_SCRIPT[turn[i]] for i in on], on)
        for i in on:
            turn[i] += 1
    env.close()
    return done


def side_by_side(n: int, first: float, each: float) -> list[float]:
    """Finishing times of n episodes on one asyncio loop, as rollouts run them."""
    made = factory(SOURCE, clock="wall", tool_seconds=each, first_seconds=first)

    episodes = [made.start(k, {"task_id": f"toy-adder/train/{min(k, 1)}"}).episode for k in range(n)]

    async def play(episode: Episode, gates: Gates, done: list[float], started: float) -> None:
        for action in SLOW_SCRIPT:
            await advance(episode, action, gates)
        done.append(time.perf_counter() - started)

    async def together() -> list[float]:
        gates, done = Gates(), []
        started = time.perf_counter()
        await asyncio.gather(*(play(e, gates, done, started) for e in episodes))
        return done

    return asyncio.run(together())


def all_but_one(done: list[float]) -> float:
    """When all but the last had finished."""
    return sorted(done)[-2]


def lockstep(n: int, each: float) -> float:
    """Time of n episodes through step(), which waits for all each turn."""
    env = OrchestraVectorEnv(n, SOURCE, autoreset_mode="Disabled", clock="wall", tool_seconds=each)
    env.reset()
    started = time.perf_counter()
    for action in SLOW_SCRIPT:
        env.step([action] * n)
    spent = time.perf_counter() - started
    env.close()
    return spent


def resident_kb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def idle(make: Callable[[], object], n: int) -> tuple[float, float]:
    """Kilobytes and milliseconds per idle environment, made and reset."""
    kept = [make()]
    gc.collect()
    before, started = resident_kb(), time.perf_counter()
    kept.extend(make() for _ in range(n))
    spent = time.perf_counter() - started
    gc.collect()
    return (resident_kb() - before) / n, spent / n * 1000


def _made(env_id: str) -> gym.Env:
    env = gym.make(env_id)
    env.reset(seed=1)
    return env


def import_cpu(statement: str) -> float:
    """CPU seconds of a fresh interpreter that runs the statement; least of five."""
    code = f"{statement}; import time; print(time.process_time())"
    times = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(t.stdout) for t in times)


def engine_rows(seconds: float) -> Iterator[tuple[str, str, str]]:
    """What a step costs where no tool waits."""
    env = gym.make(ADDER)
    single, vectors = single_episodes(env), {n: vector_episodes(n) for n in (8, 64, 512)}
    cost = least(
        round(10 * seconds),
        bare=lambda: cpu_us_per_step(bare_episodes, 0.1),
        alone=lambda: step_alone_us(env),
        single=lambda: cpu_us_per_step(single, 0.1),
        **{f"vector {n}": lambda run=run: cpu_us_per_step(run, 0.1) for n, run in vectors.items()},
    )
    bare, alone = cost["bare"], cost["alone"]
    yield "bare class, one episode at a time", f"{bare:.1f} us CPU/step", ""
    yield (
        "gym.make, one environment, step alone",
        f"{alone:.1f} us CPU/step",
        f"{alone - bare:.1f} over bare (goal <= 10)",
    )
    with_resets = cost["single"]
    yield (
        "gym.make, one environment, with resets",
        f"{with_resets:.1f} us CPU/step",
        f"{with_resets - bare:.1f} over bare",
    )
    for n in vectors:
        each = cost[f"vector {n}"]
        yield f"vector env, N = {n}", f"{each:.1f} us CPU/step", f"{1e6 / each:,.0f} steps/s"


def waiting_rows(seconds: float) -> Iterator[tuple[str, str, str]]:
    """Tools of 10 ms, and one straggler of 2 s."""
    for n in (64, 512):
        wall = least(
            round(10 * seconds),
            floor=lambda n=n: max(floor(n, 0.01, 0.01)),
            loop=lambda n=n: max(side_by_side(n, 0.01, 0.01)),
            free=lambda n=n: max(free_running(n, 0.01, 0.01)),
            step=lambda n=n: lockstep(n, 0.01),
        )
        base = wall["floor"]
        yield f"10 ms tools, N = {n}: asyncio floor", f"{base:.3f} s", "ideal 0.070 s"
        for key, what, goal in (
            ("loop", "episodes on one loop", " (goal <= 1.5)"),
            ("free", "recv/send", " (goal <= 1.5)"),
            ("step", "step, waits for all", ""),
        ):
            yield f"10 ms tools, N = {n}: {what}", f"{wall[key]:.3f} s", f"{wall[key] / base:.2f} x floor{goal}"
    for n in (64, 512):
        others = least(
            2,
            floor=lambda n=n: all_but_one(floor(n, 2.0, 0.0)),
            free=lambda n=n: all_but_one(free_running(n, 2.0, 0.001)),
            free_alike=lambda n=n: all_but_one(free_running(n, 0.001, 0.001)),
            loop=lambda n=n: all_but_one(side_by_side(n, 2.0, 0.001)),
            loop_alike=lambda n=n: all_but_one(side_by_side(n, 0.001, 0.001)),
        )
        yield f"2 s straggler, N = {n}: asyncio floor, no other waits", f"{others['floor']:.3f} s", ""
        for key, what in (("loop", "the others, on one loop"), ("free", "the others, recv/send")):
            later = others[key] - others[f"{key}_alike"]
            yield f"2 s straggler, N = {n}: {what}", f"{others[key]:.3f} s", f"{later:+.3f} s (goal <= 0.05)"


def rows(seconds: float) -> Iterator[tuple[str, str, str]]:
    register(ADDER, SOURCE)
    yield from engine_rows(seconds)
    yield from waiting_rows(seconds)
    for env_id in (ADDER, "ToolOrchestra/FRAMES-v0"):
        kb, ms = idle(lambda env_id=env_id: _made(env_id), 5000)
        yield f"idle {env_id}, made and reset", f"{kb:.2f} KB", f"{ms:.3f} ms; goal <= 3 KB beyond task data"
    yield "threads alive at the end", f"{threading.active_count()}", "main and the shared loop"
    base_import = import_cpu("import gymnasium")
    ours = import_cpu("import gymnasium, toolorchestra")
    yield "import gymnasium", f"{base_import:.3f} s CPU", ""
    yield "import toolorchestra", f"{ours:.3f} s CPU", f"{ours - base_import:+.3f} (goal <= 0.15)"


def whole_table(name: str, passages: int) -> int:
    """Tables that are printed as they stand."""
    print(f"Python {sys.version.split()[0]}, {tool_tables.load_average()}")
    if name == "endpoints":
        from bench_tables import endpoint_overhead

        print("\n".join(endpoint_overhead.rows()))
    elif name == "sandbox":
        sandbox_table.sandbox()
    else:
        tool_tables.retrieval(passages)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    tables = (
        "engine",
        "vector-parts",
        "tau2",
        "toolscale",
        "worlds",
        "reference",
        "synth",
        "costs",
        "sandbox",
        "retrieval",
        "vllm",
        "endpoints",
    )
    parser.add_argument("--table", default="engine", choices=tables, help="what to measure")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long to measure: more or fewer rounds, 1.0 makes ten"
    )
    parser.add_argument("--reference", help="folder of domains for the reference table; its Python is run")
    parser.add_argument("--passages", type=int, default=3728, help="of each corpus of the retrieval table")
    args = parser.parse_args()
    if args.table in ("sandbox", "retrieval", "endpoints"):
        return whole_table(args.table, args.passages)
    load = os.getloadavg()[0]
    print(f"gymnasium {gym.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f}")
    measured: Callable[[float], Iterator[tuple[str, str, str]]] = rows
    if args.table in ("tau2", "toolscale", "worlds", "synth", "costs"):
        measured = import_module(f"bench_tables.{args.table}").rows
    elif args.table == "reference":
        from bench_tables.reference import made_up, of_folder

        measured = (lambda _: of_folder(args.reference)) if args.reference else made_up
    elif args.table == "vector-parts":
        from bench_tables.vector_parts import rows as parts

        measured = lambda _: parts(free_running)  # noqa: E731 - a table is a function of the seconds
    elif args.table == "vllm":
        from bench_vllm import rows as measured
    for name, value, note in measured(args.seconds):
        print(f"{name:53} {value:>20}  {note}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
