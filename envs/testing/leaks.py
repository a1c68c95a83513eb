"""What a process holds that an abandoned episode could leak: threads, tasks, processes, files, episodes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.runtime.background import BackgroundLoop

PATIENCE_SECONDS = 2.0


class Held(NamedTuple):
    """What the process holds that an abandoned episode could leak."""

    threads: int
    tasks: int
    processes: int
    files: int
    episodes: int

    @classmethod
    def now(cls) -> Held:
        """Count. The shared background loop is started first, so that it counts in every count."""
        background = BackgroundLoop.shared()
        gc.collect()

        async def waiting() -> int:
            return len(asyncio.all_tasks()) - 1  # without this one

        return cls(
            threading.active_count(),
            background.submit(waiting()).result(10),
            len(multiprocessing.active_children()) + _children(),
            len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0,
            sum(type(o) is Episode for o in gc.get_objects()),
        )

    def leaked_since(self) -> str:
        """What there is more of now, in words, or "". What is on its way out is waited for while it goes on going."""
        last, patience = Held.now(), time.monotonic() + PATIENCE_SECONDS
        while self.exceeded_by(last) and time.monotonic() < patience:
            time.sleep(0.02)
            now = Held.now()
            if now != last:
                last, patience = now, time.monotonic() + PATIENCE_SECONDS
        return self.exceeded_by(last)

    def exceeded_by(self, now: Held) -> str:
        """What `now` has more of."""
        return ", ".join(f"{name}: {b - a} more" for name, a, b in zip(self._fields, self, now, strict=True) if b > a)


def _children() -> int:
    """Processes that this one has started. A thread that ends while this looks has none."""
    count = 0
    for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            count += len(children.read_text().split())
    return count
