"""Where a run's numbers go: a JSONL that survives a crash, TensorBoard and wandb where installed, a line of text."""

from __future__ import annotations

import json
import math
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, one_line


class Log:
    """Metrics of a run. After a resume, lines from beyond the checkpoint are dropped first. Rows of the kind "warm" are
    of the supervised start, whose steps have numbers of their own."""

    def __init__(
        self,
        folder: Path,
        step: int,
        *,
        warm_steps: int = 0,
        evaluated: int = -1,
        wandb: Mapping[str, Any] | None = None,
    ) -> None:
        """`evaluated`: the step of the last evaluation that the checkpoint knows of. `wandb`: the settings that are
        shown there; None leaves it out."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "metrics.jsonl"
        done = {"warm": warm_steps, "eval": evaluated + 1}
        kept = [r for r in read(self.path) if r["step"] < done.get(r["kind"], step)]
        draft = folder / ".metrics.jsonl"
        draft.write_text("".join(json.dumps(row) + "\n" for row in kept))
        draft.replace(self.path)
        self._board = _tensorboard(folder)
        self._wandb = None if wandb is None else _wandb(folder, wandb)

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends one row of metrics to metrics.jsonl, and gives its numbers to TensorBoard and wandb where they are
        on."""
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **clean}) + "\n")
        numbers = {f"{kind}/{k}": v for k, v in clean.items() if isinstance(v, int | float)}
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log({**numbers, f"{kind}/step": step})

    def close(self) -> None:
        """Closes TensorBoard and wandb, so that all of their rows are written."""
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The whole rows of a metrics file; lines that a crash tore are left out, wherever they stand."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def _tensorboard(folder: Path) -> Any:
    try:
        from tensorboard.summary import Writer
    except ImportError:
        return None
    return Writer(str(folder / "tensorboard"))


def _wandb(folder: Path, settings: Mapping[str, Any]) -> Any:
    try:
        import wandb
    except ImportError:
        raise ConfigError("wandb is not installed; pip install wandb, or set wandb=False") from None
    kept = folder / "wandb-id"  # a run that goes on is the same one there
    if not kept.exists():
        kept.write_text(secrets.token_hex(8))
    named = {"id": kept.read_text(), "resume": "allow", "config": {**settings}, "allow_val_change": True}
    made = wandb.init(dir=str(folder), project="toolorchestra", **named)
    for kind in ("warm", "train", "eval"):  # each has steps of its own
        made.define_metric(f"{kind}/*", step_metric=f"{kind}/step")
    return made


class Progress:
    """One line that is rewritten on a terminal, and printed now and then elsewhere."""

    def __init__(self, total: int, done: int = 0) -> None:
        self._total, self._first = total, done
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()
        self._printed = 0.0

    def show(self, done: int, text: str, *, always: bool = False) -> None:
        """Where the run is, and when it will be done."""
        now = time.monotonic()
        if not (always or self._live or now - self._printed > 10):
            return
        self._printed = now
        made = done - self._first
        left = (now - self._started) / made * (self._total - done) if made else float("nan")
        eta = f", {left:.0f} s left" if math.isfinite(left) else ""
        end = "\r" if self._live and not always else "\n"
        wipe = "\033[2K" if self._live else ""
        print(f"{wipe}{done}/{self._total} {one_line(text)}{eta}", end=end, file=sys.stderr, flush=True)
