"""Whether a Ray cluster may be at an address, asked by a few bytes before Ray is: Ray itself tries for many minutes."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError

CONNECT_SECONDS = 5.0
"""For the connection, and as long again for the first answer."""
START = "start one with `ray start --head`, or leave address out to train here"
OPTION = "--address HOST:PORT, or leave --address out"
"""What to do where there is none, for Python and for the command line."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a client of HTTP/2, and so of gRPC, which Ray speaks, begins: the preface, then a frame of no settings."""
FRAME_HEAD_BYTES = 9
SETTINGS_FRAME = 4
"""The kind of frame that a server of HTTP/2 must send first, by the fourth byte of its head (RFC 9113, 3.4 and 4.1)."""


def check_address(address: str, seconds: float = CONNECT_SECONDS, start: str = START, option: str = OPTION) -> None:
    """Raise ConfigError where no Ray cluster can be at HOST:PORT. "auto" is what Ray would take by itself: RAY_ADDRESS,
    or the cluster that the last `ray start` of this machine made. `start` and `option` say what to do,
    to Python and on the command line."""
    named, noted = address, None
    if address == "auto" and not (named := os.environ.get("RAY_ADDRESS", "")):
        noted = noted_cluster()
        named = noted.read_text(encoding="utf-8").strip() if noted else ""
    host, colon, port = named.rpartition(":")
    if not colon:
        return
    try:
        _check_host_and_port(named, host, port, seconds, start)
    except ConfigError as err:
        if noted is None:
            raise ConfigError(str(err), command_line=option) from None
        raise ConfigError(
            f"{err}. {noted} names it, as a cluster that was killed leaves it: remove it", command_line=option
        ) from None


def noted_cluster() -> Path | None:
    """The file in which Ray keeps the address of the last `ray start` of this machine; None where there is none."""
    place = os.environ.get("RAY_TMPDIR") or (os.environ.get("TMPDIR") if sys.platform == "linux" else "")
    file = Path(place or ("/tmp" if sys.platform != "win32" else tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    return file if file.is_file() else None


def _check_host_and_port(named: str, host: str, port: str, seconds: float, start: str) -> None:
    if not port.isdecimal() or "/" in host:
        raise ConfigError(f"the address of a Ray cluster is auto or HOST:PORT, got {named!r}; {start}")
    try:
        answer = first_answer(host.strip("[]"), int(port), seconds)
    except (OSError, OverflowError) as err:
        raise ConfigError(f"no Ray cluster at {named}: {err}; {start}") from None
    if not is_grpc(answer) and not speaks_tls():
        said = "says nothing" if not answer else f"begins with {answer!r}"
        raise ConfigError(
            f"no Ray cluster at {named}: something listens there that is not Ray, it {said} where a gRPC server sends "
            f"its settings; name the port of `ray start --head`, 6379 where none was chosen, or {start}"
        )


def first_answer(host: str, port: int, seconds: float) -> bytes:
    """The first bytes that the server sends, a frame's head at most; fewer where it hangs up or its time is over."""
    with socket.create_connection((host, port), seconds) as connection:
        got, end = b"", time.monotonic() + seconds
        try:
            connection.sendall(HELLO)
            while len(got) < FRAME_HEAD_BYTES and (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                if not (more := connection.recv(FRAME_HEAD_BYTES - len(got))):
                    break
                got += more
        except OSError:  # it hung up on us, or was silent
            pass
        return got


def is_grpc(answer: bytes) -> bool:
    """Whether it is the head of a frame of settings, on the stream 0."""
    return len(answer) == FRAME_HEAD_BYTES and answer[3] == SETTINGS_FRAME and not any(answer[5:])


def speaks_tls() -> bool:
    """Ray's own switch: the cluster's bytes are encrypted then, and cannot be read here."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
