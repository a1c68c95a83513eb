"""What the server of `toolorchestra serve` costs a request: `python -m scripts.bench_serve`.

An expert in a process of its own answers at once, and the policy decides by rule. Asked are, one after another and with
64 and 512 in flight: the expert itself, the server in front of it, and with `--litellm FILE` (the program of an
environment of its own) LiteLLM's proxy. CPU is that of the asked process alone, by the kernel's count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from scripts.bench_endpoints import served as expert_of

MODEL, OURS = "always:answer-1", "toolorchestra serve"
QUESTION = "What is the capital of France? " * 20
IN_FLIGHT = (1, 64, 512)
BACKENDS = """
[endpoints.local]
base_url = "{url}"
in_flight = 1024
[models."*"]
endpoints = ["local"]
price = {{free = "a stand-in"}}
"""
LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/gpt-5, api_base: {url}, api_key: none}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""


class Asked(NamedTuple):
    """Something that answers OpenAI's chat API."""

    name: str
    url: str
    pid: int


@contextmanager
def started(name: str, command: list[str], port: int, path: str) -> Iterator[Asked]:
    """A server as a process, once it is there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            with socket.socket() as there:
                if not there.connect_ex(("127.0.0.1", port)):
                    break
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(f"{name} did not start: {' '.join(command)}")
            time.sleep(0.1)
        time.sleep(3)
        yield Asked(name, f"http://127.0.0.1:{port}{path}", process.pid)
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """What a process and its children that still run have used."""
    pids = [pid, *map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())]
    ticks = 0
    for one in pids:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def ask(asked: Asked, requests: int, in_flight: int) -> tuple[float, list[float]]:
    """Requests over kept connections, by a client that costs little: the seconds, and each one's milliseconds."""
    host, _, path = asked.url.removeprefix("http://").partition("/")
    own = {"orchestrator_tools": ["answer"]} if asked.name == OURS else {}
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], **own}).encode()
    head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    sent = f"{head}authorization: Bearer none\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    left, times = iter(range(requests)), []

    async def one() -> None:
        name, port = host.split(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        for _ in left:
            began = time.perf_counter()
            writer.write(sent)
            got = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(line for line in got.split(b"\r\n") if line.startswith(b"content-length"))
            answer = await reader.readexactly(int(length.split(b":")[1]))
            if b" 200 " not in got.partition(b"\r\n")[0]:
                raise SystemExit(f"{asked.name}: {got.partition(b'date')[0]!r} {answer[:200]!r}")
            times.append((time.perf_counter() - began) * 1e3)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(in_flight)])
    return time.perf_counter() - began, times


def measured(asked: Asked, requests: int, in_flight: int) -> str:
    """A row of the table."""
    asyncio.run(ask(asked, max(in_flight, 20), in_flight))  # connections and caches
    before = cpu_seconds(asked.pid) if asked.pid else 0.0
    seconds, times = asyncio.run(ask(asked, requests, in_flight))
    cpu = (cpu_seconds(asked.pid) - before) / requests * 1e3 if asked.pid else float("nan")
    p99 = statistics.quantiles(times, n=100)[98]
    told = f"{requests / seconds:12.0f}{statistics.median(times):12.2f}{p99:10.2f}{cpu:8.2f}"
    return f"{asked.name:22}{in_flight:10}{told}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--litellm", default="", help="the program of LiteLLM's proxy")
    given = parser.parse_args()
    with ExitStack() as stack:
        expert = stack.enter_context(expert_of())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "backends.toml").write_text(BACKENDS.format(url=expert))
        (folder / "litellm.yaml").write_text(LITELLM.format(url=expert, model=MODEL))
        port, other = free_port(), free_port()
        serve = [
            sys.executable,
            "-m",
            "toolorchestra",
            "serve",
            MODEL,
            "--port",
            str(port),
            "--out",
            str(folder / "out"),
        ]
        serve += ["--backends", str(folder / "backends.toml"), "--at-once", "1024", "--queue", "1024"]
        everybody = [Asked("the expert itself", expert, 0), stack.enter_context(started(OURS, serve, port, "/v1"))]
        if given.litellm:
            proxy = [given.litellm, "--config", str(folder / "litellm.yaml"), "--port", str(other)]
            everybody.append(stack.enter_context(started("LiteLLM's proxy", proxy, other, "/v1")))
        print(f"{'':22}{'in flight':>10}{'requests/s':>12}{'ms, median':>12}{'ms, p99':>10}{'CPU ms':>8}")
        for in_flight in IN_FLIGHT:
            for asked in everybody:
                print(measured(asked, given.requests // (4 if in_flight == 1 else 1), in_flight), flush=True)


if __name__ == "__main__":
    main()
