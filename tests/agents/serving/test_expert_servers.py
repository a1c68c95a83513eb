"""`serve experts` with a stand-in for vLLM's server, a program of its own: started, waited for, named and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolorchestra.agents.commands import serve_experts
from toolorchestra.agents.serving.expert_servers import VllmServer, endpoint_file, read_servers, serving
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.models.endpoints import Endpoints

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc, which is Linux's")
Capture = pytest.CaptureFixture[str]
SERVER = '''
"""Answers /health, and /v1/models with its model, or with $SERVES; told by $MOOD to break, or to say nothing."""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

print("started with", *sys.argv[1:], flush=True)
if os.environ.get("MOOD") == "broken":
    sys.exit("no GPU for me")
if os.environ.get("MOOD") == "dumb":
    time.sleep(60)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(3)
        model = {"data": [{"id": os.environ.get("SERVES", sys.argv[sys.argv.index("--model") + 1])}]}
        said = json.dumps(model).encode() if self.path == "/v1/models" else b""
        self.send_response(200 if said or self.path == "/health" else 404)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
'''


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """The environment in which `vllm` is the program above."""
    package = tmp_path / "packages" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(SERVER)
    return {"PYTHONPATH": str(tmp_path / "packages")}


def toml(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"


def file_of(folder: Path, **servers: dict[str, Any]) -> Path:
    path = folder / "experts.toml"
    path.write_text("[servers]\n" + "\n".join(f"{name} = {toml(row)}" for name, row in servers.items()))
    return path


@contextmanager
def interrupted(when: Callable[[], bool], number: int) -> Iterator[None]:
    """A signal to this process, as soon as something is so."""

    def wait() -> None:
        end = time.monotonic() + 20
        while not when() and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    hand = threading.Thread(target=wait, daemon=True)
    hand.start()
    try:
        yield
    finally:
        hand.join(30)


def started(folder: Path) -> list[int]:
    """Processes that run the stand-in of a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"PYTHONPATH={folder / 'packages'}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def test_servers_stand_until_a_signal_and_their_file_says_where(
    stand_in: dict[str, str], tmp_path: Path, capsys: Capture
) -> None:
    served = {"context_tokens": 16384, "price": {"usd_per_mtok": {"input": 1, "output": 2}}}
    one = {"model": "org/one", "names": ["qwen3-8b", "gpt-5"], "arguments": ["--max-model-len", "16384"]}
    two = {"model": "org/two", "names": ["gpt-5-mini"], "gpu_share": 0.4, "environment": stand_in}
    file = file_of(tmp_path, one={**one, "environment": stand_in, "served": served}, two=two)
    out, logs, seen = tmp_path / "backends.toml", tmp_path / "logs", list[int]()

    def written() -> bool:
        seen[:] = started(tmp_path) if out.exists() and out.read_text().endswith("\n") else []
        return bool(seen)

    with interrupted(written, signal.SIGTERM):
        code = serve_experts.main([str(file), "--out", str(out), "--logs", str(logs)])
    assert code == 0
    assert len(seen) == 2
    assert started(tmp_path) == []
    said = capsys.readouterr().out.splitlines()
    assert {line.partition(":")[0] for line in said[:2]} == {"one", "two"}
    assert said[2:] == [f"{out} written; Ctrl-C stops the servers", "stopped"]
    data = tomllib.loads(out.read_text())
    assert {name: (row["model"], row["endpoints"]) for name, row in data["models"].items()} == {
        "qwen3-8b": ("org/one", ["one"]), "gpt-5": ("org/one", ["one"]), "gpt-5-mini": ("org/two", ["two"]),
    }  # fmt: skip
    assert data["models"]["gpt-5"]["price"] == served["price"]
    Endpoints.read(data, "here")
    port = data["endpoints"]["one"]["base_url"].removeprefix("http://127.0.0.1:").removesuffix("/v1")
    told = (logs / "one.log").read_text()
    assert f"--model org/one --host 127.0.0.1 --port {port} --generation-config vllm --max-model-len 16384" in told
    assert "--gpu-memory-utilization 0.4" in (logs / "two.log").read_text()


def test_one_that_breaks_is_told_with_its_last_words(stand_in: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    good, broken = (
        {"model": "m", "environment": stand_in},
        {"model": "m", "environment": {**stand_in, "MOOD": "broken"}},
    )
    out, logs = tmp_path / "backends.toml", tmp_path / "logs"
    words = [str(file_of(tmp_path, good=good, bad=broken)), "--out", str(out), "--logs", str(logs)]
    assert serve_experts.main(words) == 1
    err = capsys.readouterr().err
    assert f"error: server 'bad' ended with 1; {logs / 'bad.log'} ends with:\n" in err
    assert err.endswith("no GPU for me\n\n")
    assert not out.exists()
    assert started(tmp_path) == []


def test_one_that_never_answers_is_named(stand_in: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    file = file_of(tmp_path, slow={"model": "m", "environment": {**stand_in, "MOOD": "dumb"}})
    words = [str(file), "--out", str(tmp_path / "b.toml"), "--logs", str(tmp_path / "logs"), "--start-seconds", "0.2"]
    assert serve_experts.main(words) == 1
    said = f"error: no answer within 0.2 s: slow (see {tmp_path / 'logs' / 'slow.log'}); raise start_seconds, or "
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.endswith(" look into the log. On the command line: a higher --start-seconds\n")
    assert started(tmp_path) == []


def test_one_that_ends_while_it_serves_is_noticed(stand_in: dict[str, str], tmp_path: Path) -> None:
    said: list[str] = []
    server = VllmServer("one", "m", environment=stand_in)
    with serving([server], tmp_path / "logs", 30.0, said.append) as (running,):
        assert running.answers()
        with suppress(OSError):  # it goes without an answer
            urllib.request.urlopen(running.base_url.replace("/v1", "/die"), timeout=5).close()
        running.process.wait(10)
        with pytest.raises(Outage, match=r"^server 'one' ended with 3; .*one\.log ends with:\nstarted with --model m"):
            running.answers()
    assert said[0].startswith(f"one: {running.base_url} answers after ")


def test_a_server_of_another_model_is_none_of_ours(stand_in: dict[str, str], tmp_path: Path) -> None:
    other = VllmServer("math", "some/model", environment={**stand_in, "SERVES": "other/model"})
    with (
        pytest.raises(Outage, match="serves other/model and not 'some/model'"),
        serving([other], tmp_path / "logs", 20.0, lambda _: None),
    ):
        pytest.fail("it was taken for ours")
    named = VllmServer("math", "some/model", environment={**stand_in, "SERVES": "x"}, served={"model": "x"})
    with serving([named], tmp_path / "logs", 20.0, lambda _: None) as running:
        assert running[0].answers()


def test_a_taken_port_is_one_line_before_anything_starts(tmp_path: Path, capsys: Capture) -> None:
    """A stranger's answers would pass for ours."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = file_of(tmp_path, math={"model": "m", "port": taken.getsockname()[1]})
        out = tmp_path / "out.toml"
        assert serve_experts.main([str(file), "--out", str(out), "--logs", str(tmp_path / "logs")]) == 2
    said, err = capsys.readouterr()
    assert said == ""
    assert re.match(r"error: server 'math': port \d+ cannot be taken \(Address already in use\)[^\n]*\n$", err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experts.toml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("= 3", "Invalid"),
        ("", "no server; add one"),
        ('[servers.one]\nmodel = "m"\ngpus = 2', "no key 'gpus'"),
        ("[server]", "no key 'server'; valid: servers"),
        ("a = {model = 'm', gpu_share = 0.6}\nb = {model = 'm', gpu_share = 0.6}", "on one GPU add up to 1.2"),
        ("a = {model = 'm', port = 7001}\nb = {model = 'm', port = 7001}", "servers a and b have one port, 7001"),
        (
            "a = {model = 'm', names = ['x']}\nb = {model = 'n', names = ['y', 'x']}",
            "servers a and b stand for 'x' and differ in it: {'model': 'm'} and {'model': 'n'}; give both the same",
        ),
        ("a = {model = 'm', names = ['x'], served = {output_token = 5}}", "models.x: no key 'output_token'"),
        ("a = {model = 'm', arguments = ['--port=80']}", "server a: arguments may not set --port; say port = NUMBER"),
    ],
)
def test_what_cannot_be_served_is_said(text: str, says: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "experts.toml"
    file.write_text(f"[servers]\n{text}" if text.startswith("a =") else text)
    assert serve_experts.main([str(file), "--logs", str(tmp_path / "logs")]) == 2
    out, err = capsys.readouterr()
    assert (out, err[:7]) == ("", "error: ")
    assert says in err


def test_a_file_of_servers_is_read_as_editors_save_it(tmp_path: Path, capsys: Capture) -> None:
    (file := tmp_path / "experts.toml").write_text("[server]", encoding="utf-8-sig")  # as Windows' editors do
    assert serve_experts.main([str(file), "--out", str(tmp_path / "made" / "backends.toml")]) == 2
    assert "no key 'server'" in capsys.readouterr().err
    assert (tmp_path / "made").is_dir()
    file.write_bytes("# für\n".encode("latin-1"))
    assert serve_experts.main([str(file)]) == 2
    assert "is not TOML: 'utf-8' codec" in capsys.readouterr().err


def test_any_character_of_a_path_stands_in_the_file() -> None:
    one = VllmServer("one", "/models/𝔮wen é", names=("x",))
    running: Any = SimpleNamespace(server=one, base_url="http://127.0.0.1:80/v1")
    assert tomllib.loads(endpoint_file([running]))["models"]["x"]["model"] == one.model


def test_gpus_of_their_own_have_whole_shares() -> None:
    apart = {"model": "m", "gpu_share": 0.6, "environment": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert len(read_servers({"servers": {"a": {"model": "m", "gpu_share": 0.6}, "b": apart}}, "f")) == 2
