"""When a run was trained, for how long, by which version and on which machine: `sessions.jsonl` of the run's folder.

A run that was stopped and went on has several sessions. Nothing of the training depends on the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolorchestra import __version__
from toolorchestra.agents.engines.base import ModelSize
from toolorchestra.agents.engines.machine import Machine
from toolorchestra.agents.training import checkpoint
from toolorchestra.envs.base.cassette import append_line, end_torn_line

SESSIONS = "sessions.jsonl"


@dataclass(frozen=True)
class Session:
    """From one start of the training to its end or its stop."""

    began: float
    """Seconds since 1970, as all times here."""
    ended: float | None
    """None while it goes on."""
    version: str
    machine: str
    size: ModelSize | None
    """Of the model; None where the engine does not say."""
    step: int = 0
    """Steps of reinforcement learning that were taken before it."""

    @property
    def date(self) -> str:
        """When it began, in UTC."""
        return datetime.fromtimestamp(self.began, UTC).strftime("%Y-%m-%d %H:%M UTC")


@contextmanager
def recorded(folder: Path, machine: Machine, size: ModelSize | None, step: int = 0) -> Iterator[None]:
    """Write down that the training begins, and at its end or stop that it has ended. A session that was killed ends
    with the newest checkpoint: what came after it was lost."""
    path = folder / SESSIONS
    end_torn_line(path)
    _close_killed(path, folder)
    began = {"began": time.time(), "version": __version__, "machine": str(machine), "parts": asdict(machine),
             "size": None if size is None else size._asdict(), "step": step}  # fmt: skip
    _append(path, began)
    try:
        yield
    finally:
        _append(path, {"ended": time.time()})


def read_sessions(folder: Path) -> list[Session]:
    """All of a run's. Empty for a run of an earlier version, which wrote none."""
    found: list[Session] = []
    for row in _rows(folder / SESSIONS):
        if "began" in row:
            size = ModelSize(**row["size"]) if row.get("size") else None
            found.append(Session(row["began"], None, row["version"], row["machine"], size, row.get("step", 0)))
        elif found and found[-1].ended is None:
            last = found[-1]
            found[-1] = replace(last, ended=row["ended"])
    return found


def seconds_of(sessions: list[Session], clock: Callable[[], float] = time.time) -> float:
    """How long a run was trained in all its sessions together. One that goes on counts until now."""
    return sum((clock() if one.ended is None else one.ended) - one.began for one in sessions)


def _close_killed(path: Path, folder: Path) -> None:
    last = next(reversed(list(_rows(path))), None)
    if last is None or "began" not in last:
        return
    kept = [one.stat().st_mtime for place in ("checkpoints", "warm_start") for one in checkpoint.all_of(folder / place)]
    _append(path, {"ended": max([last["began"], *kept]), "killed": True})


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The whole lines."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and ("began" in row or "ended" in row):
                yield row


def _append(path: Path, row: Mapping[str, Any]) -> None:
    append_line(path, json.dumps(row).encode() + b"\n")
