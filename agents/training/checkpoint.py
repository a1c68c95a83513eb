"""Checkpoints: written beside, synced, then renamed, so that a crash at any moment leaves the last good one whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, WithOption

_PREFIX = "step-"
MANIFEST, STATE = "manifest.json", "state.json"
KEEP_LAST = 2
"""How many of the newest checkpoints are kept, beside the best one."""
_MOST_MANIFEST_BYTES = 1 << 20


class CheckpointError(WithOption, RuntimeError):
    """A checkpoint could not be written or is not whole."""


def save(folder: Path, step: int, state: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """One checkpoint: `write` puts files into a fresh folder, `state` goes beside them, a manifest lists all hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{_PREFIX}{step:06d}"
    draft = folder / f".{final.name}.{os.getpid()}"
    before = draft.with_name(f"{draft.name}.before")  # where the one of the same step is until this one stands
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _remove(before)
        draft.mkdir()
        write(draft)
        (draft / STATE).write_text(json.dumps(state, indent=1))
        hashes = {p.name: _digest(p) for p in sorted(draft.iterdir())}
        (draft / MANIFEST).write_text(json.dumps({"step": step, "files": hashes}, indent=1))
        for path in draft.iterdir():
            _sync(path)
        _sync(draft)
        if final.is_symlink() or final.exists():
            final.rename(before)
        draft.rename(final)
        _sync(folder)
        _remove(before)
    except BaseException as err:
        with suppress(OSError):  # none was set aside, or the new one stands
            before.rename(final)
        shutil.rmtree(draft, ignore_errors=True)
        if not isinstance(err, OSError):
            raise
        last = latest(folder)
        kept = f"the last good one is {last.name}" if last else "there is none yet"
        raise CheckpointError(
            f"checkpoint {final.name} could not be written: {err}; {kept}; free space, then go on with resume=True",
            command_line="--resume",
        ) from err
    return final


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _remove(path: Path) -> None:
    """A folder with all that is in it, or the link that stands for one."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check(path: Path) -> str:
    """What is wrong with a checkpoint, or ""."""
    try:
        if (path / MANIFEST).stat().st_size > _MOST_MANIFEST_BYTES:
            return f"{MANIFEST} is larger than {_MOST_MANIFEST_BYTES} bytes"
        manifest = json.loads((path / MANIFEST).read_bytes())
        files = manifest.get("files") if isinstance(manifest, dict) else None
        if not isinstance(files, dict) or STATE not in files:
            return f"{MANIFEST} does not list {STATE} and the other files with their hashes"
        for name, digest in files.items():
            if Path(name).name != name or not (path / name).is_file():
                return f"{MANIFEST} lists {name!r:.80}, which is no file of the checkpoint"
            if _digest(path / name) != digest:
                return f"{name} is not what was written"
        if not isinstance(json.loads((path / STATE).read_bytes()), dict):
            return f"{STATE} is no JSON object"
    except (OSError, ValueError, RecursionError) as err:
        return str(err) or type(err).__name__
    return ""


def all_of(folder: Path) -> list[Path]:
    """The checkpoints, oldest first, whole or not."""
    made = folder.glob(f"{_PREFIX}*")  # others than these are the user's, such as a copy of one
    return sorted(path for path in made if path.is_dir() and re.fullmatch(rf"{_PREFIX}\d{{6,}}", path.name))


def latest(folder: Path, complain: Callable[[str], None] | None = None) -> Path | None:
    """The newest whole checkpoint. `complain` hears of broken ones that were passed over."""
    for path in reversed(all_of(folder)):
        wrong = check(path)
        if not wrong:
            return path
        if complain:
            complain(f"checkpoint {path.name} is damaged ({wrong}) and passed over")
    return None


def read_state(path: Path, *, checked: bool = False) -> dict[str, Any]:
    """The state beside the weights. What was `checked` a moment ago is not hashed again: weights may be large."""
    if not checked and (wrong := check(path)):
        raise ConfigError(f"{path} is not a whole checkpoint: {wrong}")
    return dict(json.loads((path / STATE).read_bytes()))


def prune(folder: Path, keep: Sequence[Path], written: int) -> None:
    """Remove checkpoints older than the last ones up to step `written`, but not those to keep; what a crash left
    behind; and later ones: the run went back to an earlier one because they are damaged. Of one that is a link the link
    goes, and what it leads to stays."""
    paths = all_of(folder)
    upto = [path for path in paths if path.name <= f"{_PREFIX}{written:06d}"]
    for path in {*paths} - {*upto[-KEEP_LAST:], *keep}:
        try:
            _remove(path)
        except OSError as err:
            raise CheckpointError(
                f"old checkpoint {path.name} could not be removed: {err}; remove it yourself"
            ) from err
    for path in folder.glob(f".{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)
