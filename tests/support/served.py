"""The server of `toolorchestra serve`, in this process on a real loopback socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands.serve import ServeOptions, app_of, check, service_of
from toolorchestra.agents.serving.service import PolicyService

if TYPE_CHECKING:
    import httpx2 as httpx

BACKENDS = """
[endpoints.local]
base_url = "{url}"
in_flight = 4
[models."*"]
endpoints = ["local"]
retries = 0
deadline_seconds = 20.0
output_tokens = 1000
price = {{usd_per_mtok = {{input = 1.0, output = 10.0}}}}
"""
PARIS = ServerReply("<answer>Paris</answer>", usage={"prompt_tokens": 100, "completion_tokens": 1000})
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
ANSWER_ALONE: Any = {"orchestrator_tools": ["answer"]}


@dataclass(frozen=True)
class ServedPolicies:
    """A server that answers."""

    url: str
    service: PolicyService
    folder: Path

    def ask(self, model: str, said: Any, key: str = "none", **more: Any) -> httpx.Response:
        """Ask a question, or go on with a conversation."""
        import httpx2 as httpx

        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        body = {"model": model, "messages": messages, **more}
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=20)

    def left_waiting(self, question: str, key: str = "none") -> Any:
        """The answer to a request that waits for the client's tool: `random` calls any, sooner or later that one."""
        for seed in range(40):
            told = self.ask("random", question, key, tools=[ADD], seed=seed).json()
            if told["choices"][0]["finish_reason"] == "tool_calls":
                return told
        raise AssertionError("never called")


@contextmanager
def running_over(
    reply: Callable[[ReceivedRequest], ServerReply], folder: Path, *policies: str, **options: Any
) -> Iterator[tuple[ServedPolicies, Loopback]]:
    """Serve policies over experts that reply so."""
    file = folder / "backends.toml"
    with Loopback(reply) as expert:
        file.write_text(BACKENDS.format(url=expert.base_url))
        with running(folder / "out", *policies, backends=str(file), **options) as server:
            yield server, expert


@contextmanager
def running(folder: Path, *policies: str, **options: Any) -> Iterator[ServedPolicies]:
    """Serve policies, over simulated experts where nothing else is named, until the end of the block."""
    if "backends" not in options:
        options["sim"] = True
    given = ServeOptions(policy=policies or ("cascade",), port=0, out=str(folder), **options)
    check(given)
    service = service_of(given, folder)
    with on_loopback(app_of(service)) as url:
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
