"""Worker processes of a command line, which end with it when it is interrupted."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


def _begin() -> None:
    """In a worker: the parent alone hears an interrupt, and its end of a worker is an end, whatever the parent does at
    that signal itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that an interrupt of the parent ends at once, and that say nothing of their own. Submit jobs, do not
    map them: what map() has cancelled by then breaks the pool's thread when its workers are gone."""
    with ProcessPoolExecutor(count, initializer=_begin) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise
