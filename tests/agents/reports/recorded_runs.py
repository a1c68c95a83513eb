"""Runs for the page's tests: real episodes of baselines, as files and as run folders, and folders as training leaves
them."""

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
from toolorchestra.agents.training.sessions import SESSIONS
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


# -- training runs -----------------------------------------------------------------------------------------------------

INJECTION = '"><script>globalThis.ran=1</script><img src=x onerror=globalThis.ran=1>'
PLAYERS = {"policy": (0.6, 0.64, 3.1), "cheapest": (0.4, 0.47, 0.7), "strongest": (0.42, 0.72, 12.4),
           "oracle": (0.65, 0.7, 4.6)}  # fmt: skip


def standing(name: str) -> dict[str, Any]:
    reward, accuracy, cents = PLAYERS[name]
    ends = {"reward": [reward - 0.05, reward + 0.05], "accuracy": [accuracy - 0.04, accuracy + 0.04],
            "cents": [cents * 0.8, cents * 1.2]}  # fmt: skip
    return {"reward": reward, "accuracy": accuracy, "cents": cents, "cents_per_solved": cents / accuracy,
            "seconds": 80.0, "calls": {"search-1": 1.2}, "tasks": 400, "intervals": ends}  # fmt: skip


def training_run(folder: Path, steps: int = 40, name: str = "tiny", seed: int = 0, share: float = 0.9) -> Path:
    """A run's folder with a report, as training leaves it."""
    of_oracle = {"value": share, "low": share - 0.06, "high": share + 0.07}
    preference = {"policy": standing("policy"), "oracle": standing("oracle"), "of_oracle": of_oracle}
    probe = {"name": f"price {name}", "left": "cheap", "right": "expensive", "left_rate": 0.8, "right_rate": 1 - share,
             "shift": -0.7}  # fmt: skip
    summary = {"simulated": True, "preset": name, "seed": seed, "steps": steps, "best_step": steps,
               "of_oracle": of_oracle,
               "by_preference": {f"frugal {name}": preference}, "failed": 0, "valid": 1.0,
               "standings": {one: standing(one) for one in PLAYERS},
               "by_environment": {f"ToolOrchestra/HLE-v0{name}": {one: standing(one) for one in PLAYERS}},
               "probes": [probe], "configuration": {"preset": name}}  # fmt: skip
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "summary.json").write_text(json.dumps(summary))
    rows: list[dict[str, Any]] = [{"kind": "warm", "step": n, "loss": 4.0 / (n + 1)} for n in range(steps)]
    for step in range(steps + 1):
        rows.append({"kind": "train", "step": step, "cents": 3.0 + step % 3,
                     "accuracy": 0.5, "time/step": 3.0, "time/sampling": 2.0, "time/training": 1.0})  # fmt: skip
        if step % (steps // 4) == 0:
            mine = {
                f"{one}/{key}": PLAYERS[one][k]
                for one in PLAYERS
                for k, key in enumerate(("reward", "accuracy", "cents"))
            }
            rows.append({"kind": "eval", "step": step, **mine, "policy/reward_low": 0.5, "policy/reward_high": 0.7,
                         "policy/cents": 4.0 - step / steps, "policy/calls/search-1": 2.0,
                         f"preference/frugal {name}/reward": 0.4 + step / steps / 10})  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    began = {
        "began": 1.7e9,
        "version": "9.8.7",
        "machine": "Fast CPU, 2 cores",
        "size": {"parameters": 196_864, "trained": 196_864},
    }
    (folder / SESSIONS).write_text(json.dumps(began) + "\n" + json.dumps({"ended": 1.7e9 + 600}) + "\n")
    return folder


def with_episodes(folder: Path) -> Path:
    """Beside it real episodes: two right or wrong ones of the test and one that failed, and a group of training."""
    file = record(folder / "made.jsonl", "HLE-v0", "cheapest", [1, 2, 3, 4], split="test")
    lines: list[dict[str, Any]] = list(read_trajectories(file))
    lines[0]["outcome"]["value"], lines[1]["outcome"]["value"] = 1.0, 0.0
    lines[3] |= {"outcome": None, "failed": {"where": "sampler", "error": f"Outage: gone {INJECTION}"}}
    for line in lines:
        line["messages"][1]["content"] += INJECTION
        line["charges"][0]["item"] += INJECTION
    (folder / "report" / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for place, line in enumerate(lines):
        line["training"] = {"step": 10, "group": 0, "rollout": place, "reward": 0.5, "spread": 0.2,
                            "advantage": 1.0 - place,
                            "left_out": ""}  # fmt: skip
    lines[3]["training"] |= {"reward": None, "advantage": None, "left_out": "the episode failed"}
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
