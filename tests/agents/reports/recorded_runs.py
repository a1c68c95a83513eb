"""Real episodes for the page's tests: baselines over the embedded questions, recorded, as files and as run folders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.evaluation.rows import MANIFEST, ROWS, TRAJECTORIES, line_of
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.reports.page_data import recorded_row
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.wrappers import RecordTrajectories, read_trajectories

POLICIES = ("random", "cheapest", "strongest", "oracle")


def record(path: Path, env_id: str, policy: str, seeds: Sequence[int], **settings: Any) -> Path:
    """Episodes of a baseline, in a file of RecordTrajectories."""
    env = RecordTrajectories(gym.make(f"ToolOrchestra/{env_id}", **settings), path)
    assert isinstance(env.unwrapped, OrchestraEnv)
    player = baseline(policy)
    for seed in seeds:
        env.reset(seed=seed)
        over = False
        while not over:
            assert env.unwrapped.episode is not None
            _, _, terminated, truncated, _ = env.step(player(env.unwrapped.episode))
            over = terminated or truncated
    env.close()
    return path


def record_service(path: Path, *turns: str) -> Path:
    """One episode of ToolScale in the words given, left before its end if they do not end it."""
    env = RecordTrajectories(gym.make("ToolOrchestra/ToolScale-v0"), path)
    env.reset(seed=0)
    for turn in turns:
        env.step(turn)
    env.close()
    return path


def run_folder(place: Path, tasks: int, envs: Sequence[str] = ("HLE-v0", "FRAMES-v0")) -> Path:
    """A run of every baseline over so many tasks of each environment."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ROWS).open("wb") as rows, (place / TRAJECTORIES).open("wb") as lines:
        for env_id in envs:
            for policy in POLICIES:
                path = record(place / f"{env_id}-{policy}.jsonl", env_id, policy, range(tasks), split="test")
                for number, line in enumerate(read_trajectories(path)):
                    line["key"] = [env_id, "test", policy, line["task_id"], 0]
                    line["seed"] = number  # rows of a run have seeds of their own; they do not matter here
                    rows.write(line_of(recorded_row(line, Counter())))
                    lines.write(json.dumps(line).encode() + b"\n")
                path.unlink()
    manifest = {"simulated": True, "tasks": tasks, "policies": POLICIES, "environments": list(envs)}
    (place / MANIFEST).write_text(json.dumps(manifest))
    return place
