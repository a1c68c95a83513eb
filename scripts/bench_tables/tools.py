"""Table of retrieval: what each engine finds and costs. Called by bench.py."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import random
import resource
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.domains.frames.encyclopaedia import build as encyclopaedia
from toolorchestra.envs.domains.frames.source import ENCYCLOPAEDIA_SEED, FramesSource
from toolorchestra.envs.retrieval import Retriever, dense
from toolorchestra.envs.retrieval.corpus import Manifest
from toolorchestra.envs.retrieval.index import BM25_FOLDER, Build, build, load

DOCUMENTED = ("numpy", "sympy")
"""Packages whose docstrings are the real corpus."""
CUTS = (1, 5, 10)
Asked = tuple[str, str]
"""A query, and the id of the passage that it is after."""


def docstrings(most: int) -> list[Passage]:
    """The public docstrings of some installed packages: a real corpus that needs no download."""
    found: dict[str, Passage] = {}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # deprecated modules say so, and one prints a poem
        for package in filter(find_spec, DOCUMENTED):
            for name in _modules(package):
                for passage in _documented(name):
                    found.setdefault(passage.text, passage)
    every = sorted(found.values(), key=lambda p: p.doc_id)
    random.Random(0).shuffle(every)
    return every[:most]


def _modules(package: str) -> Iterator[str]:
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _: None):
        if not any(part.startswith("_") or part in ("tests", "conftest", "testing") for part in info.name.split(".")):
            yield info.name


def _documented(module: str) -> Iterator[Passage]:
    try:
        members = inspect.getmembers(importlib.import_module(module))
    except Exception:  # noqa: BLE001 - a module that cannot be imported here has no docstrings for us
        return
    for name, value in members:
        text = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else None
        if text and len(text) > 120 and getattr(value, "__module__", "") == module:
            yield Passage(f"{module}.{name}", name, text[:1500])


def known_items(passages: Sequence[Passage], count: int) -> list[Asked]:
    """Queries of a passage's own first words: lexical by construction, so they favour BM25."""
    chosen = random.Random(1).sample(list(passages), min(count, len(passages)))
    return [(" ".join(p.text.split()[:12]), p.doc_id) for p in chosen]


def hops(passages: Sequence[Passage], count: int) -> list[Asked]:
    """The queries of embedded questions: each is after the passage that holds its fact."""
    source, out = FramesSource(), []
    for number in range(1000):
        for fact in source.question(f"frames-sim/test/{number}").facts:
            holds = [p.doc_id for p in passages if fact.sentence in p.text]
            if holds:
                out.append((fact.query, holds[0]))
        if len(out) >= count:
            return out[:count]
    return out


def retrieval(most: int) -> None:
    """recall@k, latency, build time and memory of each engine on two corpora; and sixty-four askers at once."""
    invented = list(encyclopaedia(ENCYCLOPAEDIA_SEED).passages)[:most]
    real = docstrings(most)
    for title, passages, asked in (
        ("embedded encyclopaedia, queries of its questions", invented, hops(invented, 200)),
        (f"docstrings of {' and '.join(DOCUMENTED)}, first 12 words", real, known_items(real, 200)),
    ):
        print(f"== {title}: {len(passages)} passages, {len(asked)} queries")
        head = "".join(f"{f'recall@{k}':>11}" for k in CUTS)
        print(f"{'engine':14}{head}{'p50 ms':>9}{'p99 ms':>9}{'build s':>9}{'index MB':>10}{'peak MB':>9}  64 at once")
        with tempfile.TemporaryDirectory() as folder:
            for name, make in _engines(passages, Path(folder)):
                try:
                    print(f"{name:14}{_row(make, asked)}", flush=True)
                except ConfigError as err:
                    print(f"{name:14} not here: {err}")
        print()


Make = Callable[[], tuple[Path, float]]
"""Gives an index folder, and the seconds that it took to build."""


def _engines(passages: Sequence[Passage], folder: Path) -> Iterator[tuple[str, Make]]:
    """Each engine. The passages are encoded once: the other kinds of FAISS index are made of the flat one's vectors."""

    def built(engine: str) -> tuple[Path, float]:
        started = time.perf_counter()
        build(passages, folder / engine, Build(engine))
        return folder / engine, time.perf_counter() - started

    def of_vectors(kind: str) -> tuple[Path, float]:
        started = time.perf_counter()
        flat = dense.faiss().read_index(str(folder / "dense" / dense.INDEX))
        made = folder / kind
        shutil.copytree(folder / "dense", made)
        dense.faiss().write_index(dense.make_index(flat.reconstruct_n(0, flat.ntotal), kind), str(made / dense.INDEX))
        return made, time.perf_counter() - started

    def hybrid() -> tuple[Path, float]:
        made = folder / "hybrid"
        shutil.copytree(folder / "dense", made)
        shutil.copytree(folder / "bm25" / BM25_FOLDER, made / BM25_FOLDER)
        replace(Manifest.read(made), engine="hybrid").write(made)
        return made, 0.0

    yield "bm25", lambda: built("bm25")
    yield "dense/flat", lambda: built("dense")
    if (folder / "dense").is_dir():
        yield "dense/hnsw", lambda: of_vectors("hnsw")
        yield "dense/ivf", lambda: of_vectors("ivf")
        yield "hybrid", hybrid
    yield "lucene", lambda: built("lucene")


def _row(make: Make, asked: Sequence[Asked]) -> str:
    folder, built = make()
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6
    retriever = load(folder)
    ranks, times = asyncio.run(_ask(retriever, asked))
    same = asyncio.run(_at_once(retriever, asked))
    recalls = "".join(f"{sum(r < k for r in ranks) / len(ranks):11.3f}" for k in CUTS)
    times.sort()
    p50, p99 = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{recalls}{p50:9.1f}{p99:9.1f}{built:9.1f}{size:10.1f}{peak:9.0f}  {'alike' if same else 'DIFFER'}"


async def _ask(retriever: Retriever, asked: Sequence[Asked]) -> tuple[list[int], list[float]]:
    await retriever.search(asked[0][0], max(CUTS))
    ranks, times = [], []
    for query, wanted in asked:
        started = time.perf_counter()
        hits = [h.passage.doc_id for h in await retriever.search(query, max(CUTS))]
        times.append(time.perf_counter() - started)
        ranks.append(hits.index(wanted) if wanted in hits else 10**6)
    return ranks, times


async def _at_once(retriever: Retriever, asked: Sequence[Asked]) -> bool:
    queries = [query for query, _ in asked[:64]]
    alone = [[h.passage.doc_id for h in await retriever.search(q, 5)] for q in queries]
    together = await asyncio.gather(*(retriever.search(q, 5) for q in queries))
    return alone == [[h.passage.doc_id for h in hits] for hits in together]


def load_average() -> str:
    """For a table's first line: what else the machine did."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
