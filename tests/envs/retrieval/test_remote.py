"""An index over HTTP gives what the index gives, to many at once, and to nobody without the token."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from tests.support.loopback import Loopback, ServerReply
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import TOOL, Tokens, Usage
from toolorchestra.envs.retrieval import Hit, Retriever, remote
from toolorchestra.envs.retrieval.bm25 import Bm25
from toolorchestra.envs.retrieval.remote import RETRIES, TOKEN_ENV, IndexServer, Remote


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.01)


PASSAGES = tuple(Passage(str(i), f"Title {i}", f"river number{i} größe \u2603") for i in range(100))
INDEX = Bm25(PASSAGES)


@contextmanager
def served(retriever: Retriever = INDEX) -> Iterator[IndexServer]:
    with IndexServer(retriever) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def test_sixty_four_at_once_get_what_the_index_gives() -> None:
    queries = [f"river number{i}" for i in range(64)]
    with served() as server:
        made = Remote(server.url)

        async def together() -> list[Sequence[Hit]]:
            return list(await asyncio.gather(*(made.search(query, 3) for query in queries)))

        found = asyncio.run(together())
    assert found == [Bm25(PASSAGES).find(query, 3) for query in queries]
    assert made.source == Bm25(PASSAGES).source != Bm25(PASSAGES[1:]).source


def test_beyond_the_loopback_it_wants_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"export {TOKEN_ENV}="):
        IndexServer(Bm25(PASSAGES), "0.0.0.0")
    monkeypatch.setenv(TOKEN_ENV, "secret")
    with served() as server:
        friend = Remote(server.url)
        monkeypatch.setenv(TOKEN_ENV, "guess")
        stranger = Remote(server.url)
        assert len(asyncio.run(friend.search("river", 3))) == 3
        with pytest.raises(ConfigError, match="wants its token"):
            asyncio.run(stranger.search("river", 3))


def test_an_index_that_cannot_be_searched_says_why_to_whoever_asks() -> None:
    class Broken:
        suspends = False

        async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
            raise ConfigError(f"no vectors for {query}")

    with served(Broken()) as server, pytest.raises(Outage, match=r"ConfigError: no vectors for river"):
        asyncio.run(Remote(server.url).search("river", 3))


def test_what_a_search_used_is_billed_also_where_it_fails_or_its_reply_is_never_read() -> None:
    class Paying:
        suspends = False
        items = ("embedder",)

        async def search(self, query: str, top_k: int, bill: Bill) -> Sequence[Hit]:
            bill.add(Usage("embedder", TOOL, Tokens(7)))
            raise ConfigError("no vectors")

    bill = Bill()
    with served(Paying()) as server, pytest.raises(Outage):
        asyncio.run(Remote(server.url).search("river", 3, bill))
    assert [used.tokens.input for used in bill.take()] == [7] * (RETRIES + 1)
    health = ServerReply(body={"bills": ["embedder"]})
    cut = ServerReply(body={"hits": []}, fault="cut")
    with Loopback(lambda asked: health if asked.path.endswith("health") else cut) as other, pytest.raises(Outage):
        asyncio.run(Remote(other.base_url).search("river", 3, bill))
    assert [(used.tokens.input, used.unconfirmed) for used in bill.usages] == [(1029, True)] * (RETRIES + 1)


@pytest.mark.parametrize("body", ['{"query": "x", "top_k": Infinity}', "[" * 50_000, '{"query": "x"}'])
def test_a_request_that_cannot_be_read_is_answered(body: str) -> None:
    with served() as server:
        request = urllib.request.Request(f"{server.url}/search", body.encode())
        with pytest.raises(urllib.error.HTTPError, match="400") as caught:
            urllib.request.urlopen(request, timeout=10)
        with caught.value as refused:
            assert "expected" in json.loads(refused.read())["error"]


@pytest.mark.parametrize(
    "fault",
    [
        ServerReply(fault="not http"),
        ServerReply(body="ff\r\n" + "x" * 200, headers={"Transfer-Encoding": "chunked"}, fault="reset"),
        ServerReply(body={"hits": [1]}),
    ],
)
def test_what_passes_is_asked_again(fault: ServerReply) -> None:
    good = ServerReply(body={"hits": [[asdict(PASSAGES[0]), 0.5]]})
    with Loopback(lambda asked: fault if asked.number == 1 else good) as server:
        assert asyncio.run(Remote(server.base_url).search("river", 3)) == [Hit(PASSAGES[0], 0.5)]
    assert len(server.seen) == 3


@pytest.mark.parametrize(("status", "searches"), [(400, 1), (429, RETRIES + 1)])
def test_a_search_that_is_refused_is_asked_again_only_where_that_may_pass(status: int, searches: int) -> None:
    refusal = ServerReply("no", status)
    with Loopback(lambda asked: ServerReply() if asked.path.endswith("health") else refusal) as server:
        with pytest.raises(Outage, match=f"{status}: "):
            asyncio.run(Remote(server.base_url).search("river", 3))
        assert len(server.seen) == 1 + searches


def test_a_server_that_is_not_there_or_goes_away() -> None:
    with served() as server:
        made = Remote(server.url)
    with pytest.raises(ConfigError, match=r"toolorchestra index serve"):
        Remote(made.url)
    with pytest.raises(Outage, match="did not answer"):
        asyncio.run(made.search("river", 3))


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /search HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n",
        b"POST /search HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
        b"\x00\xff\r\n\r\n",
    ],
)
def test_a_broken_client_prints_nothing(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with served() as server:
        for _ in range(3):
            with socket.create_connection(server.server_address[:2], timeout=5) as client:  # type: ignore[arg-type]
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends by a reset
                client.sendall(sent)
        assert Remote(server.url).url == server.url
        time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_the_server_takes_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    class Faulty:
        suspends = False

        async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
            raise ArithmeticError("no\n\x1b[2Jsense")

    with served(Faulty()) as server, pytest.raises(OSError, match="closed"):
        urllib.request.urlopen(f"{server.url}/search", b'{"query": "x", "top_k": 1}', timeout=5).close()
    assert capfd.readouterr().err == "a request failed: 127.0.0.1: ArithmeticError: no\\n\\x1b[2Jsense\n"
