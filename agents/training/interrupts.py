"""Ctrl-C and SIGTERM: the first one lets the step end and saves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from toolorchestra.agents.training.training_run import TrainingRun


@contextmanager
def stops_after_the_step(run: TrainingRun) -> Iterator[None]:
    """While this lasts, the first of either signal makes the run stop after its step; a second one ends it at once, and
    so does the first where may_end_at_once() says so."""
    before = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if run.ends_at_once:
            raise KeyboardInterrupt
        run.stopping = True
        again = "Ctrl-C" if number == signal.SIGINT else "the signal"
        run.say(f"stopping after this step; {again} again to stop at once")

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop)
    except ValueError:  # not the main thread, where there is no signal to catch
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def may_end_at_once(run: TrainingRun) -> Iterator[None]:
    """For what takes minutes and learns nothing: all that is worth saving is saved before."""
    run.ends_at_once = True
    try:
        yield
    finally:
        run.ends_at_once = False
