"""How far a run is: a bar that is drawn over on a terminal, a line for each finished stage elsewhere."""

from __future__ import annotations

from typing import TextIO

from toolorchestra.envs.base.terminal import spelled

WIDTH = 24


class Bars:
    """Progress by stage on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = stream.isatty()

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Stage, and how many of how many."""
        ended = done >= of
        if self._drawn:
            full = WIDTH * done // max(1, of)
            bar = "#" * full + "." * (WIDTH - full)
            self._stream.write(f"\r{stage:10} [{bar}] {done}/{of}   ")
            if ended and of == 1:
                self._stream.write("\n")
            self._stream.flush()
        elif ended and of == 1:
            self._stream.write(f"{stage} done\n")
            self._stream.flush()

    def note(self, text: str) -> None:
        """A line of its own, such as what is waited for."""
        self._stream.write(f"\n{spelled(text)}\n" if self._drawn else f"{spelled(text)}\n")
        self._stream.flush()
