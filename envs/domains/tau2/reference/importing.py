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
from toolorchestra.envs.domains.tau2.installed_code import import_as_inside
from toolorchestra.envs.domains.tau2.reference.frozen_modules import FrozenModules

_DOMAINS = "tau2.domains"


class Importer:
    """The modules of the domains of one folder, at one frozen moment."""

    def __init__(self, folders: Mapping[str, Path], frozen: FrozenModules) -> None:
        self._folders, self._frozen = folders, frozen
        where = "\n".join([*(f"{name}={path}" for name, path in sorted(folders.items())), str(frozen.now)])
        self.root = f"reference_{hashlib.sha256(where.encode()).hexdigest()[:12]}"
        """The package that the modules say they belong to. They are looked up by it where annotations are resolved."""
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, domain: str, name: str) -> ModuleType:
        """A module of a domain, such as `tools`. Raises ConfigError, which says what kept it from running."""
        package.module("environment.toolkit")  # first and by its own way: it must not log
        from loguru import logger

        logger.disable(self.root)
        path = self._folders[domain] / f"{name}.py"
        try:
            return self._module(f"{domain}.{name}")
        except ModuleNotFoundError as err:
            what = f"{path} imports {err.name!r}, which is neither in the folder nor installed"
            raise ConfigError(f"{what}; install what the toolkit needs into this environment") from err
        except Exception as err:
            frames = [] if isinstance(err, SyntaxError) else traceback.extract_tb(err.__traceback__)[-1:]
            told = f"{type(err).__name__}: {err}" + "".join(f" ({at.filename}, line {at.lineno})" for at in frames)
            raise ConfigError(f"{path} cannot be run: {told}; it has to import by itself") from err

    def _import(
        self, name: str, scope: Any = None, _locals: object = None, wanted: Any = (), level: int = 0
    ) -> ModuleType:
        """What an import statement in the folder's code is given."""
        asking = str((scope or {}).get("__package__") or "")
        full = util.resolve_name("." * level + name, asking) if level else name
        within = self._within(full, asking)
        if within is None:
            made = import_as_inside(name, scope, None, wanted, level)
            return self._frozen.modules.get(made.__name__, made)
        found = self._module(within)
        for part in wanted or ():
            if not hasattr(found, part) and self._file(f"{within}.{part}"):
                self._module(f"{within}.{part}")
        return found if wanted or "." not in full else self._tau2()

    def _within(self, full: str, asking: str) -> str | None:
        """A module's name within the folder, such as `bank.data_model`; None when it is not the folder's."""
        for prefix in (f"{_DOMAINS}.", f"{self.root}."):
            if full.startswith(prefix) and full.removeprefix(prefix).partition(".")[0] in self._folders:
                return full.removeprefix(prefix)
        beside = f"{asking}.{full}".removeprefix(f"{self.root}.")  # as a script in that folder would import
        return beside if asking.startswith(self.root) and "." not in full and self._file(beside) else None

    def _tau2(self) -> ModuleType:
        """What `import tau2.domains.NAME` binds: the package, with the folder's domains beside its own."""
        top, domains = ModuleType("tau2"), ModuleType(_DOMAINS)
        own = {name: made for name, made in self._modules.items() if "." not in name}
        vars(domains).update({**vars(package.module("domains")), **own})
        vars(top).update({**vars(importlib.import_module(package.CODE)), "domains": domains})
        return top

    def _file(self, inner: str) -> Path | None:
        """A module's file, or its folder."""
        domain, *parts = inner.split(".")
        if domain not in self._folders:
            return None
        base = self._folders[domain].joinpath(*parts)
        file = base.with_name(f"{base.name}.py")
        return base if base.is_dir() else file if file.is_file() else None

    def _module(self, inner: str) -> ModuleType:
        """A module of the folder, run once."""
        if inner in self._modules:
            return self._modules[inner]
        parent, _, own = inner.rpartition(".")
        above = self._module(parent) if parent else None
        path = self._file(inner)
        if path is None:
            raise ModuleNotFoundError(f"no module {inner!r} in the folder", name=f"{_DOMAINS}.{inner}")
        made = self._modules[inner] = sys.modules[f"{self.root}.{inner}"] = ModuleType(f"{self.root}.{inner}")
        made.__package__ = made.__name__ if path.is_dir() else made.__name__.rpartition(".")[0]
        file = path / "__init__.py" if path.is_dir() else path
        made.__file__ = str(file)
        vars(made)["__builtins__"] = self._builtins
        try:
            if file.is_file():
                exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(made))
        except BaseException:
            del self._modules[inner], sys.modules[made.__name__]
            raise
        if above is not None:
            setattr(above, own, made)
        return made
