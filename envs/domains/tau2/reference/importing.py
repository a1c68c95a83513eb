"""Runs a toolkit's modules under names of their own, with every import in them answered by us.

`tau2.domains.NAME` is the user's folder where it has NAME, and the package's otherwise; `datetime`, `time`, `random`,
`uuid`, `secrets` and `os` are the frozen ones; everything else is what it always is. This is no sandbox: the code may
do whatever the process may. It is run because its user said so.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import sys
import traceback
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.reference.frozen_modules import FrozenModules

_DOMAINS = "tau2.domains"


class Importer:
    """The modules of the domains of one folder, at one frozen moment."""

    def __init__(self, folders: Mapping[str, Path], frozen: FrozenModules) -> None:
        self._folders = folders
        self._frozen = frozen
        where = "\n".join([*(f"{name}={path}" for name, path in sorted(folders.items())), str(frozen.now)])
        self.root = f"reference_{hashlib.sha256(where.encode()).hexdigest()[:12]}"
        """The package that the modules say they belong to. They are looked up by it where annotations are resolved."""
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, domain: str, name: str) -> ModuleType:
        """A module of a domain, such as `tools`. Raises ConfigError, which says what kept it from running."""
        package.module("environment.toolkit")  # first and by its own way: it must not read .env files or log
        from loguru import logger

        logger.disable(self.root)
        path = self._folders[domain] / f"{name}.py"
        try:
            return self._local(f"{domain}.{name}")
        except ConfigError:
            raise
        except ModuleNotFoundError as err:
            what = f"{path} imports {err.name!r}, which is neither in the folder nor installed"
            raise ConfigError(f"{what}; install what the toolkit needs into this environment") from err
        except Exception as err:
            raise ConfigError(f"{path} cannot be run: {_told(err)}; it has to import by itself") from err

    # -- answering imports ---------------------------------------------------------------------------------------------

    def _import(
        self,
        name: str,
        scope: Mapping[str, Any] | None = None,
        _locals: object = None,
        wanted: Any = (),
        level: int = 0,
    ) -> Any:
        asking = str((scope or {}).get("__package__") or "")
        full = util.resolve_name("." * level + name, asking) if level else name
        if full in self._frozen.modules:
            return self._frozen.modules[full]
        inner = self._inner(full, asking)
        if inner is None:
            made = builtins.__import__(name, scope, None, wanted, level)
            top = made.__name__
            return self._frozen.modules.get(top, made) if not wanted else made
        if not wanted:
            self._local(inner)
            return self._chain(full, inner)
        found = self._chain(_DOMAINS, "").domains if inner == "" else self._local(inner)
        for part in wanted or ():
            if not hasattr(found, part) and self._path(f"{inner}.{part}".lstrip(".")):
                setattr(found, part, self._local(f"{inner}.{part}".lstrip(".")))
        return found

    def _inner(self, full: str, asking: str) -> str | None:
        """A module's name within the folder, such as `bank.data_model`; None when it is not the folder's."""
        if full == _DOMAINS:
            return ""
        for prefix in (_DOMAINS, self.root):
            if full.startswith(f"{prefix}."):
                inner = full.removeprefix(f"{prefix}.")
                if inner.partition(".")[0] in self._folders:
                    return inner
                if prefix == self.root:
                    raise ModuleNotFoundError(f"no domain {inner!r} in the folder", name=inner)
                return None
        beside = f"{asking.removeprefix(self.root + '.')}.{full}"
        if asking.startswith(self.root) and "." not in full and self._path(beside):
            return beside  # `from data_model import ...`, as a script in that folder would
        return None

    def _chain(self, full: str, inner: str) -> Any:
        """What `import a.b.c` binds: a, in which b and c are found."""
        if not full.startswith("tau2"):
            return self._local(inner)
        top, domains = ModuleType("tau2"), ModuleType(_DOMAINS)
        vars(top).update(vars(importlib.import_module("tau2")))
        vars(domains).update(vars(importlib.import_module(_DOMAINS)))
        vars(top)["domains"] = domains
        vars(domains).update({name: m for name, m in self._modules.items() if "." not in name})
        return top

    # -- running modules -----------------------------------------------------------------------------------------------

    def _path(self, inner: str) -> Path | None:
        domain, *parts = inner.split(".")
        if domain not in self._folders:
            return None
        base = self._folders[domain].joinpath(*parts)
        if base.is_dir():
            return base
        file = base.with_name(f"{base.name}.py")
        return file if file.is_file() else None

    def _local(self, inner: str) -> ModuleType:
        if inner in self._modules:
            return self._modules[inner]
        parent, _, own = inner.rpartition(".")
        above = self._local(parent) if parent else None
        path = self._path(inner)
        if path is None:
            raise ModuleNotFoundError(f"no module {inner!r} in the folder", name=f"{_DOMAINS}.{inner}")
        made = self._run(inner, path)
        if above is not None:
            setattr(above, own, made)
        return made

    def _run(self, inner: str, path: Path) -> ModuleType:
        name = f"{self.root}.{inner}"
        made = ModuleType(name)
        file = path / "__init__.py" if path.is_dir() else path
        made.__package__ = name if path.is_dir() else name.rpartition(".")[0]
        made.__file__ = str(file)
        vars(made)["__builtins__"] = self._builtins
        self._modules[inner] = sys.modules[name] = made
        try:
            if file.is_file():
                exec(compile(util.decode_source(file.read_bytes()), str(file), "exec", dont_inherit=True), vars(made))
        except BaseException:
            del self._modules[inner], sys.modules[name]
            raise
        return made


def _told(err: Exception) -> str:
    """An error with the line that it came from, where it names one of its own."""
    frames = traceback.extract_tb(err.__traceback__)
    at = "" if isinstance(err, SyntaxError) or not frames else f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return f"{type(err).__name__}: {err}{at}"
