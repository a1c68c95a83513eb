"""What is said of an address where no Ray cluster can be, before Ray is asked: real sockets, and no Ray."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.two_texts import raises
from toolorchestra.agents.training.ray_address import check_address
from toolorchestra.envs.base.errors import ConfigError

GRPC = b"\0\0\x12\4\0\0\0\0\0"
"""The head of a frame of settings, 18 bytes long."""


@contextmanager
def listening(pieces: Sequence[bytes], pause: float = 0.0, *, hangs_up: bool = False) -> Iterator[str]:
    """A server that sends these pieces to who connects, and then waits or hangs up; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # whoever asked may have gone
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause)
                if not hangs_up:
                    done.wait(30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join(30)


@pytest.mark.parametrize(
    ("pieces", "hangs_up", "said"),
    [
        ([], False, "it says nothing where a gRPC server sends its settings"),
        ([], True, "it says nothing where"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], True, "it begins with b'HTTP/1.1 ' where"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], False, "it begins with b'SSH-2.0-O' where"),
        ([b"\0\0\x12\4\0\0\0\0"], True, "it begins with"),
        ([b"\0\0\x12\4\0\0\0\0\1"], False, "it begins with"),
        ([b"\0\0\x12\1\0\0\0\0\0"], False, "it begins with"),
    ],
    ids=["silence", "hangs up", "http", "ssh", "half a frame", "another stream", "another frame"],
)
def test_a_port_that_is_not_rays_is_said_in_one_sentence(pieces: Sequence[bytes], hangs_up: bool, said: str) -> None:
    option = "--address HOST:PORT, or leave --address out"
    with listening(pieces, hangs_up=hangs_up) as address, raises(ConfigError, "no Ray cluster", option) as caught:
        check_address(address, 0.5)
    assert str(caught.value).startswith(f"no Ray cluster at {address}: something listens there that is not Ray, ")
    assert said in str(caught.value)
    assert str(caught.value).endswith("or leave address out to train here")


def test_a_grpc_server_is_left_to_ray_though_its_bytes_come_one_by_one() -> None:
    with listening([bytes([byte]) for byte in GRPC]) as address:
        check_address(address, 30)


def test_a_server_that_drips_is_not_waited_for() -> None:
    with (
        listening([b"\0"] * 8, 0.2, hangs_up=True) as address,
        pytest.raises(ConfigError, match=r"begins with b'\\x00"),
    ):
        check_address(address, 0.3)


def test_where_nothing_listens_the_systems_own_word_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for given in (address, "auto"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=rf"no Ray cluster at {address}: .*refused; start one with"):
            check_address(given)


@pytest.mark.parametrize("address", ["here:x", "ray://127.0.0.1:10001", "127.0.0.1:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    said = f"the address of a Ray cluster is auto or HOST:PORT, got '{address}'; start one with"
    with raises(ConfigError, said, "--address HOST:PORT, or leave --address out"):
        check_address(address)


def test_a_cluster_that_ray_noted_and_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text(address)
    with raises(ConfigError, rf"no Ray cluster at {address}: .*; do this\. .*{file} names it", "--do this") as told:
        check_address("auto", start="do this", option="--do this")
    assert "remove it" in str(told.value)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    check_address("auto")


def test_what_names_no_port_is_left_to_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    check_address("auto")
    check_address("")


def test_an_encrypted_cluster_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening([b"\x15\3\3\0\2\2\x46"], hangs_up=True) as address:
        check_address(address, 0.5)
