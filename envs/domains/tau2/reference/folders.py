"""Where a domain's parts lie: all in one folder, or code and data apart as in a checkout of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, no_such

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

    def toolkit(self) -> Path:
        """The folder that holds tools.py."""
        if self.code is None:
            has = f"{self.name} has data in {self.data[0]}, but no {TOOLKIT}"
            raise ConfigError(f"{has}; put the reference's tau2/domains/{self.name} there, or point at its checkout")
        return self.code

    def file(self, name: str, what: str) -> Path:
        """A data file that has to be there."""
        found = self.find(name)
        if found is None:
            places = ", ".join(str(folder) for folder in self.data)
            raise ConfigError(f"{self.name} has no {name} ({what}); put one into {places.replace(', ', ' or ')}")
        with found.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                raise ConfigError(f"{found} is a pointer of Git LFS, not the file ({what}); type: git lfs pull")
        return found

    def find(self, name: str) -> Path | None:
        """A data file, if there is one."""
        return next((folder / name for folder in self.data if (folder / name).is_file()), None)

    def code_files(self) -> list[str]:
        """The Python that can be run for this domain."""
        folder = self.toolkit()
        return [str(path) for path in sorted(folder.rglob("*.py")) if path.name != "environment.py"]


def places(folder: str | Path) -> Mapping[str, Place]:
    """Every domain under a folder, by name. The folder may be a domain itself, hold domains, or be a checkout."""
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"reference={str(folder)!r}: no such folder; name one that holds domains, or one domain")
    if (root / TOOLKIT).is_file() or (root / DATABASE).is_file():
        code = root if (root / TOOLKIT).is_file() else None
        return {root.resolve().name: Place(root.resolve().name, code, (root,))}
    code_of: dict[str, Path] = {}
    data_of: dict[str, list[Path]] = {}
    for layout in (*_CODE, *_DATA):
        for inner in sorted(p for p in (root / layout).glob("*") if p.is_dir()):
            if (inner / TOOLKIT).is_file():
                code_of.setdefault(inner.name, inner)
            if any((inner / name).is_file() for name in (DATABASE, POLICY, *TASKS)):
                data_of.setdefault(inner.name, []).append(inner)
    names = sorted({*code_of, *data_of})
    if not names:
        layouts = " or ".join(str(root / part) for part in ("DOMAIN", "tau2/domains/DOMAIN"))
        raise ConfigError(f"reference={str(folder)!r}: no domain there; expected {TOOLKIT} in {layouts}")
    made = {}
    for name in names:
        code_here = code_of.get(name)
        data = data_of.get(name) or ([code_here] if code_here else [])
        made[name] = Place(name, code_here, tuple(data))
    return made


def place_of(found: Mapping[str, Place], name: str, folder: str | Path) -> Place:
    """The domain of a name."""
    if name not in found:
        raise ConfigError(f"reference={str(folder)!r}: {no_such('domain', name, found)}")
    return found[name]
