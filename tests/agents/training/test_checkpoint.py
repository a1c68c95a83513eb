"""Checkpoints survive what machines do to files."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path, PosixPath
from typing import Any

import pytest

from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.checkpoint import CheckpointError
from toolorchestra.envs.base.errors import ConfigError


def write(text: str = "weights"):  # type: ignore[no-untyped-def]
    return lambda folder: (folder / "engine.pt").write_text(text)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "changed", "gone", "no manifest"])
def test_a_damaged_one_is_passed_over_and_said(tmp_path: Path, damage: str) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {}, write("some weights"))
    victim = tmp_path / "step-000002" / ("manifest.json" if damage == "no manifest" else "engine.pt")
    if damage in ("gone", "no manifest"):
        victim.unlink()
    else:
        victim.write_text({"truncated": "some", "emptied": "", "changed": "same wEights"}[damage])
    said: list[str] = []
    assert checkpoint.latest(tmp_path, said.append) == tmp_path / "step-000001"
    assert "step-000002 is damaged" in said[0]
    with pytest.raises(ConfigError, match="not a whole checkpoint"):
        checkpoint.read_state(tmp_path / "step-000002")


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path) -> None:
    """/dev/full is a disk without space: what is written there fails as it would."""

    def full(folder: Path) -> None:
        (folder / "engine.pt").write_text("half of the wei")
        Path("/dev/full").write_text("x" * 100_000)

    with pytest.raises(CheckpointError, match="No space left on device; there is none yet"):
        checkpoint.save(tmp_path, 1, {}, full)
    checkpoint.save(tmp_path, 1, {}, write())
    with pytest.raises(CheckpointError, match=r"No space left on device; the last good one is step-000001; free space"):
        checkpoint.save(tmp_path, 2, {}, full)
    assert checkpoint.latest(tmp_path) == tmp_path / "step-000001"
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]


def test_what_breaks_off_leaves_no_draft(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {}, write())
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoint.save(tmp_path, 1, {"wrong": len}, write())
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert checkpoint.check(tmp_path / "step-000001") == ""


class FullDisk(PosixPath):
    """A disk without space for the name of a folder that is new."""

    def rename(self, target: Any) -> FullDisk:
        if self.suffix == f".{os.getpid()}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return FullDisk(super().rename(target))


@pytest.mark.parametrize("linked", [False, True])
def test_one_of_the_same_step_stays_until_the_new_one_stands(tmp_path: Path, linked: bool) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "run"
    made = checkpoint.save(folder, 5, {"said": "one"}, write())
    if linked:
        made.rename(elsewhere)
        made.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="No space left on device; the last good one is step-000005"):
        checkpoint.save(FullDisk(folder), 5, {"said": "other"}, write())
    assert [path.name for path in folder.iterdir()] == ["step-000005"]
    assert checkpoint.read_state(made) == {"said": "one"}
    checkpoint.save(folder, 5, {"said": "other"}, write())
    assert [path.name for path in folder.iterdir()] == ["step-000005"]
    assert checkpoint.read_state(made) == {"said": "other"}


def test_old_ones_go_the_best_stays_and_drafts_are_swept(tmp_path: Path) -> None:
    for step in range(1, 6):
        checkpoint.save(tmp_path, step, {}, write())
    (tmp_path / ".step-000006.123").mkdir()
    checkpoint.prune(tmp_path, [tmp_path / "step-000002"], 5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]


def test_a_copy_under_another_name_is_the_users(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, {}, write())
        if step == 10:
            shutil.copytree(tmp_path / "step-000010", tmp_path / "step-000010-good")
            shutil.copytree(tmp_path / "step-000010", tmp_path / "step-last")
    assert [path.name for path in checkpoint.all_of(tmp_path)] == ["step-000010", "step-000020", "step-000030"]
    checkpoint.prune(tmp_path, [], 30)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"step-000010-good", "step-000020", "step-000030", "step-last"}


def test_a_damaged_later_one_does_not_displace_what_was_written_after_it(tmp_path: Path) -> None:
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {}, write())
    (tmp_path / "step-000020" / "state.json").write_text("torn")
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.name == "step-000010"
    checkpoint.save(tmp_path, 15, {}, write())
    checkpoint.prune(tmp_path, [], 15)
    assert [p.name for p in checkpoint.all_of(tmp_path)] == ["step-000010", "step-000015"]


@pytest.mark.parametrize(
    "manifest",
    [
        "7",
        '{"files": []}',
        '{"files": {}}',
        '{"files": {"../step-000001/state.json": "x", "state.json": "x"}}',
        '{"files": {"": "", "state.json": ""}}',
        '{"files": {"state\\u0000.json": "", "state.json": ""}}',
        "[" * 100_000,
        "\ud800",
        " " * (2 << 20),
    ],
)
def test_a_manifest_of_another_shape_is_passed_over_and_said(tmp_path: Path, manifest: str) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {}, write())
    (tmp_path / "step-000002" / "manifest.json").write_text(manifest, encoding="utf-8", errors="surrogatepass")
    said: list[str] = []
    assert checkpoint.latest(tmp_path, said.append) == tmp_path / "step-000001"
    assert len(said) == 1
    assert len(said[0]) < 300
    with pytest.raises(ConfigError, match="not a whole checkpoint"):
        checkpoint.read_state(tmp_path / "step-000002")


def test_nothing_outside_a_checkpoint_is_read(tmp_path: Path) -> None:
    made = checkpoint.save(tmp_path, 1, {}, write())
    (made / "engine.pt").unlink()
    os.mkfifo(made / "engine.pt")  # opening it would wait for ever
    assert "engine.pt" in checkpoint.check(made)


def test_of_a_linked_checkpoint_the_link_goes_and_its_files_stay(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "run"
    for step in (1, 2, 3):
        checkpoint.save(folder, step, {}, write())
    for step in (1, 3):
        name = f"step-{step:06d}"
        elsewhere.mkdir(exist_ok=True)
        (folder / name).rename(elsewhere / name)
        (folder / name).symlink_to(elsewhere / name)
    checkpoint.save(folder, 3, {"again": True}, write())
    checkpoint.prune(folder, [], 3)
    assert [p.name for p in checkpoint.all_of(folder)] == ["step-000002", "step-000003"]
    assert not (folder / "step-000003").is_symlink()
    assert checkpoint.check(elsewhere / "step-000001") == checkpoint.check(elsewhere / "step-000003") == ""
