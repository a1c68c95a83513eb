"""Whatever a search server does, a request ends at its deadline, frees its place, and takes no more than its bytes."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.base.http_client import HttpClient, HttpPoster, Posted, library
from toolorchestra.envs.retrieval.remote import Remote

KEY = "tvly-canary-0123456789abcdef0123456789"


def together(poster: HttpPoster, count: int) -> list[Posted]:
    async def posts() -> list[Posted]:
        return list(await asyncio.gather(*(poster.post("search", {}) for _ in range(count))))

    return asyncio.run(posts())


def first(count: int, bad: ServerReply) -> Callable[[ReceivedRequest], ServerReply]:
    return lambda asked: bad if asked.number < count else ServerReply(body={"ok": True})


@pytest.mark.parametrize("fault", ["drip", "slow head"])
def test_what_is_late_as_a_whole_is_broken_off_and_its_place_is_free(fault: str) -> None:
    with Loopback(first(4, ServerReply(fault=fault))) as server:  # type: ignore[arg-type]
        poster = HttpPoster(server.base_url, "", 0.4, at_once=4)
        assert together(poster, 4) == [Posted(0, "no reply within 0.4 s")] * 4
        started = time.monotonic()
        assert together(poster, 8) == [Posted(200, '{"ok": true}')] * 8
        assert time.monotonic() - started < 5
        sent = server.sent_bytes
        time.sleep(0.1)
        assert server.sent_bytes <= sent + 4  # the connections are shut


def test_more_than_its_bytes_is_not_read() -> None:
    with Loopback(lambda _: ServerReply(fault="endless")) as server:
        poster = HttpPoster(server.base_url, "", 10.0, most_bytes=1 << 20)
        tracemalloc.start()
        try:
            (posted,) = together(poster, 1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert posted == Posted(0, "the reply is longer than 1048576 bytes")
    assert peak < 8 << 20


@pytest.mark.parametrize("before", [4070, 4096 - len(KEY) // 2])
def test_no_piece_of_the_key_comes_back(before: int) -> None:
    with Loopback(lambda _: ServerReply(body="y" * before + KEY, status=500)) as server:
        (posted,) = together(HttpPoster(server.base_url, KEY, 10.0), 1)
    assert len(posted.text) <= 4096
    assert not [at for at in range(len(KEY) - 11) if KEY[at : at + 12] in posted.text]


def test_a_login_in_an_address_is_sent_and_never_shown() -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        told = f"{asked.headers['authorization']} robot:secret-word-77"
        return ServerReply(told, 200 if asked.path.endswith("health") else 500)

    with Loopback(reply) as server:
        made = Remote(server.base_url.replace("//", "//robot:secret-word-77@"))
        with pytest.raises(Outage) as away:
            asyncio.run(made.search("river", 3))
    assert server.seen[0].headers["authorization"] == "Basic cm9ib3Q6c2VjcmV0LXdvcmQtNzc="
    with pytest.raises(ConfigError) as gone:
        Remote("http://robot:secret-word-77@127.0.0.1:9")
    for text in (str(away.value), str(gone.value), made.url):
        assert "127.0.0.1" in text
        assert "secret" not in text
        assert "cm9ib3Q6" not in text


class Kept:
    """A connection that nobody used for long, and that takes a moment to close."""

    def is_idle(self) -> bool:
        return True

    def has_expired(self) -> bool:
        return True

    async def aclose(self) -> None:
        await asyncio.sleep(0)


def test_connections_that_many_give_back_at_once_are_all_closed() -> None:
    url = library().URL("http://127.0.0.1:1/")

    async def give_back() -> None:
        client = HttpClient()
        await client.connection(url)
        await asyncio.gather(*[client.keep(url, Kept()) for _ in range(5)])

    asyncio.run(give_back())
