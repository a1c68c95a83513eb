"""What an evaluation says while it runs: on a terminal one line that changes, in a log a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.agents.evaluation.statistics import wilson
from toolorchestra.envs.base.terminal import spelled
from toolorchestra.envs.money.prices import NANO

LOG_SECONDS = 15.0


class EvaluationProgress:
    """Counts the rows of one policy on one split, and tells of them."""

    def __init__(self, title: str, planned: int, done: int = 0, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._title, self._planned, self._before = title, planned, done
        self._rows: list[EvaluationRow] = []
        self._began = self._told = time.monotonic()
        self._terminal = self._stream.isatty()
        self._width = 0

    def ended(self, row: EvaluationRow) -> None:
        """Count a row, and tell when it is time."""
        self._rows.append(row)
        now = time.monotonic()
        if now - self._told >= (0.2 if self._terminal else LOG_SECONDS):
            self._told = now
            self._tell(self.line())

    def close(self) -> None:
        """Clears the line on a terminal that shows the progress."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def line(self) -> str:
        """Done, right so far with its interval, cents so far and a task, time left, failures."""
        rows, done = self._rows, self._before + len(self._rows)
        ended = [row for row in rows if row.right is not None]
        failed = sum(row.status == "failed" for row in rows)
        parts = [f"{self._title}: {done} of {self._planned}"]
        if ended:
            right = sum(row.right or 0.0 for row in ended)
            interval = wilson(right / len(ended), len(ended))
            parts.append(f"right {right:g} of {len(ended)} ({interval.low:.0%} to {interval.high:.0%})")
        cents = 100 * sum(row.nano_usd for row in rows) / NANO
        parts.append(f"{cents:.4g} ¢ so far, {cents / max(1, len(rows)):.4g} ¢ a task")
        if left := self._planned - done:
            seconds = (time.monotonic() - self._began) / max(1, len(rows)) * left
            parts.append(f"{seconds // 60:.0f}:{seconds % 60:02.0f} left")
        if failed:
            parts.append(f"{failed} failed")
        return ", ".join(parts)

    def _tell(self, line: str) -> None:
        text = spelled(line)
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = max(self._width, len(text))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
