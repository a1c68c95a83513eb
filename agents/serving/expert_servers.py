"""Starts `vllm serve` processes from a small TOML, waits until they answer, and writes the endpoint file they make.

[servers.small]
model = "Qwen/Qwen3-8B"                 # a folder or hub id
names = ["qwen3-8b"]                    # priced names that it stands for; "*" is every other one
port = 8001                             # 0 takes a free one
gpu_share = 0.4
arguments = ["--max-model-len", "16384"]
environment = {CUDA_VISIBLE_DEVICES = "0"}
served = {context_tokens = 16384}       # further keys of the models' entries
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.guarded_processes import ProcessGuard
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError, Outage, install
from toolorchestra.envs.base.http_client import HttpPoster, Posted
from toolorchestra.envs.models.endpoints import Endpoints

LOOK_SECONDS, STOP_SECONDS = 0.5, 20.0
LAST_WORDS_CHARACTERS = 2_000
_MOST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class VllmServer:
    """One `vllm serve` process to start: the model, the names it answers to, and its share of the GPU."""

    name: str
    """The table's own name."""
    model: str
    """A folder or hub id."""
    names: tuple[str, ...] = ()
    """The priced names that it stands for; "*" is every other one."""
    port: int = 0
    """0 takes a free one. One that another process has is refused."""
    gpu_share: float = 0.0
    """Share of the GPU's memory. Shares on one GPU may not add up to more than 1. 0 leaves it to vLLM, as on a machine
    without a GPU."""
    arguments: tuple[str, ...] = ()
    """Further ones of `vllm serve`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process, such as CUDA_VISIBLE_DEVICES."""
    served: Mapping[str, Any] = field(default_factory=dict)
    """What goes into the backends file for its names: keys of a model's entry there."""

    @property
    def served_name(self) -> str:
        """What requests call the model."""
        return str(self.served.get("model", self.model))

    def command(self, port: int) -> list[str]:
        """What is run. The model's own generation defaults are left out, so a request means what it says."""
        made = [*VLLM, "--model", self.model, "--host", "127.0.0.1", "--port", str(port), "--generation-config", "vllm"]
        share = ["--gpu-memory-utilization", str(self.gpu_share)] if self.gpu_share else []
        return [*made, *share, *self.arguments]


VLLM = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
"""What `vllm serve` runs; its command line asks for a package named vllm, which the CPU build is not."""


@dataclass
class _ServersFile:
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_servers(data: Mapping[str, Any], where: str) -> list[VllmServer]:
    """Read a parsed file with the table `servers`."""
    named = shapes.read(_ServersFile, data, where).servers
    if not named:
        raise ConfigError(f'{where}: no server; add one: [servers.small] model = "Qwen/Qwen3-8B", names = ["qwen3-8b"]')
    made = [shapes.read(VllmServer, row, f"{where}: servers.{name}", name=name) for name, row in named.items()]
    owners: dict[int, str] = {}
    for one in made:
        if not 0 <= one.port < 1 << 16:
            raise ConfigError(f"{where}: server {one.name}: port is a number from 0 to 65535, got {one.port}")
        if any(word.partition("=")[0] == "--port" for word in one.arguments):
            raise ConfigError(f"{where}: server {one.name}: arguments may not set --port; say port = NUMBER")
        if one.port and one.port in owners:
            raise ConfigError(
                f"{where}: servers {owners[one.port]} and {one.name} have one port, {one.port}; change one"
            )
        owners[one.port] = one.name
    total = sum(s.gpu_share for s in made if "CUDA_VISIBLE_DEVICES" not in s.environment)
    if total > 1:
        raise ConfigError(
            f"{where}: the gpu_share of the servers on one GPU add up to {total:g}; lower them, or give each GPUs "
            'of its own: environment = {CUDA_VISIBLE_DEVICES = "1"}'
        )
    _tables([(one, "http://127.0.0.1:1/v1") for one in made], where)  # before models are loaded for long
    return made


def _taken_port(server: VllmServer) -> int:
    """The server's port, or a free one. Refuses one that another process has: its answers would pass for ours."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port just left is free
        try:
            tried.bind(("127.0.0.1", server.port))
        except OSError as err:
            raise ConfigError(
                f"server {server.name!r}: port {server.port} cannot be taken ({err.strerror}); end what has it, or "
                "name another, or 0 for a free one"
            ) from None
        return int(tried.getsockname()[1])


class Running:
    """A `vllm serve` process that was started: its address, its log and its end."""

    def __init__(self, server: VllmServer, port: int, logs: Path) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.url}/v1"
        self.log = logs / f"{server.name}.log"
        self._guard = ProcessGuard()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                server.command(port),
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **server.environment, **self._guard.environment},
                start_new_session=True,  # Ctrl-C reaches this process alone, which then stops them in order
            )

    def answers(self) -> bool:
        """Whether it is healthy. One that has ended is an error, with its last words."""
        self._check_alive()
        healthy = self._asked("health").status == 200
        self._check_alive()
        return healthy

    def _check_alive(self) -> None:
        if (code := self.process.poll()) is not None:
            words = self.log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS_CHARACTERS:]
            lacks = "No module named 'vllm'" in words
            do = f"; it needs vLLM, which is not installed here: {install('vllm')}" if lacks else ""
            raise Outage(f"server {self.server.name!r} ended with {code}{do}; {self.log} ends with:\n{words}")

    def check_model(self) -> None:
        """Refuse an answer that is not of the model that was started: then another process has the port."""
        found = self._asked("v1/models")
        if found.status == 401:  # it was given a key of its own, without which it does not say
            return
        try:
            names = [str(row["id"]) for row in json.loads(found.text)["data"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            names = []
        if self.server.served_name not in names:
            served = ", ".join(names[:5])[:200] or "no model"
            raise Outage(
                f"server {self.server.name!r}: {self.base_url} serves {served} and not {self.server.served_name!r}; if "
                "that is its name, say served = {model = NAME}, else another process has the port"
            )

    def _asked(self, path: str) -> Posted:
        return HttpPoster(self.url, "", LOOK_SECONDS * 4, most_bytes=_MOST_ANSWER_BYTES).get(path)

    def stop(self) -> None:
        """End it and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        self._guard.strike()
        self.process.wait(STOP_SECONDS)


@contextmanager
def serving(
    servers: Sequence[VllmServer], logs: Path, start_seconds: float, say: Callable[[str], None] = print
) -> Iterator[list[Running]]:
    """All servers, answering; they end with the block, also when one of them never answers."""
    ports = [_taken_port(server) for server in servers]
    logs.mkdir(parents=True, exist_ok=True)
    running: list[Running] = []
    try:
        for server, port in zip(servers, ports, strict=True):
            running.append(Running(server, port, logs))
        _wait(running, start_seconds, say)
        yield running
    finally:
        for one in running:
            one.stop()


def _wait(running: Sequence[Running], start_seconds: float, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    waiting = list(running)
    while waiting:
        for one in [one for one in waiting if one.answers()]:
            one.check_model()
            waiting.remove(one)
            say(f"{one.server.name}: {one.base_url} answers after {time.monotonic() - started:.0f} s")
        if waiting and time.monotonic() - started > start_seconds:
            names = ", ".join(f"{one.server.name} (see {one.log})" for one in waiting)
            raise Outage(
                f"no answer within {start_seconds:g} s: {names}; raise start_seconds, or look into the log",
                command_line="a higher --start-seconds",
            )
        if waiting:
            time.sleep(LOOK_SECONDS)
    for one in running:  # one may have ended while others started
        one.answers()


def endpoint_file(running: Sequence[Running]) -> str:
    """The endpoint file of these servers, as TOML."""
    lines: list[str] = []
    for table, rows in _tables([(one.server, one.base_url) for one in running], "these servers").items():
        for name, row in rows.items():
            lines += [f"[{table}.{_toml(name)}]", *(f"{k} = {_toml(v)}" for k, v in row.items()), ""]
    return "\n".join(lines)


def _tables(servers: Sequence[tuple[VllmServer, str]], where: str) -> dict[str, dict[str, Any]]:
    """The endpoint file's tables, of servers at these addresses. Raises ConfigError for what it cannot say."""
    data: dict[str, dict[str, Any]] = {"endpoints": {}, "models": {}}
    told: dict[str, tuple[str, dict[str, Any]]] = {}
    for one, url in servers:
        data["endpoints"][one.name] = {"base_url": url}
        mine = {"model": one.model, **one.served}
        for name in one.names:
            other, its = told.setdefault(name, (one.name, mine))
            if its != mine:
                raise ConfigError(
                    f"{where}: servers {other} and {one.name} stand for {name!r} and differ in it: {its!r:.120} and "
                    f"{mine!r:.120}; give both the same model and the same served, or other names"
                )
            entry = data["models"].setdefault(name, {"model": one.model, "endpoints": [], **one.served})
            entry["endpoints"].append(one.name)
    Endpoints.read(data, f"{where}: their endpoint file")
    return data


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)  # of two escapes for one character TOML takes neither
