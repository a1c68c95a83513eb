"""Servers are ours when they answer: a stranger's on the port is told, and no file is written for it."""

from __future__ import annotations

import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.agents.serving import stranger
from toolorchestra.agents.commands import serve_experts
from toolorchestra.agents.serving.expert_servers import Server, endpoint_file, read_servers, serving
from toolorchestra.envs.base.errors import ConfigError, Outage

FAKE = str(Path(__file__).parent / "fake")


def server(name: str = "math", port: int = 0, **environment: str) -> Server:
    return Server(name, "some/model", (name,), port, environment={"PYTHONPATH": FAKE, **environment})


@contextmanager
def taken() -> Iterator[int]:
    """A port where somebody else's server of models answers."""
    with HTTPServer(("127.0.0.1", 0), stranger.StrangersAnswers) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield other.server_address[1]
        other.shutdown()


def test_servers_that_answer_make_an_endpoint_file(tmp_path: Path) -> None:
    said: list[str] = []
    with serving([server("a"), server("b")], tmp_path, 20.0, said.append) as running:
        made = tomllib.loads(endpoint_file(running))
    assert sorted(line.partition(":")[0] for line in said) == ["a", "b"]
    assert made["models"]["a"]["model"] == "some/model"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running[0].port), timeout=5)


def test_a_taken_port_is_one_line_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with taken() as port:
        (tmp_path / "experts.toml").write_text(
            f'[servers.math]\nmodel = "some/model"\nnames = ["m"]\nport = {port}\n'
            f'environment = {{PYTHONPATH = "{FAKE}"}}\n'
        )
        given = [str(tmp_path / "experts.toml"), "--out", str(tmp_path / "out.toml"), "--logs", str(tmp_path / "logs")]
        assert serve_experts.main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: server 'math': port {port} cannot be taken (Address already in use)")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experts.toml"]


def test_a_server_of_another_model_is_none_of_ours(tmp_path: Path) -> None:
    with (
        pytest.raises(Outage, match="serves other/model and not 'some/model'"),
        serving([server(SERVES="other/model")], tmp_path, 20.0, lambda _: None),
    ):
        pytest.fail("it was taken for ours")


def test_a_model_may_be_served_under_another_name(tmp_path: Path) -> None:
    named = Server("math", "some/model", environment={"PYTHONPATH": FAKE, "SERVES": "x"}, served={"model": "x"})
    with serving([named], tmp_path, 20.0, lambda _: None) as running:
        assert running[0].answers()


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    told = pytest.raises(Outage, match=r"server 'math' ended with 3; .*math\.log ends with:\nup")
    with told, serving([server(ENDS="1.5")], tmp_path, 30.0, lambda _: None) as running:
        while running[0].answers():
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"a": {"port": 7001}, "b": {"port": 7001}}, "servers a and b have one port, 7001; change one"),
        ({"a": {"port": 70_000}}, "server a: port is a number from 0 to 65535, got 70000"),
        ({"a": {"arguments": ["--port=80"]}}, "server a: arguments may not set --port; say port = NUMBER"),
        ({"a": {"arguments": ["--port", "80"]}}, "server a: arguments may not set --port"),
    ],
)
def test_ports_that_cannot_be_are_refused(rows: dict[str, dict[str, Any]], says: str) -> None:
    data = {"servers": {name: {"model": "m", **row} for name, row in rows.items()}}
    with pytest.raises(ConfigError, match=says):
        read_servers(data, "experts.toml")
