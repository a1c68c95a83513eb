"""Ends other processes when this one is gone, however it went: no handler runs after a SIGKILL."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class Guard:
    """A shell that reads from a pipe which only this process holds, and kills what it was told when the pipe ends."""

    def __init__(self, pids: Sequence[int] = (), groups: Sequence[int] = ()) -> None:
        victims = [*map(str, pids), *(f"-{group}" for group in groups)]
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 -- "$@"', "guard", *victims],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Whoever is guarded is about to be ended in order."""
        self._shell.kill()
        self._shell.communicate()
