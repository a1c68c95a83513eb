"""The documentation's library domain, made once for all tests, and ways to change its files."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages.domain_folder import make

LIBRARY = REPOSITORY / "docs" / "examples" / "library"
_SCRATCH = tempfile.TemporaryDirectory()


@cache
def library() -> Path:
    """The folder of the documentation's domain, with 30 tasks."""
    out = Path(_SCRATCH.name) / "library"
    make(specs.load(LIBRARY), 30, 1, out)
    return out


def changed(tmp_path: Path, name: str, change: Callable[[str], str]) -> Path:
    """A copy of the library with one file changed."""
    folder = tmp_path / "library"
    shutil.copytree(library(), folder)
    path = folder / name
    packed = name.endswith(".gz")
    text = gzip.decompress(path.read_bytes()).decode() if packed else path.read_text(encoding="utf-8")
    data = change(text).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return folder


def with_tool(tmp_path: Path, **row: Any) -> SqlDomain:
    """The library with one more tool."""

    def add(text: str) -> str:
        return text.rstrip().removesuffix("]") + "," + json.dumps({"description": "", "parameters": {}, **row}) + "\n]"

    return loader.read(changed(tmp_path, "tools.json", add))
