"""Whether a Ray cluster may be at an address: asked by a connection before Ray is, which tries for many minutes."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError

CONNECT_SECONDS = 5.0
START = "start one with `ray start --head`, or leave address out to train here"
OPTION = "--address HOST:PORT, or leave --address out"
"""What to do where there is none, for Python and for the command line."""


def check_address(address: str, start: str = START, option: str = OPTION) -> None:
    """Raise ConfigError where nothing listens at HOST:PORT. "auto" is what Ray would take by itself: RAY_ADDRESS, or
    the cluster that the last `ray start` of this machine made and noted in a file. `start` and `option` say what to do,
    to Python and on the command line."""
    named, noted = address, None
    if address == "auto" and not (named := os.environ.get("RAY_ADDRESS", "")):
        place = os.environ.get("RAY_TMPDIR") or (os.environ.get("TMPDIR") if sys.platform == "linux" else "")
        place = place or ("/tmp" if sys.platform != "win32" else tempfile.gettempdir())
        noted = Path(place) / "ray" / "ray_current_cluster"
        named = noted.read_text(encoding="utf-8").strip() if noted.is_file() else ""
    host, colon, port = named.rpartition(":")
    if not colon:
        return
    if not port.isdecimal() or "/" in host:
        raise ConfigError(
            f"the address of a Ray cluster is auto or HOST:PORT, got {named!r}; {start}", command_line=option
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as err:
        left = f". {noted} names it, as a cluster that was killed leaves it: remove it" if noted else ""
        raise ConfigError(f"no Ray cluster at {named}: {err}; {start}{left}", command_line=option) from None
