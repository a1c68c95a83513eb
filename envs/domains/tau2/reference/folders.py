"""Where a domain's parts lie: all in one folder, or code and data apart as in a checkout of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.folder_files import inside

TOOLKIT, DATABASE, POLICY = "tools.py", "db.json", "policy.md"
TASKS = ("tasks.json", "tasks.jsonl")
_CODE = (
    "", "domains", "tau2/domains", "src/tau2/domains", "evaluation/tau2-bench/tau2/domains",
    "training/rollout/tau2/domains",
)  # fmt: skip
_DATA = (
    "data_dir/tau2/domains", "data/tau2/domains", "data/domains", "evaluation/data_dir/tau2/domains",
    "evaluation/tau2-bench/data/tau2/domains", "evaluation/tau2-bench/data_dir/tau2/domains",
)  # fmt: skip
_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Place:
    """One domain's parts. What is not there is said when it is asked for."""

    name: str
    code: Path | None
    data: tuple[Path, ...]
    """Where its data may lie, the likeliest first."""
    root: Path
    """The folder that was named: no data are read that lie outside it."""

    def toolkit(self) -> Path:
        """The folder that holds tools.py."""
        if self.code is None:
            has = f"{self.name} has data in {self.data[0]}, but no {TOOLKIT}"
            raise ConfigError(f"{has}; put the reference's tau2/domains/{self.name} there, or point at its checkout")
        return self.code

    def code_files(self) -> list[str]:
        """The Python that can be run for this domain."""
        return [str(path) for path in sorted(self.toolkit().rglob("*.py")) if path.name != "environment.py"]

    def find(self, name: str) -> Path | None:
        """A data file, if there is one."""
        found = next((folder / name for folder in self.data if (folder / name).is_file()), None)
        return inside(self.root, found) if found else None

    def tasks(self) -> Path | None:
        """The domain's own tasks, if it has some."""
        return next((path for name in TASKS if (path := self.find(name))), None)

    def file(self, name: str, what: str) -> Path:
        """A data file that has to be there."""
        found = self.find(name)
        if found is None:
            raise ConfigError(f"{self.name} has no {name} ({what}); put one into {' or '.join(map(str, self.data))}")
        with found.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                raise ConfigError(f"{found} is a pointer of Git LFS, not the file ({what}); type: git lfs pull")
        return found


def places(folder: str | Path) -> Mapping[str, Place]:
    """Every domain under a folder, by name. The folder may be a domain itself, hold domains, or be a checkout."""
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"reference={str(folder)!r}: no such folder; name one that holds domains, or one domain")
    if (root / TOOLKIT).is_file() or (root / DATABASE).is_file():
        name = root.resolve().name
        return {name: Place(name, root if (root / TOOLKIT).is_file() else None, (root,), root)}
    code: dict[str, Path] = {}
    data: dict[str, list[Path]] = {}
    for inner in (path for layout in (*_CODE, *_DATA) for path in sorted((root / layout).glob("*/"))):
        if (inner / TOOLKIT).is_file():
            code.setdefault(inner.name, inner)
        if any((inner / name).is_file() for name in (DATABASE, POLICY, *TASKS)):
            data.setdefault(inner.name, []).append(inner)
    if not code and not data:
        layouts = " or ".join(str(root / part) for part in ("DOMAIN", "tau2/domains/DOMAIN"))
        raise ConfigError(f"reference={str(folder)!r}: no domain there; expected {TOOLKIT} in {layouts}")
    names = sorted({*code, *data})
    return {name: Place(name, code.get(name), tuple(data.get(name) or [code[name]]), root) for name in names}
