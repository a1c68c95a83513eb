"""A stranger's folder cannot show what lies outside it, and cannot fill the memory."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from pathlib import Path

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import inside, read_inside, unpacked

TEXT = b"a line\n" * 500_000


@pytest.mark.parametrize(
    "data", [gzip.compress(TEXT[:700]) + gzip.compress(TEXT[700:]), gzip.compress(TEXT) + b"\0" * 100]
)
def test_a_gzip_file_is_read_as_gzip_reads_it(data: bytes) -> None:
    assert unpacked(data, "x.gz") == gzip.decompress(data) == TEXT
    assert unpacked(b"", "x.gz") == b""


@pytest.mark.parametrize("data", [gzip.compress(TEXT)[:-9], gzip.compress(TEXT) + b"more"])
def test_what_is_damaged_is_an_error_as_with_gzip(data: bytes) -> None:
    with pytest.raises((EOFError, zlib.error)):
        unpacked(data, "x.gz")


@pytest.mark.parametrize("members", [100])
def test_a_bomb_is_refused_and_costs_no_memory(members: int) -> None:
    bomb = gzip.compress(b"0" * (60_000_000 // members)) * members
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"x\.gz unpacks to more than 4194304 bytes"):
            unpacked(bomb, "x.gz", 4 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_nothing_outside_is_read(tmp_path: Path) -> None:
    folder, other = tmp_path / "a", tmp_path / "ab"
    folder.mkdir()
    other.mkdir()
    (other / "secret").write_text("x")
    (folder / "own").write_text("own")
    (folder / "near").symlink_to("own")
    (folder / "out").symlink_to("../ab/secret")
    (folder / "far").symlink_to("/etc/passwd")
    (folder / "chain").symlink_to("far")
    (tmp_path / "door").symlink_to(folder)
    assert read_inside(folder, folder / "near") == read_inside(tmp_path / "door", tmp_path / "door" / "near") == b"own"
    for name in ("out", "far", "chain"):
        with pytest.raises(ConfigError, match=rf"{name} is a link that leads out of"):
            inside(folder, folder / name)


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(ConfigError, match="is larger than 1000 bytes"):
        read_inside(tmp_path, tmp_path / "big", 1000)
