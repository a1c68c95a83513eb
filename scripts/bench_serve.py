"""What the server of `toolorchestra serve` costs a request: `python -m scripts.bench_serve`.

An expert in a process of its own answers at once, and the policy decides by rule. Asked are, one after another and with
64 and 512 in flight: the expert itself, the server in front of it, and with `--litellm FILE` (the program of an
environment of its own) LiteLLM's proxy. CPU is that of the asked process alone, by the kernel's count.

`--minutes 10` keeps 512 requests in flight to experts that think for ten seconds: whether memory and descriptors of the
server stay, and whether its accounts have what the expert has counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from scripts.bench_endpoints import served as expert_of
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.serving.accounts import Accounts

MODEL, OURS = "always:answer-1", "toolorchestra serve"
QUESTION = "What is the capital of France? " * 20
IN_FLIGHT = (1, 64, 512)
BACKENDS = """
[endpoints.local]
base_url = "{url}"
in_flight = 1024
[models."*"]
endpoints = ["local"]
output_tokens = 1000
price = {{usd_per_mtok = {{input = 1.0, output = 10.0}}}}
"""
USED, PAID_NANO_USD = {"prompt_tokens": 100, "completion_tokens": 1000}, 10_100_000
SLOW_SECONDS, LOOK_SECONDS = 10.0, 10.0
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


def sent_to(asked: Asked, **more: Any) -> tuple[str, int, bytes]:
    """Where a request goes, and its bytes."""
    where, _, path = asked.url.removeprefix("http://").partition("/")
    host, port = where.split(":")
    own = {"orchestrator_tools": ["answer"]} if asked.name == OURS else {}
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], **own, **more}).encode()
    head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {where}\r\ncontent-type: application/json\r\n"
    return host, int(port), f"{head}authorization: Bearer none\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def ask(asked: Asked, left: Iterator[object], in_flight: int) -> tuple[float, list[float]]:
    """Requests over kept connections, by a client that costs little: the seconds, and each one's milliseconds."""
    host, port, sent = sent_to(asked)
    times: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, port)
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


async def streamed(asked: Asked, requests: int, answer: bytes) -> str:
    """Least milliseconds to the first piece of a stream, and to the one that has the answer."""
    host, port, sent = sent_to(asked, stream=True)
    firsts: list[float] = []
    answers: list[float] = []
    reader, writer = await asyncio.open_connection(host, port)
    for _ in range(requests):
        began = time.perf_counter()
        writer.write(sent)
        await reader.readuntil(b"data: ")
        firsts.append((time.perf_counter() - began) * 1e3)
        await reader.readuntil(answer)
        answers.append((time.perf_counter() - began) * 1e3)
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    return f"{asked.name:22}{min(firsts):14.2f}{min(answers):14.2f}"


def measured(asked: Asked, requests: int, in_flight: int) -> str:
    """A row of the table."""
    asyncio.run(ask(asked, iter(range(max(in_flight, 20))), in_flight))  # connections and caches
    before = cpu_seconds(asked.pid) if asked.pid else 0.0
    seconds, times = asyncio.run(ask(asked, iter(range(requests)), in_flight))
    cpu = (cpu_seconds(asked.pid) - before) / requests * 1e3 if asked.pid else float("nan")
    p99 = statistics.quantiles(times, n=100)[98]
    told = f"{requests / seconds:12.0f}{statistics.median(times):12.2f}{p99:10.2f}{cpu:8.2f}"
    return f"{asked.name:22}{in_flight:10}{told}"


# -- minutes -----------------------------------------------------------------------------------------------------------


def _counting(pipe: Connection) -> None:
    count = 0

    def reply(_asked: ReceivedRequest) -> ServerReply:
        nonlocal count
        count += 1
        server.seen.clear()
        return ServerReply("<answer>42</answer>", usage=USED, seconds=SLOW_SECONDS * random.uniform(0.5, 1.5))

    with Loopback(reply) as server:
        pipe.send(server.base_url)
        pipe.recv()
        pipe.send(count)


async def looked_at(pid: int, seconds: float) -> list[tuple[float, int]]:
    """A process's MiB and descriptors, from time to time."""
    made: list[tuple[float, int]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        made.append((pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/fd"))))
    return made


async def steady(asked: Asked, minutes: float, in_flight: int) -> tuple[int, list[tuple[float, int]]]:
    """Requests for so many minutes: how many, and what was seen of the server meanwhile."""
    until = time.monotonic() + minutes * 60
    left = itertools.takewhile(lambda _: time.monotonic() < until, itertools.count())
    (_, times), seen = await asyncio.gather(ask(asked, left, in_flight), looked_at(asked.pid, minutes * 60))
    return len(times), seen


def stays(folder: Path, minutes: float, in_flight: int = 512) -> None:
    """Keep the server busy for minutes, and say whether it stays as it is."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    expert = multiprocessing.get_context("spawn").Process(target=_counting, args=(theirs,), daemon=True)
    expert.start()
    with started(OURS, *serve_command(folder, ours.recv()), "/v1") as asked:
        requests, seen = asyncio.run(steady(asked, minutes, in_flight))
    ours.send("count")
    counted = ours.recv()
    (account,) = Accounts(database=str(folder / "out" / "accounts.sqlite"), replica="other").accounts()
    said = "equal" if account.spent == counted * PAID_NANO_USD and not account.held else "NOT EQUAL"
    early, late = seen[min(5, len(seen) - 1)], seen[-1]
    memory, files = zip(*seen, strict=True)
    print(f"{minutes:g} minutes, {in_flight} in flight, experts of {SLOW_SECONDS:g} s: {requests:,} answers")
    print(f"memory {early[0]:.1f} MiB after a minute, {late[0]:.1f} at the end, {max(memory):.1f} at most")
    print(f"descriptors {early[1]} after a minute, {late[1]} at the end, {max(files)} at most")
    print(f"ledger {account.spent:,} nano-dollars, {counted:,} replies of the expert: {said}")


def serve_command(folder: Path, expert: str) -> tuple[list[str], int]:
    """The server in front of an expert, and its port."""
    (folder / "backends.toml").write_text(BACKENDS.format(url=expert))
    port = free_port()
    words = [sys.executable, "-m", "toolorchestra", "serve", MODEL, "--port", str(port), "--out", str(folder / "out")]
    return [*words, "--backends", str(folder / "backends.toml"), "--at-once", "1024", "--queue", "1024"], port


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--litellm", default="", help="the program of LiteLLM's proxy")
    parser.add_argument("--minutes", type=float, default=0.0, help="stay busy so long in place of the table")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.minutes:
            stays(folder, given.minutes)
            return
        expert = stack.enter_context(expert_of())
        (folder / "litellm.yaml").write_text(LITELLM.format(url=expert, model=MODEL))
        served = started(OURS, *serve_command(folder, expert), "/v1")
        everybody = [Asked("the expert itself", expert, 0), stack.enter_context(served)]
        if given.litellm:
            other = free_port()
            proxy = [given.litellm, "--config", str(folder / "litellm.yaml"), "--port", str(other)]
            everybody.append(stack.enter_context(started("LiteLLM's proxy", proxy, other, "/v1")))
        print(f"{'':22}{'in flight':>10}{'requests/s':>12}{'ms, median':>12}{'ms, p99':>10}{'CPU ms':>8}")
        for in_flight in IN_FLIGHT:
            for asked in everybody:
                print(measured(asked, given.requests // (4 if in_flight == 1 else 1), in_flight), flush=True)
        print(f"{'a stream':22}{'ms to a piece':>14}{'to the answer':>14}")
        for asked, answer in zip(everybody, (b"[DONE]", b'"content":"42"'), strict=False):
            print(asyncio.run(streamed(asked, given.requests // 8, answer)))


if __name__ == "__main__":
    main()
