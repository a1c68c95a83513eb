"""A server cannot fill the memory, and cannot make a key or password of ours appear in any text."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.envs.models.test_openai import asks, run
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.tools.backends import read
from toolorchestra.envs.tools.cassette_backends import RecordedModels

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
from toolorchestra.envs.models.openai import OpenAiModels

MIB = 1 << 20
KEY = "sk-canary-0123456789abcdef0123456789abcdef"


def models(server: Loopback, base_url: str = "", **served: Any) -> OpenAiModels:
    end = {"base_url": base_url or server.base_url, "key_env": "TEST_KEY"}
    row = {"deadline_seconds": 10.0, "patience_seconds": 20.0, "retries": 0, **served}
    return OpenAiModels(Endpoints.read({"endpoints": {"end": end}, "models": {"*": row}}, "test"), seed=0)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


def bomb(size: int, packing: str = "gzip") -> ServerReply:
    return ServerReply(body=gzip.compress(b"x" * size, 9), headers={"content-encoding": packing})


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (bomb(64 * MIB), "the reply is longer than 2097152 bytes"),
        (ServerReply(fault="endless"), "the reply is longer than 2097152 bytes"),
        (ServerReply("x" * (3 * MIB)), "the reply is longer than 2097152 bytes"),
        (ServerReply("x" * (3 * MIB), 400), "the reply is longer than 2097152 bytes"),
        (bomb(10, "br"), "packed as 'br', which was not asked for"),
        (bomb(10, "gzip, gzip"), "packed as 'gzip, gzip', which was not asked for"),
    ],
    ids=["gzip bomb", "endless", "declared", "refusal", "brotli", "twice"],
)
def test_a_reply_beyond_its_bound_is_an_outage_and_costs_no_memory(reply: ServerReply, says: str) -> None:
    with Loopback(lambda _: reply) as server:
        made = models(server)
        tracemalloc.start()
        try:
            with pytest.raises(Outage, match=says):
                run(made, asks())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert server.sent_bytes < 32 * MIB  # what the kernel's buffers hold, and not all there is
    assert peak < 16 * MIB


def test_a_refusal_beyond_its_bound_leaves_no_connection_open() -> None:
    """The SDK reads the body of a refusal itself, and does not close what it asked for as a stream."""
    with Loopback(lambda _: replace(bomb(64 * MIB), status=400)) as server:
        made = models(server, stream=True)

        async def refused() -> int:
            with pytest.raises(Outage, match="the reply is longer than"):
                await made.complete(asks())
            await asyncio.sleep(0.2)
            left = len(server._writers)
            await made.aclose()
            return left

        assert asyncio.run(refused()) == 0


def test_a_packed_reply_within_its_bound_is_read() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "4" * 1000}}]}).encode()
    reply = ServerReply(body=gzip.compress(whole), headers={"content-encoding": "gzip"})
    with Loopback(lambda _: reply) as server:
        assert run(models(server), asks())[0].text == "4" * 1000
        assert server.seen[0].headers["accept-encoding"] == "gzip, deflate"


def test_the_bound_is_a_setting_of_the_model() -> None:
    with Loopback(lambda _: ServerReply("x" * (3 * MIB) + "end")) as server:
        assert run(models(server, reply_bytes=4 * MIB), asks())[0].text.endswith("end")
        with pytest.raises(Outage, match="longer than 1000 bytes; if it may be, raise reply_bytes"):
            run(models(server, reply_bytes=1000), asks())


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


@pytest.mark.parametrize(
    "reply",
    [
        ServerReply(body="y" * 60 + KEY),
        ServerReply(body={"error": "y" * 25 + KEY}),
        ServerReply("y" * 280 + KEY, 400),
        ServerReply(KEY + "y" * 199_980),
        ServerReply(body=f'{{"choices": [{{"message": {{"content": "{escaped(KEY)}"}}}}]}}'),
        ServerReply(base64.b64encode(KEY.encode()).decode()),
        ServerReply(calls=({"name": "search", "arguments": f'{{"query": "{escaped(KEY)}"}}'},)),
        ServerReply(f"{KEY} {KEY}", fault="reset"),
        ServerReply(body=f'data: {{"error": "{"y" * 250}{KEY}"}}\n\n'),
        ServerReply(body=f"event: error\ndata: {'y' * 240}{KEY}\n\n"),
        ServerReply(body=f'data: {{"choices": [{{"delta": {{"tool_calls": ["{"y" * 60}{KEY}"]}}}}]}}\n\n'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_no_piece_of_a_key_reaches_an_error_an_answer_or_a_cassette(
    reply: ServerReply, stream: bool, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    with Loopback(lambda _: reply) as server:
        live = models(server, stream=stream)
        recorded = RecordedModels(live, Cassette(tape, "record"))

        async def ask() -> str:
            try:
                return (await recorded.complete(asks(purpose="move"))).text
            finally:
                await live.aclose()

        try:
            said = asyncio.run(ask())
        except (Outage, ToolError, ConfigError) as err:
            said = f"{err} {err!r}"
    for text in (said, tape.read_text() if tape.exists() else ""):  # a wrong setting is no reply, and on no tape
        found = [KEY[at : at + 12] for at in range(len(KEY) - 11) if KEY[at : at + 12] in text]
        assert not found
        assert base64.b64encode(KEY.encode()).decode()[:16] not in text


def test_a_login_in_an_address_is_sent_and_never_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    login, password = "robot:pa%2Fss-word-77", "pa/ss-word-77"

    def echo(asked: ReceivedRequest) -> ServerReply:
        told = f"{asked.headers['authorization']} http://{login}@host {password}"
        return ServerReply(told, (404, 500, 200)[asked.number])

    with Loopback(echo) as server:
        made = models(server, server.base_url.replace("http://", f"http://{login}@"))
        with pytest.raises(ConfigError) as wrong:
            run(made, asks())
        with pytest.raises(Outage) as away:
            run(made, asks())
        (done,) = run(made, asks())
    basic = base64.b64encode(f"robot:{password}".encode()).decode()
    assert server.seen[0].headers["authorization"] == f"Basic {basic}"
    logged = "\n".join(r.getMessage() for r in caplog.records)
    assert "127.0.0.1" in str(wrong.value)
    for text in (str(wrong.value), str(away.value), done.text, repr(made.endpoints), logged):
        assert not [one for one in (login, "pa%2Fss-word-77", password, basic) if one in text]


def test_a_backends_file_does_not_show_its_logins(tmp_path: Path) -> None:
    login = "http://robot:secret-word@host"
    path = tmp_path / "backends.toml"
    path.write_text(f'[endpoints.a]\nbase_url = "{login}"\n[retrieval]\nindex = "{login}"\nweb_url = "{login}"\n')
    assert "secret-word" not in repr(read(path))
    path.write_text(f'[endpoints]\nbase_url = "{login}"\n')
    with pytest.raises(ConfigError, match=r"endpoints\.base_url: keys with values expected, got a text") as caught:
        read(path)
    assert "secret-word" not in str(caught.value)
