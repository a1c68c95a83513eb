"""What the engine costs, side by side in one run: `make bench`. CPU times where nothing waits, wall where it does.

The episode is the trivial one of most comparisons: eight turns, seven `add(a, b)` calls and an answer, scripted. Then
the suite's own environments, by players that know the tasks.
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
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.tau2_players import gold, plans
from tests.support.toy import TURNS, script
from toolorchestra.agents.policies.players import random_move
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import register
from toolorchestra.envs.runtime.invoke import Gates, advance
from toolorchestra.envs.vector import OrchestraVectorEnv

Row = tuple[str, str, str]
ADDER = "ToolOrchestra/ToyAdder-v0"
SOURCE = "tests.support.toy:AdderSource"
SCRIPT, SLOW_SCRIPT = script(), script("slow_add")
N = 512
"""Episodes at once."""


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


def step_us(env: gym.Env | Bare) -> float:
    """CPU microseconds of a step, without the resets between episodes."""
    spent, episodes = 0.0, 500
    for _ in range(episodes):
        env.reset()
        started = time.process_time()
        for action in SCRIPT:
            env.step(action)
        spent += time.process_time() - started
    return spent / (episodes * TURNS) * 1e6


def vector_us(env: gym.vector.VectorEnv, n: int) -> float:
    """The same of n episodes at once, with their reset."""
    started = time.process_time()
    env.reset()
    for action in SCRIPT:
        _, rewards, *_ = env.step([action] * n)
    assert rewards.sum() == n
    return (time.process_time() - started) / (TURNS * n) * 1e6


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


def floor(first: float, each: float) -> list[float]:
    """Finishing times of N episodes as bare coroutines on one loop."""

    async def play(number: int) -> float:
        for turn, action in enumerate(SCRIPT[:-1]):
            json.loads(action[len("<tool_call>") : -len("</tool_call>")])
            await asyncio.sleep(first if turn == 0 and number == 0 else each)
        return time.perf_counter()

    async def together() -> list[float]:
        started = time.perf_counter()
        return [ended - started for ended in await asyncio.gather(*(play(k) for k in range(N)))]

    return asyncio.run(together())


def free_running(first: float, each: float) -> list[float]:
    """Finishing times of N episodes through recv and send."""
    env = OrchestraVectorEnv(N, SOURCE, autoreset_mode="Disabled", tool_seconds=each, first_seconds=first)
    env.reset(options={"task_id": "toy-adder/train/1"})
    env.reset(options={"task_id": "toy-adder/train/0", "reset_mask": [True] + [False] * (N - 1)})
    turn, done, started = [1] * N, list[float](), time.perf_counter()
    env.send([SLOW_SCRIPT[0]] * N, range(N))
    while len(done) < N:
        got = env.recv(timeout=30)
        over = dict(zip(got.env_ids.tolist(), got.terminations.tolist(), strict=True))
        done += [time.perf_counter() - started] * sum(over.values())
        on = [env_id for env_id, ended in over.items() if not ended]
        env.send([SLOW_SCRIPT[turn[i]] for i in on], on)
        for i in on:
            turn[i] += 1
    env.close()
    return done


def one_loop(first: float, each: float) -> list[float]:
    """Finishing times of N episodes on one asyncio loop, as rollouts run them."""
    made = factory(SOURCE, tool_seconds=each, first_seconds=first)
    episodes = [made.start(k, {"task_id": f"toy-adder/train/{min(k, 1)}"}).episode for k in range(N)]

    async def play(episode: Episode, gates: Gates) -> float:
        for action in SLOW_SCRIPT:
            await advance(episode, action, gates)
        return time.perf_counter()

    async def together() -> list[float]:
        gates, started = Gates(), time.perf_counter()
        return [ended - started for ended in await asyncio.gather(*(play(e, gates) for e in episodes))]

    return asyncio.run(together())


def all_but_one(way: Callable[[float, float], list[float]], first: float) -> float:
    """Time when all but the last had finished, where the first has a tool of so many seconds."""
    return sorted(way(first, 0.001))[-2]


def engine_rows(rounds: int) -> Iterator[Row]:
    """What a step costs where no tool waits."""
    env = gym.make(ADDER)
    vectors = {
        n: gym.make_vec(ADDER, num_envs=n, vectorization_mode="vector_entry_point", autoreset_mode="Disabled")
        for n in (8, N)
    }
    cost = least(
        rounds,
        bare=lambda: step_us(Bare()),
        alone=lambda: step_us(env),
        **{f"vector {n}": lambda n=n, made=made: vector_us(made, n) for n, made in vectors.items()},
    )
    bare, alone = cost["bare"], cost["alone"]
    yield "bare class", f"{bare:.1f} us CPU/step", ""
    yield "gym.make, one environment", f"{alone:.1f} us CPU/step", f"{alone - bare:.1f} over bare (goal <= 10)"
    for n in vectors:
        each = cost[f"vector {n}"]
        yield f"vector env, N = {n}, with resets", f"{each:.1f} us CPU/step", f"{1e6 / each:,.0f} steps/s"


def waiting_rows(rounds: int) -> Iterator[Row]:
    """Tools of 10 ms, and one straggler of 2 s."""
    ways = {"floor": floor, "loop": one_loop, "free": free_running}
    wall = least(rounds, **{name: lambda way=way: max(way(0.01, 0.01)) for name, way in ways.items()})
    yield f"10 ms tools, N = {N}: asyncio floor", f"{wall['floor']:.3f} s", "ideal 0.070 s"
    for key, what in (("loop", "episodes on one loop"), ("free", "recv/send")):
        yield (
            f"10 ms tools, N = {N}: {what}",
            f"{wall[key]:.3f} s",
            f"{wall[key] / wall['floor']:.2f} x floor (goal <= 1.5)",
        )
    for what, way in (("on one loop", one_loop), ("recv/send", free_running)):
        others = least(2, late=partial(all_but_one, way, 2.0), alike=partial(all_but_one, way, 0.001))
        later = others["late"] - others["alike"]
        yield f"2 s straggler, N = {N}: the others, {what}", f"{others['late']:.3f} s", f"{later:+.3f} s (goal <= 0.05)"


def resident_kb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def idle(env_id: str, number: int) -> tuple[float, float]:
    """Kilobytes and milliseconds per idle environment, made and reset."""

    def make() -> gym.Env:
        env = gym.make(env_id)
        env.reset(seed=1)
        return env

    kept = [make()]
    gc.collect()
    before, started = resident_kb(), time.perf_counter()
    kept.extend(make() for _ in range(number))
    spent = time.perf_counter() - started
    gc.collect()
    return (resident_kb() - before) / number, spent / number * 1000


def import_cpu(statement: str) -> float:
    """CPU seconds of a fresh interpreter that runs the statement; least of five."""
    code = f"{statement}; import time; print(time.process_time())"
    times = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(t.stdout) for t in times)


def standing_rows() -> Iterator[Row]:
    """What an environment holds, and what an import takes."""
    for env_id in (ADDER, "ToolOrchestra/FRAMES-v0"):
        kb, ms = idle(env_id, 5000)
        yield f"idle {env_id}, made and reset", f"{kb:.2f} KB", f"{ms:.3f} ms; goal <= 3 KB beyond task data"
    base, ours = import_cpu("import gymnasium"), import_cpu("import gymnasium, toolorchestra")
    yield "import gymnasium", f"{base:.3f} s CPU", ""
    yield "import toolorchestra", f"{ours:.3f} s CPU", f"{ours - base:+.3f} (goal <= 0.15)"


def played(env: OrchestraEnv, scripts: Mapping[str, list[str]], rounds: int) -> tuple[float, float]:
    """CPU microseconds of a reset and of a step: scripts by task, the least of some rounds."""
    best = [math.inf, math.inf]
    for _ in range(rounds):
        resetting = stepping = 0.0
        steps = 0
        for task_id, texts in scripts.items():
            started = time.process_time()
            env.reset(seed=0, options={"task_id": task_id})
            middle = time.process_time()
            for text in texts:
                over = env.step(text)[2]
                steps += 1
                if over:
                    break
            stepping += time.process_time() - middle
            resetting += middle - started
        best = [min(best[0], resetting / len(scripts) * 1e6), min(best[1], stepping / steps * 1e6)]
    return best[0], best[1]


def question_rows(rounds: int) -> Iterator[Row]:
    """Random play, so that every kind of call is made."""
    for name in ("HLE-v0", "FRAMES-v0"):
        env, best = gym.make(f"ToolOrchestra/{name}").unwrapped, math.inf
        assert isinstance(env, OrchestraEnv)
        for _ in range(rounds):
            steps, started = 0, time.process_time()
            for seed in range(100):
                env.reset(seed=seed)
                while env.episode is not None and not env.episode.over:
                    env.step(random_move(env.episode, seed))
                    steps += 1
            best = min(best, (time.process_time() - started) / steps * 1e6)
        yield f"{name}, random play", f"{best:.1f} us CPU/step", "player and resets included"


def service_rows(rounds: int) -> Iterator[Row]:
    """The oracle's conversations of ToolScale, and the reference paths of τ²-Bench."""
    for name in loader.names():
        env, domain = OrchestraEnv(ToolScaleSource(name), preference="none"), ready(name).domain
        first = list(domain.tasks.items())[:100]
        scripts = {f"toolscale/{name}/{task_id}": list(moves(domain, task)) for task_id, task in first}
        reset, step = played(env, scripts, rounds)
        yield f"ToolScale-v0 {name}", f"{step:.1f} us CPU/step", f"goal <= 100; a reset {reset:.0f} us, goal <= 1000"
    for name, user in (("airline", "scripted"), ("retail", "scripted"), ("telecom", "scripted"), ("telecom", "none")):
        source = Tau2Source(name, user)
        env = OrchestraEnv(source, split="base", preference="none", max_turns=200)
        paths = {task_id: gold(plan, solo=user == "none") for task_id, plan in plans(source, "base").items()}
        reset, step = played(env, paths, rounds)
        yield f"Tau2-v0 {name}, user {user}", f"{step:.1f} us CPU/step", f"reward included; a reset {reset:.0f} us"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each comparison; the least counts")
    rounds = parser.parse_args().rounds
    load = os.getloadavg()[0]
    print(f"gymnasium {gym.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f}")
    register(ADDER, SOURCE)
    parts = (engine_rows(rounds), waiting_rows(rounds), standing_rows(), question_rows(rounds), service_rows(rounds))
    for part in parts:
        for name, value, note in part:
            print(f"{name:53} {value:>20}  {note}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
