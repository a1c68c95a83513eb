"""What is said of an address where no Ray cluster can be, before Ray is asked: real sockets, and no Ray."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.two_texts import raises
from toolorchestra.agents.training.ray_address import OPTION, check_address
from toolorchestra.envs.base.errors import ConfigError


@pytest.fixture
def free() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_where_nothing_listens_the_systems_own_word_is_told(monkeypatch: pytest.MonkeyPatch, free: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", free)
    for given in (free, "auto"):
        with raises(ConfigError, rf"no Ray cluster at {free}: .*refused; start one with", OPTION):
            check_address(given)


def test_where_something_listens_ray_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["here:x", "ray://127.0.0.1:10001", "127.0.0.1:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with raises(ConfigError, f"the address of a Ray cluster is auto or HOST:PORT, got '{address}'; start one", OPTION):
        check_address(address)


def test_a_cluster_that_ray_noted_and_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    check_address("auto")  # what names no port is left to Ray
    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text(free)
    with raises(ConfigError, rf"no Ray cluster at {free}: .*; do this\. .*{file} names it, .*remove it", "--do this"):
        check_address("auto", start="do this", option="--do this")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    check_address("auto")
