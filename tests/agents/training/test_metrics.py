"""The metrics file of a run: what a resume keeps of it, whatever happens meanwhile."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from toolorchestra.agents.training.metrics import Log, read


def rows(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder / "metrics.jsonl")]


def written(folder: Path) -> None:
    log = Log(folder, 0)
    for step in range(100):
        log.write("train", step, {"reward": 0.5})
    log.close()


def test_rows_from_beyond_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    written(tmp_path)
    Log(tmp_path, 40).close()
    assert rows(tmp_path) == list(range(40))
    assert [path.name for path in tmp_path.glob("metrics*")] == ["metrics.jsonl"]


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:40], lines[40][:20], b"\n", *lines[41:], b"\0\xff"]))
    Log(tmp_path, 100).close()
    assert rows(tmp_path) == [*range(40), *range(41, 100)]


def test_resumed_on_a_full_disk_no_row_is_lost(tmp_path: Path) -> None:
    written(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # a longer write fails, as a full disk's does
    try:
        with pytest.raises(OSError, match="too large"):
            Log(tmp_path, 90)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert rows(tmp_path) == list(range(100))
