"""The server of `toolorchestra serve`, in this process on a real loopback socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from toolorchestra.agents.commands.serve import ServeOptions, app_of, check, service_of
from toolorchestra.agents.serving.service import PolicyService


@dataclass(frozen=True)
class ServedPolicies:
    """A server that answers."""

    url: str
    service: PolicyService
    folder: Path


@contextmanager
def running(folder: Path, *policies: str, **options: Any) -> Iterator[ServedPolicies]:
    """Serve policies, over simulated experts where nothing else is named, until the end of the block."""
    if "backends" not in options:
        options["sim"] = True
    given = ServeOptions(policy=policies or ("cascade",), port=0, out=str(folder), **options)
    check(given)
    service = service_of(given, folder)
    app = app_of(service, simulated=given.sim)
    with on_loopback(app) as url:
        yield ServedPolicies(url, service, folder)


@contextmanager
def on_loopback(app: Any) -> Iterator[str]:
    """An ASGI application on a real loopback socket, by its URL."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
