"""Small made-up recordings, each of the shape that its form's program writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def mcpmark_run(number: int, success: bool, counts: tuple[int, int, int | None, int], seconds: float = 60.0) -> Any:
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "total_tokens")
    usage = dict(zip(names, counts, strict=True)) if any(counts) else {}
    return {
        "run": f"run-{number}",
        "success": success,
        "execution_time": seconds + 5,
        "agent_execution_time": seconds,
        "token_usage": usage,
        "turn_count": 3,
    }


def mcpmark_task(folder: Path, task: str, service: str, models: Mapping[str, list[Any]]) -> Path:
    told = {name: {"runs": runs, "summary": {"total_runs": len(runs)}} for name, runs in models.items()}
    return write_json(folder / "task_results" / f"{task}.json", {"task": task, "service": service, "models": told})


def mcpmark(folder: Path) -> Path:
    runs = [mcpmark_run(1, True, (100, 60, 50, 160)), mcpmark_run(2, False, (100, 20, None, 120), 90.0)]
    mcpmark_task(folder, "shop__find_price", "playwright", {"gpt-9": runs, "claude-x": runs[1:]})
    write_json(folder / "tasks" / "find_price.json", {"task_id": "find_price", "instruction": "Find the price."})
    return folder


def openhands(folder: Path) -> Path:
    told = {"a-1": {"resolved": True, "cost": 0.5}, "a-2": {"resolved": False, "cost": 0}}
    write_json(folder / "results" / "gpt-9" / "instance_results" / "gaia.json", told)
    other = {"a-1": {"resolved": None, "cost": None}, "a-2": {"resolved": False, "cost": 1.5}}
    write_json(folder / "alternative_agents" / "acp" / "gpt-9" / "instance_results" / "gaia.json", other)
    return folder


def evaluation_row(task: str, right: float | None = 1.0, **other: Any) -> dict[str, Any]:
    return {
        "env": "HLE-v0",
        "split": "test",
        "policy": "cheap",
        "task": task,
        "trial": 0,
        "status": "failed" if right is None else "ended",
        "right": right,
        "elapsed_ns": 90_000_000_000,
        "nano_usd_by_role": {"orchestrator": 1_000_000, "expert": 2_000_000, "judge": 9_000_000},
        "tokens": {"expert": [10, 5, 7, 3], "orchestrator": [1, 1, 1, 1]},
        "calls": {"answer-1": 1},
        "models": {"answer-1": "gpt-9", "answer-2": "small"},
        "groups": {"subject": "logic"},
        **other,
    }


def evaluation(folder: Path) -> Path:
    write_lines(folder / "rows.jsonl", [evaluation_row("t/1"), evaluation_row("t/2", 0.0)])
    return folder


def charge(item: str, role: str = "expert", nano_usd: int = 2_000_000) -> dict[str, Any]:
    counts = {"input": 10, "cached": 5, "output": 7, "reasoning": 3}
    return {"turn": 0, "item": item, "role": role, "tokens": counts, "nano_usd": nano_usd}


def trajectory(task: str, charges: list[Any], **other: Any) -> dict[str, Any]:
    return {
        "task_id": task,
        "seed": 1,
        "task": {"subject": "logic"},
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": f"Ask {task}"}],
        "charges": charges,
        "rewards": [1.0],
        "outcome": {"value": 1.0, "evidence": {}},
        "totals": {"seconds": 12.5, "nano_usd": 3},
        "truncated_by": "",
        "failed": None,
        "abandoned": False,
        **other,
    }


def trajectories(folder: Path) -> Path:
    return write_lines(folder / "runs.jsonl", [trajectory("t/1", [charge("gpt-9")]), trajectory("t/2", [charge("s")])])


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "evaluation": evaluation,
    "trajectories": trajectories,
    "mcpmark": mcpmark,
    "openhands": openhands,
}
