"""Embeddings of a server on a loopback socket: batches, retries, bills; and dense indexes made and searched by them."""

from __future__ import annotations

import asyncio
import base64
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.paths import SHARED
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.rows import read_rows
from toolorchestra.agents.policies.base import unreal
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, WrongSetting
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.retrieval import dense
from toolorchestra.envs.retrieval.corpus import Manifest
from toolorchestra.envs.retrieval.embeddings import BATCH, EmbeddingServer, ServedEmbedder
from toolorchestra.envs.retrieval.index_and_hybrid import Build, build, load
from toolorchestra.envs.retrieval.remote import IndexServer
from toolorchestra.envs.tools.backends import Backing, read

SIZE, MODEL, KEY = 512, "Qwen/Qwen3-Embedding-0.6B", "sk-canary-embeddings"
QUESTIONS = SHARED / "data" / "frames_questions.jsonl"
needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason='needs pip install ".[dense]"')
RIVERS = [Passage(f"r{n}", f"River {n}", f"water number{n} flows to sea{n}") for n in range(150)]


def vector_of(text: str) -> np.ndarray[Any, Any]:
    """A bag of words."""
    made = np.zeros(SIZE, "<f4")
    for word in text.lower().split():
        made[zlib.crc32(word.encode()) % SIZE] += 1.0
    return made


def vectors(
    asked: ReceivedRequest, packed: bool = True, most: int = BATCH, counted: bool = True, **told: Any
) -> ServerReply:
    """What a server says that takes so many texts at once."""
    texts: list[str] = asked.json["input"]
    if len(texts) > most:
        return ServerReply(f"batch size {len(texts)} > maximum allowed batch size {most}", 413)
    made = [vector_of(text) for text in texts]
    data = [{"index": n, "embedding": base64.b64encode(one.tobytes()).decode() if packed else one.tolist()}
            for n, one in enumerate(made)]  # fmt: skip
    usage = {"usage": {"prompt_tokens": sum(len(text.split()) for text in texts)}} if counted else {}
    return ServerReply(body={"object": "list", "data": data[::-1], **usage, **told})


def embedder(server: Loopback, **more: Any) -> ServedEmbedder:
    return ServedEmbedder(MODEL, [EmbeddingServer(server.base_url)], **more)


def encoded(reply: Callable[[ReceivedRequest], ServerReply], texts: Sequence[str], **more: Any) -> tuple[Any, Any, Any]:
    with Loopback(reply) as server:
        made = embedder(server, **more)
        return made.encode(texts), made.built_with.usages, server


@pytest.mark.parametrize("packed", [True, False])
def test_vectors_come_in_the_order_of_the_texts_each_of_length_one(packed: bool) -> None:
    texts = [f"word{n} and word{n + 1}" for n in range(150)]
    made, usages, server = encoded(lambda asked: vectors(asked, packed), texts)
    expected = np.stack([vector_of(text) for text in texts])
    assert np.allclose(made, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert sorted(len(asked.json["input"]) for asked in server.seen) == [22, 64, 64]
    assert {(asked.path, asked.json["model"]) for asked in server.seen} == {("/v1/embeddings", MODEL)}
    assert sum(used.tokens.input for used in usages) == 3 * 150
    assert not any(used.estimated for used in usages)


def test_a_server_that_takes_fewer_at_once_is_sent_fewer_from_then_on() -> None:
    with Loopback(lambda asked: vectors(asked, most=32)) as server:
        made = embedder(server)
        assert made.encode(["a b"] * 64).shape == (64, SIZE)
        before = len(server.seen)
        assert made.encode(["a b"] * 64).shape == (64, SIZE)
    assert [len(asked.json["input"]) for asked in server.seen[before:]] == [32, 32]


@pytest.mark.parametrize(
    "fault",
    [
        ServerReply("busy", 429, headers={"Retry-After": "0"}),
        ServerReply("overloaded", 503, headers={"Retry-After": "0"}),
        ServerReply(body={"data": []}, headers={"Retry-After": "0"}),
        ServerReply(fault="reset"),
    ],
)
def test_what_may_pass_is_asked_again(fault: ServerReply) -> None:
    made, _, server = encoded(lambda asked: fault if asked.number == 0 else vectors(asked), ["one"])
    assert (made.shape, len(server.seen)) == ((1, SIZE), 2)


def test_a_server_that_is_down_is_followed_by_the_next() -> None:
    with Loopback(lambda _: ServerReply("no", 500)) as down, Loopback(vectors) as up:
        made = ServedEmbedder(MODEL, [EmbeddingServer(down.base_url), EmbeddingServer(up.base_url)])
        assert made.encode(["one"]).shape == (1, SIZE)
    assert (len(down.seen), len(up.seen)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "error"), [(401, WrongSetting), (404, WrongSetting), (413, ToolError), (400, ToolError), (500, Outage)]
)
def test_what_will_not_pass_is_said_without_the_key(
    status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDINGS_KEY", KEY)
    with Loopback(lambda asked: ServerReply(f"no, {asked.headers['authorization']}", status)) as server:
        made = ServedEmbedder(MODEL, [EmbeddingServer(server.base_url, "EMBEDDINGS_KEY")], retries=0)
        with pytest.raises(error, match=str(status)) as caught:
            asyncio.run(made.vectors(["one"], Bill()))
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="export NO_SUCH_KEY="):
        ServedEmbedder(MODEL, [EmbeddingServer("http://127.0.0.1:1/v1", "NO_SUCH_KEY")])


@pytest.mark.parametrize("told", [10**12, -5, True, "many", [1], 0])
def test_a_count_of_tokens_that_cannot_be_is_estimated(told: object) -> None:
    bill = Bill()
    with Loopback(lambda asked: vectors(asked, usage={"prompt_tokens": told})) as server:
        asyncio.run(embedder(server).vectors(["a" * 400], bill))
    assert [(used.tokens.input, used.estimated, used.unconfirmed) for used in bill.usages] == ESTIMATED


ESTIMATED = [(100, True, False), (308, True, True)]
"""Of 400 characters: a token for four of them, and for each other byte one that it may be beside."""


def test_tokens_that_nobody_counts_are_estimated_and_a_reply_that_never_comes_is_unconfirmed() -> None:
    _, usages, _ = encoded(lambda asked: vectors(asked, counted=False), ["x" * 400])
    assert [(used.tokens.input, used.estimated, used.unconfirmed) for used in usages] == ESTIMATED
    bill = Bill()
    with Loopback(lambda _: ServerReply(fault="silence")) as server, pytest.raises(Outage):
        asyncio.run(embedder(server, deadline_seconds=0.2, retries=0).vectors(["one"], bill))
    assert [(used.item, used.unconfirmed) for used in bill.usages] == [(MODEL, True)]


class Named:
    """A model of a name, as its own files describe it."""

    def __init__(self, name: str, **prompts: str) -> None:
        self.name, self.prompts = name, prompts

    def encode(self, texts: Sequence[str]) -> Any:
        return np.ones((len(texts), 2), np.float32)


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        (Named("Qwen/Qwen3-Embedding-8B"), "Instruct: Given a web search query", ""),
        (Named("intfloat/e5-large-v2"), "query: ", "passage: "),
        (Named("intfloat/multilingual-e5-large-instruct"), "Instruct: Given a web search query", ""),
        (Named("BAAI/bge-base-en-v1.5"), "Represent this sentence", ""),
        (Named("BAAI/bge-m3"), "", ""),
        (Named("own", query="ask: ", document="text: "), "ask: ", "text: "),
    ],
)
def test_each_model_has_its_own_prompts(model: Named, query: str, passage: str) -> None:
    own = dense.own_prompts(model)
    assert own.query.startswith(query)
    assert (bool(own.query), own.passage) == (bool(query), passage)


def backends_file(folder: Path, server: Loopback) -> Path:
    file = folder / "b.toml"
    file.write_text(
        f'[endpoints.tei]\nbase_url = "{server.base_url}"\n[models."{MODEL}"]\nendpoints = ["tei"]\n'
        "price = {usd_per_mtok = {input = 0.02, output = 0}}\n"
    )
    return file


def test_an_episode_pays_for_the_query_s_tokens_and_its_replay_the_same(tmp_path: Path) -> None:
    folder, said, search = tmp_path / "i", [], render_call("local_search", {"query": "number7 sea7"})
    with Loopback(vectors) as server:
        file = backends_file(tmp_path, server)
        build(RIVERS, folder, Build("dense", served=embedder(server)), progress=said.append)
        settings = Manifest.read(folder).settings
        assert settings["query_prompt"].startswith("Instruct: ")
        assert said[-1].startswith(f"dense done; {MODEL} read ")
        for mode in ("record", "replay"):
            wanted = read(file, index=str(folder), cassette=str(tmp_path / "tape.jsonl"), mode=mode)
            env = gym.make(
                "ToolOrchestra/FRAMES-v0",
                tools="plain",
                backends=Backing(wanted),
                preference="none",
                shown_characters=0,
            )
            env.reset(seed=0)
            *_, info = env.step(search)
            assert unreal(env.unwrapped.factory)  # type: ignore[attr-defined] # its embedder alone is real
            charge = next(c for c in info["charges"] if c["item"] == MODEL)
            tokens = len(f"{settings['query_prompt']}number7 sea7".split())
            assert (charge["tokens"]["input"], charge["nano_usd"]) == (tokens, tokens * 20)
        assert server.seen[-1].json["input"] == [f"{settings['query_prompt']}number7 sea7"]
    with pytest.raises(ConfigError, match="a file of backends says where"):
        load(folder)


def stand_ins(asked: ReceivedRequest) -> ServerReply:
    """The embeddings, an orchestrator that searches once and says where it looked, and a judge that calls it right."""
    if "input" in asked.json:
        return vectors(asked)
    if "<verdict>" in asked.text:
        return ServerReply("<verdict>right</verdict>")
    question = asked.json["messages"][1]["content"][:200]
    searched = len(asked.json["messages"]) > 2
    found = ("submit", {"answer": "a river"}) if searched else ("local_search", {"query": question})
    return ServerReply(render_call(*found))


@pytest.mark.slow
@pytest.mark.skipif(not QUESTIONS.is_file(), reason="the public FRAMES questions are not on this machine")
@pytest.mark.parametrize("engine", ["dense", "hybrid"])
def test_the_824_real_frames_questions_are_played_over_served_embeddings(tmp_path: Path, engine: str) -> None:
    with Loopback(stand_ins) as server:
        file, run, index = backends_file(tmp_path, server), tmp_path / "run", tmp_path / "i"
        file.write_text(f'{file.read_text()}[models."*"]\nendpoints = ["tei"]\n')
        build(RIVERS, index, Build(engine, served=embedder(server)))
        words = ["--env", "FRAMES-v0", "tools=plain", "--split", "all", "--dataset", str(QUESTIONS), "--policy", "chat"]
        more = ["--backends", str(file), f"index={index}", "judge=gpt-5-mini", "--out", str(run)]
        assert evaluate.main([*words, *more, "--tasks", "824"]) == 0
    rows = list(read_rows(run))
    assert [len(rows), sum(row.right == 1 for row in rows)] == [824, 824]
    assert all(row.calls["local_search"] == 1 and MODEL in row.nano_usd_by_model for row in rows)


def test_an_index_server_tells_its_askers_what_their_searches_used(tmp_path: Path) -> None:
    with Loopback(vectors) as server:
        build(RIVERS, tmp_path / "i", Build("hybrid", served=embedder(server), query_prompt=""))
        index = load(tmp_path / "i", lambda _: embedder(server))
        with IndexServer(index) as serving:
            threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
            backing = Backing(read(backends_file(tmp_path, server), index=serving.url))
            env = gym.make("ToolOrchestra/FRAMES-v0", tools="plain", backends=backing, preference="none")
            env.reset(seed=0)
            *_, info = env.step(render_call("local_search", {"query": "number7 sea7"}))
            serving.shutdown()
    assert [(c["item"], c["tokens"]["input"]) for c in info["charges"] if c["item"] == MODEL] == [(MODEL, 2)]


@pytest.mark.parametrize("kind", ["flat", *(pytest.param(kind, marks=needs_faiss) for kind in ("hnsw", "ivf"))])
def test_an_index_of_several_files_finds_what_one_file_finds(tmp_path: Path, kind: str) -> None:
    with Loopback(vectors) as server:
        how, found = Build("dense", faiss=kind, shard=16, served=embedder(server), query_prompt=""), []
        for name, most, files in (("one", 1 << 20, 1), ("many", 40 * 4 * SIZE, 4)):
            build(RIVERS, tmp_path / name, replace(how, file_bytes=most))
            assert len(list((tmp_path / name).glob("index.faiss*"))) == (files if kind != "flat" else 0)
            hits = asyncio.run(load(tmp_path / name, lambda _: embedder(server)).search("number120 sea120", 150))
            found.append([hit.passage.doc_id for hit in hits])
    assert {ids[0] for ids in found} == {"r120"}
    if kind == "flat":
        with Loopback(vectors) as server:
            asked, model = ["number3 sea3", "water flows to", "river 77"], embedder(server)
            made = model.encode([*asked, *(f"{p.title}\n{p.text}" for p in RIVERS)])
        scores = made[:3] @ made[3:].T
        index = dense.Flat(tmp_path / "one" / dense.VECTORS, SIZE)
        assert np.allclose(index.search(made[:3], 7)[0], -np.sort(-scores, axis=1)[:, :7], atol=1e-5)
        assert sorted(found[0]) == sorted(found[1]) == sorted(p.doc_id for p in RIVERS)


def near(asked: ReceivedRequest) -> ServerReply:
    """Vectors of nearly the same likeness to the query, a later passage's a little more."""
    numbers = [re.search(r"sea(\d+)$", text) for text in asked.json["input"]]
    likeness = [0.5 + 2e-7 * int(found[1]) if found else 1.0 for found in numbers]
    data = [{"index": n, "embedding": [one, (1 - one**2) ** 0.5]} for n, one in enumerate(likeness)]
    return ServerReply(body={"object": "list", "data": data})


def test_what_is_found_depends_on_nobody_who_asks_at_the_same_moment(tmp_path: Path) -> None:
    with Loopback(near) as server:
        build(RIVERS, tmp_path / "i", Build("dense", served=embedder(server), query_prompt=""))
        index, (query,) = load(tmp_path / "i", lambda _: embedder(server)), embedder(server).encode(["q"])
    assert isinstance(index, dense.Dense)
    alone = index._find([(query, 5)])[0]
    assert {hit.passage for hit in alone} == {*RIVERS[-5:]}
    assert index._find([(query, 5), (query, 20)])[0] == alone


def test_a_build_that_was_stopped_sends_only_what_is_missing(tmp_path: Path) -> None:
    def stop(said: str) -> None:
        if said.startswith("encoded 64 of 150"):
            assert said.endswith(" left")
            raise KeyboardInterrupt

    with Loopback(vectors) as server:
        how = Build("dense", shard=32, served=embedder(server), query_prompt="")
        with pytest.raises(KeyboardInterrupt):
            build(RIVERS, tmp_path / "i", how, progress=stop)
        before = len(server.seen)
        with (tmp_path / "i" / "vectors.f32").open("ab") as file:
            file.write(b"half a vector")
        build(RIVERS, tmp_path / "i", how)
        sent = [text for asked in server.seen[before:] for text in asked.json["input"]]
        assert sent == [dense.PROBE, *(f"{p.title}\n{p.text}" for p in RIVERS[64:])]
        found = asyncio.run(load(tmp_path / "i", lambda _: embedder(server)).search("number100 sea100", 1))
        assert found[0].passage == RIVERS[100]
        before = len(server.seen)
        build(
            RIVERS, tmp_path / "i", Build("dense", shard=32, served=embedder(server), passage_prompt="p: "), again=True
        )
        assert server.seen[before + 1].json["input"][0] == "p: River 0\nwater number0 flows to sea0"


@needs_faiss
def test_a_gpu_that_faiss_does_not_have_is_said(tmp_path: Path) -> None:
    with Loopback(vectors) as server:
        build(RIVERS, tmp_path / "i", Build("dense", served=embedder(server)))
        with pytest.raises(ConfigError, match="this faiss has no GPU"):
            load(tmp_path / "i", lambda _: embedder(server), gpu=True)
