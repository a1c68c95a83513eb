"""A run's folder: one process works in it at a time, and knows before it begins that it can write there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import held


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder while this lasts."""
    busy = f"another process is training in {folder}; wait until it has ended, or name another folder"
    other = "--out FOLDER, another one"
    with ExitStack() as stack:
        try:
            for name in ("checkpoints", "report"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder, busy, other))
        except OSError as err:
            raise ConfigError(
                f"the run's folder cannot be written: {err}; name another folder", command_line=other
            ) from None
        yield
