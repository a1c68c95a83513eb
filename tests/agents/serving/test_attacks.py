"""What somebody may do to the server to spend what is not his, or to have it lose count."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import toolorchestra as to
from tests.support.served import ADD, ANSWER_ALONE, PARIS, ServedPolicies, running, running_over
from toolorchestra.agents.commands.serve import ServeOptions, app_of, service_of
from toolorchestra.agents.serving import booking
from toolorchestra.agents.serving.accounts import Accounts, ApiKey, new_key, read_keys
from toolorchestra.envs.base.errors import ConfigError, Outage

QUESTIONS = list(to.make("HLE-v0").unwrapped.factory.source.askable)  # type: ignore[attr-defined]
ALWAYS, CAPITAL = "always:answer-1", "Capital of France?"


def until(done: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    return done()


def test_who_leaves_before_the_stream_begins_leaves_nothing_set_aside(tmp_path: Path) -> None:
    body = {"model": ALWAYS, "messages": [{"role": "user", "content": CAPITAL}], "stream": True, **ANSWER_ALONE}
    said = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(said)}\r\n\r\n".encode()
    with running_over(lambda _: PARIS, tmp_path, ALWAYS) as (server, _):
        port = int(server.url.rpartition(":")[2])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as gone:
                gone.sendall(head + said)
                gone.shutdown(socket.SHUT_RDWR)
        held = lambda: sum(one.held for one in server.service.accounts.accounts())  # noqa: E731
        assert until(lambda: not server.service._open and not held())


def test_a_stream_that_is_never_begun_is_ended(tmp_path: Path) -> None:
    """The client reads nothing of what came before, and is gone before the answer's head is out."""
    body = {"model": "cascade", "messages": [{"role": "user", "content": QUESTIONS[2]}], "stream": True}
    said: list[Any] = [{"type": "http.request", "body": json.dumps(body).encode()}, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}

    async def ask(app: Any) -> None:
        async def receive() -> Any:
            return said.pop(0)

        async def send(_sent: Any) -> None:
            await asyncio.sleep(60)  # it reads nothing, and is gone

        await app({**scope, "asgi": {"version": "3.0", "spec_version": "2.3"}}, receive, send)

    given = ServeOptions(policy=("cascade",), sim=True, out=str(tmp_path))
    service = service_of(given, tmp_path)
    asyncio.run(ask(app_of(service)))
    assert not service._open
    assert [one.held for one in service.accounts.accounts()] == [0]


def test_who_leaves_by_mcp_is_billed_and_leaves_nothing_set_aside(tmp_path: Path) -> None:
    call = {"name": "ask", "arguments": {"question": CAPITAL, "budget_usd": 0.2}}
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    both = {"accept": "application/json, text/event-stream"}
    with running_over(lambda _: replace(PARIS, seconds=5.0), tmp_path, "chat") as (server, expert):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/mcp", json=said, headers=both, timeout=0.3)
        assert expert.seen
        assert until(lambda: bool(server.service.latest), 3.0)
        (ended,) = server.service.latest
        assert (ended.ended, server.service.in_flight()) == ("cancelled", [])
        assert until(lambda: server.service.accounts.accounts()[0][1:] == (round(ended.usd * 1e9), 0))
        assert ended.usd > 0


@pytest.mark.parametrize("limit", ["budget_usd", "deadline_seconds"])
def test_a_limit_of_0_is_no_limit_of_the_servers(tmp_path: Path, limit: str) -> None:
    with running_over(lambda _: PARIS, tmp_path, ALWAYS) as (server, expert):
        told = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE, **{limit: 0})
        assert told.status_code == 400
        assert f"{limit} must be a number above 0, got 0" in told.json()["error"]["message"]
        told = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE, budget_usd=1e-10)
        assert (told.status_code, "a nano-dollar, or more, got 1e-10" in told.text) == (400, True)
        assert not expert.seen


def test_one_answer_is_rated_once_however_often_it_is_rated(tmp_path: Path) -> None:
    with running_over(lambda _: PARIS, tmp_path, ALWAYS, canary="cascade", canary_share=0.5) as (server, _):
        answer = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE).json()
        for right in (True, False, False, True, False):
            sent = {"id": answer["id"], "right": right}
            assert httpx.post(f"{server.url}/v1/feedback", json=sent).status_code == 200
        assert server.service.canary is not None
        arms = server.service.canary.arms.values()
        assert (sum(arm.rated for arm in arms), sum(arm.right for arm in arms)) == (1, 0)


def test_a_page_whose_name_leads_here_is_refused_where_there_are_no_keys(tmp_path: Path) -> None:
    with running(tmp_path, "cascade") as server:
        port = server.url.rpartition(":")[2]
        named = {f"evil.example:{port}": 403, "[": 403, f"localhost:{port}": 200, f"127.0.0.1:{port}": 200}
        for host, status in named.items():
            for path in ("/v1/models", "/v1/activity", "/metrics"):
                assert httpx.get(f"{server.url}{path}", headers={"host": host}).status_code == status


def test_each_part_of_a_conversation_is_billed_for_itself_alone(tmp_path: Path) -> None:
    with running(tmp_path, "random") as server:
        told = server.left_waiting(QUESTIONS[3])
        said: list[Any] = [{"role": "user", "content": QUESTIONS[3]}]
        parts = [told]
        while calls := told["choices"][0]["message"].get("tool_calls"):
            message = told["choices"][0]["message"]
            said += [message, *({"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in calls)]
            told = server.ask("random", said, tools=[ADD]).json()
            parts.append(told)
        whole = server.service.latest[-1]
        for part in parts:
            assert sum(part["usage"]["cost_by_role"].values()) == pytest.approx(part["usage"]["cost"])
        assert sum(part["usage"]["cost"] for part in parts) == pytest.approx(whole.usd)
        tokens = [sum(charge["tokens"].values()) for charge in whole.trajectory["charges"]]
        assert sum(part["usage"]["total_tokens"] for part in parts) == sum(tokens)
        assert sum(sum(part["usage"]["calls"].values()) for part in parts) == sum(whole.calls.values())


def test_a_decision_waits_its_turn_and_stands_in_the_trajectories(tmp_path: Path) -> None:
    with running(tmp_path, "cascade", at_once=1, queue=1) as server:
        body = {"model": "cascade", "messages": [{"role": "user", "content": QUESTIONS[2]}]}
        told = httpx.post(f"{server.url}/v1/decision", json=body).json()
        lines = [json.loads(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
        assert [row["totals"]["nano_usd"] / 1e9 for row in lines] == [told["cost"]]
        assert (
            'toolorchestra_requests_total{ended="decided",policy="cascade"} 1.0'
            in httpx.get(f"{server.url}/metrics").text
        )
        server.service.draining = True
        assert httpx.post(f"{server.url}/v1/decision", json=body).status_code == 503


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}},
        {"type": "object", "properties": {"a": {"type": 7}}},
        [],
        "x",
    ],
)
def test_a_strangers_schema_is_taken_or_refused_with_a_sentence(tmp_path: Path, parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "mine", "parameters": parameters}}
    with running(tmp_path, "random") as server:
        told = server.ask("random", CAPITAL, tools=[tool], budget_usd=0.01)
        assert told.status_code in (200, 400), told.text
        for name in ("search", "answer", "python"):
            same = {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
            assert server.ask("random", CAPITAL, tools=[same]).status_code == 400
        assert not sum(one.held for one in server.service.accounts.accounts())


def test_a_body_of_brackets_is_a_400(tmp_path: Path) -> None:
    with running(tmp_path, "cascade") as server:
        for deep in (b"[" * 100_000, b'{"messages":' * 50_000):
            assert httpx.post(f"{server.url}/v1/chat/completions", content=deep).status_code == 400


# -- accounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("spent", [[0.1, 0.7, 0.8], [0.3, 0.4], [1.1, 1.2]])
def test_a_second_server_of_the_same_name_neither_loses_money_nor_counts_it_twice(
    tmp_path: Path, spent: list[float], released: bool
) -> None:
    """The first goes on, and is only taken for killed. The last of its sums pass what was set aside."""
    nano = [round(usd * 1e9) for usd in spent]
    keys = {"a": ApiKey("0" * 64, usd=10.0)}
    first = Accounts(keys, str(tmp_path / "db"), "same")
    first.begin("r", "a", 1.0)
    first.book("r", nano[0])
    second = Accounts(keys, str(tmp_path / "db"), "same")
    account = lambda: next(one for one in second.accounts() if one.name == "a")  # noqa: E731
    assert account()[1:] == (nano[0], max(10**9 - nano[0], 0))
    if released:
        assert [second.release_lost(), second.release_lost()] == [1, 0]
        assert account().held == 0
    for so_far in nano[1:-1]:
        first.book("r", so_far)
    first.end("r", nano[-1])
    assert account()[1:] == (nano[-1], 0)


@pytest.mark.parametrize("name", ["alice", "alice@example.com", "bob.smith", 'a "b"', "Zoë 🙂"])
def test_a_printed_key_can_be_read_whatever_its_name(tmp_path: Path, name: str) -> None:
    key, lines = new_key(name)
    (tmp_path / "keys.toml").write_text(lines, encoding="utf-8")
    assert Accounts(read_keys(tmp_path / "keys.toml")).who(f"Bearer {key}") == name


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('[keys.a]\nsha256 = "' + "é" * 64 + '"', "64 hexadecimal digits"),
        ('[keys.a]\nsha256 = "' + "g" * 64 + '"', "64 hexadecimal digits"),
        ('[keys."-"]\nsha256 = "' + "0" * 64 + '"', "'-' is the name of who has no key"),
        (
            '[keys.a]\nsha256 = "' + "a" * 64 + '"\n[keys.b]\nsha256 = "' + "A" * 64 + '"',
            "a and b have the same sha256",
        ),
    ],
)
def test_a_file_of_keys_that_would_let_in_whom_it_should_not_is_refused(tmp_path: Path, lines: str, says: str) -> None:
    (tmp_path / "keys.toml").write_text(lines)
    with pytest.raises(ConfigError, match=says):
        read_keys(tmp_path / "keys.toml")


class Breaking(Accounts):
    """A database that goes away, as Postgres does when it is started again."""

    away = False

    def book(self, request: str, nano_usd: int) -> None:
        self._here()
        super().book(request, nano_usd)

    def end(self, request: str, nano_usd: int) -> None:
        self._here()
        super().end(request, nano_usd)

    def _here(self) -> None:
        if self.away:
            raise Outage("the database of accounts broke off")


@pytest.mark.parametrize("asked_again", [False, True])
def test_what_was_paid_while_the_database_was_away_is_answered_and_booked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_again: bool
) -> None:
    monkeypatch.setattr(booking, "_AGAIN_SECONDS", 60.0 if asked_again else 0.05)
    key, _ = new_key("alice")
    with running_over(lambda _: PARIS, tmp_path, ALWAYS) as (server, _):
        accounts = server.service.accounts
        accounts.__class__ = Breaking
        accounts.away = True  # type: ignore[attr-defined]
        answer = server.ask(ALWAYS, CAPITAL, key, **ANSWER_ALONE)
        assert answer.json()["choices"][0]["message"]["content"] == "Paris"
        assert sum(one.held for one in accounts.accounts()) > 0
        accounts.away = False  # type: ignore[attr-defined]
        answers = [answer, *([server.ask(ALWAYS, CAPITAL, key, **ANSWER_ALONE)] if asked_again else [])]
        cost = sum(round(one.json()["usage"]["cost"] * 1e9) for one in answers)
        assert until(lambda: accounts.accounts()[0][1:] == (cost, 0), 2.0)


@contextmanager
def locked(server: ServedPolicies) -> Iterator[None]:
    """A database that does not answer."""
    other = sqlite3.connect(server.folder / "accounts.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def test_a_database_that_does_not_answer_holds_up_nothing_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running_over(lambda _: replace(PARIS, seconds=0.3), tmp_path, ALWAYS) as (server, expert),
        ThreadPoolExecutor() as by,
    ):
        runs = by.submit(server.ask, ALWAYS, CAPITAL, **ANSWER_ALONE)
        assert until(lambda: bool(expert.seen))
        with locked(server):
            begins = by.submit(server.ask, ALWAYS, CAPITAL, **ANSWER_ALONE)
            assert runs.result(5).json()["choices"][0]["message"]["content"] == "Paris"
            assert httpx.get(f"{server.url}/health", timeout=1).status_code == 200
            assert not begins.done()
            monkeypatch.setattr(booking, "PATIENCE_SECONDS", 0.3)
            assert server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE).status_code == 503
        assert begins.result(5).json()["ended"] == "answered"
        assert until(lambda: server.service.accounts.accounts()[0][1:] == (2 * 10_100_000, 0))


def test_who_leaves_while_money_is_set_aside_leaves_nothing_behind(tmp_path: Path) -> None:
    body = {"model": ALWAYS, "messages": [{"role": "user", "content": CAPITAL}]}
    with running_over(lambda _: PARIS, tmp_path, ALWAYS) as (server, _):
        with locked(server), pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/decision", json=body, timeout=0.3)
        assert server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE).status_code == 200
        assert [one.held for one in server.service.accounts.accounts()] == [0]


def test_a_full_disk_costs_a_trajectory_and_no_answer(tmp_path: Path) -> None:
    with running_over(lambda _: PARIS, tmp_path, ALWAYS) as (server, _):
        (server.folder / "trajectories-0000.jsonl").symlink_to("/dev/full")
        answer = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE)
        assert answer.json()["choices"][0]["message"]["content"] == "Paris"
        assert [one.held for one in server.service.accounts.accounts()] == [0]
        assert server.service.latest
