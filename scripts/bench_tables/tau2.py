"""The τ²-Bench table of the benchmark: reference paths by text, one core, reset and reward included, beside the
package's own gym. `python scripts/bench.py --table tau2`."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.testing.tau2_players import gold, plans

TAU2 = "ToolOrchestra/Tau2-v0"
GOALS = {"airline": 3000, "retail": 4000, "telecom": 6000}
SETS = (
    ("airline", "base", "scripted"),
    ("retail", "base", "scripted"),
    ("telecom", "base", "scripted"),
    ("telecom", "base", "none"),
    ("mock", "base", "scripted"),
)
RECORDED_GYM = {"mock": 173.3, "airline": 2.2, "retail": 9.5, "telecom": 0.8}
"""Steps a second of CPU of the package's gym, recorded in docs/results/tau2.md, for where it cannot be run."""
VECTOR = 512


class Player:
    """Reference paths of a set, played over and over in one environment."""

    def __init__(self, domain: str, split: str, user: str) -> None:
        made = gym.make(TAU2, domain=domain, split=split, user=user, preference="none", max_turns=200)
        self.env: Any = made.unwrapped
        source = self.env.factory.source
        assert isinstance(source, Tau2Source)
        solo = user == "none"
        # Not every reference path of mock reaches reward 1: one lists no actions.
        self.paths = {i: gold(plan, solo=solo) for i, plan in plans(source, split).items()}
        self.solved = sum(self.play(task_id) for task_id in self.paths)

    def play(self, task_id: str) -> bool:
        self.env.reset(options={"task_id": task_id})
        reward = 0.0
        for text in self.paths[task_id]:
            _, reward, *_ = self.env.step(text)
        return bool(reward == 1.0)

    def per_second(self, seconds: float, repeats: int = 3) -> tuple[float, float]:
        """Steps and episodes a second of CPU: best of several repetitions, each of whole rounds."""
        steps = sum(len(path) for path in self.paths.values())
        best = 0.0
        for _ in range(repeats):
            rounds, started = 0, time.process_time()
            while time.process_time() - started < seconds:
                assert sum(self.play(task_id) for task_id in self.paths) == self.solved
                rounds += 1
            best = max(best, rounds * steps / (time.process_time() - started))
        return best, best * len(self.paths) / steps


def live_kb(domain: str, split: str, user: str, number: int = 200) -> float:
    """Kilobytes of an environment just before the end of its reference path, by Python's own count: what the process
    holds grows by less, since it has freed memory to give."""
    first = Player(domain, split, user)  # so that what all share is there already
    paths = list(first.paths.items())

    def live(k: int) -> object:
        env = gym.make(TAU2, domain=domain, split=split, user=user, preference="none", max_turns=200)
        task_id, path = paths[k % len(paths)]
        env.reset(options={"task_id": task_id})
        for text in path[:-1]:
            env.step(text)
        return env

    kept = [live(k) for k in range(20)]
    gc.collect()
    tracemalloc.start()
    kept += [live(k) for k in range(number)]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / 1024 / number


def vector_per_second(seconds: float) -> float:
    """Steps a second of CPU of 512 telecom environments that look at one thing and are done."""
    env = gym.make_vec(
        TAU2, num_envs=VECTOR, vectorization_mode="vector_entry_point", preference="none", autoreset_mode="Disabled"
    )
    path = ('<tool_call>{"name": "check_status_bar", "arguments": {}}</tool_call>',) * 7
    done = '<tool_call>{"name": "done", "arguments": {}}</tool_call>'
    steps, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        env.reset()
        for text in (*path, done):
            env.step([text] * VECTOR)
        steps += VECTOR * (len(path) + 1)
    return steps / (time.process_time() - started)


def package_gym() -> dict[str, dict[str, float]]:
    """The package's own gym in this run, by domain; empty when it cannot be run."""
    script = Path(__file__).parent / "tau2_gym.py"
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {row["domain"]: row for row in found if row["solved"] == row["episodes"]}


def rows(seconds: float) -> Iterator[tuple[str, str, str]]:
    gyms = package_gym()
    for domain, split, user in SETS:
        player = Player(domain, split, user)
        steps, episodes = player.per_second(seconds)
        goal = f"; goal >= {GOALS[domain]:,}" if domain in GOALS else ""
        name = f"{domain} {split}, user {user}"
        yield name, f"{steps:,.0f} steps/s", f"{episodes:,.0f} episodes/s, {player.solved} of {len(player.paths)}{goal}"
        if user == "scripted":
            yield f"{domain}: the package's tau2.gym", *_gym_row(gyms.get(domain), domain, steps)
    for domain, split, user in SETS[:4]:
        yield f"live {domain}, user {user}", f"{live_kb(domain, split, user):.1f} KB", "goal <= 100 KB"
    yield f"vector env, N = {VECTOR}, telecom alone", f"{vector_per_second(seconds):,.0f} steps/s", ""
    yield "threads alive at the end", f"{threading.active_count()}", "main; goal: 0 per environment"


def _gym_row(row: dict[str, float] | None, domain: str, ours: float) -> tuple[str, str]:
    if row is None:
        return f"{RECORDED_GYM[domain]:,} steps/s", "recorded: it cannot be run here"
    steps = row["steps"] / row["cpu"]
    wall = row["steps"] / row["wall"]
    episodes = f"{row['episodes'] / row['cpu']:,.2f} episodes/s; {wall:,.1f} steps/s of wall"
    return f"{steps:,.1f} steps/s", f"{episodes}; ours {ours / steps:,.0f} x"
