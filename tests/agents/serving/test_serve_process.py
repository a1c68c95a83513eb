"""`toolorchestra serve` as a process: killed in the middle, told to stop, and two of them on one database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.loopback import Loopback, ServerReply
from tests.support.served import BACKENDS, PARIS
from toolorchestra.agents.serving import accounts as serving_accounts
from toolorchestra.agents.serving.accounts import NOBODY, Accounts, new_key, read_keys
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.money.prices import NANO

ASK = {
    "model": "always:answer-1",
    "messages": [{"role": "user", "content": "Capital of France?"}],
    "orchestrator_tools": ["answer"],
    "budget_usd": 0.5,
}


class Process:
    """A server that was started by the command line."""

    def __init__(
        self, folder: Path, expert: Loopback, *options: str, policy: str = "always:answer-1", env: Any = None
    ) -> None:
        (folder / "backends.toml").write_text(BACKENDS.format(url=expert.base_url))
        words = ["serve", policy, "--backends", str(folder / "backends.toml"), "--port", "0"]
        command = [sys.executable, "-m", "toolorchestra", *words, "--out", str(folder / "out"), *options]
        variables = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=variables)
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line)
            if " at http" in line:
                self.url = line.split(" at ")[1].split("/v1")[0]
                break
        while not self._there():
            time.sleep(0.02)

    def end(self, number: int, seconds: float = 15.0) -> int:
        """Send a signal, and wait for the end."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def _there(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.ConnectError:
            return False

    def ask(self, key: str = "", **more: Any) -> httpx.Response:
        """Ask one question."""
        head = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.post(f"{self.url}/v1/chat/completions", json={**ASK, **more}, timeout=30.0, headers=head)

    def ask_aside(self, key: str = "", **more: Any) -> list[Any]:
        """Ask in a thread; the answer, or what went wrong, comes into the list."""
        came: list[Any] = []

        def ask() -> None:
            try:
                came.append(self.ask(key, **more))
            except httpx.HTTPError as err:
                came.append(err)

        threading.Thread(target=ask, daemon=True).start()
        return came


def wait_for(what: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def test_what_was_in_flight_at_kill_9_is_marked_and_stays_set_aside(tmp_path: Path) -> None:
    database = str(tmp_path / "accounts.sqlite")
    options = ("--database", database, "--replica", "one")
    with Loopback(lambda asked: ServerReply("<answer>Paris</answer>", seconds=60.0)) as expert:
        server = Process(tmp_path, expert, *options)
        came = server.ask_aside()
        wait_for(lambda: expert.seen)
        server.end(signal.SIGKILL)
        wait_for(lambda: came)
        again = Process(tmp_path, expert, *options)
        assert "1 requests were in flight when this server was killed" in "".join(again.said)
        again.end(signal.SIGKILL)
    kept = Accounts(database=database, replica="two")
    (account,) = kept.accounts()
    assert (account.held + account.spent) == NANO // 2  # nobody knows what the request has cost
    assert kept.release_lost() == 1
    assert kept.accounts()[0].held == 0
    kept.close()


def test_sigterm_lets_requests_end(tmp_path: Path) -> None:
    with Loopback(lambda asked: ServerReply("<answer>Paris</answer>", seconds=1.5)) as expert:
        server = Process(tmp_path, expert)
        came = server.ask_aside()
        wait_for(lambda: expert.seen)
        assert server.end(signal.SIGTERM) == 0
        wait_for(lambda: came)
        assert came[0].json()["choices"][0]["message"]["content"] == "Paris"


def test_sigterm_ends_what_takes_longer_than_the_drain(tmp_path: Path) -> None:
    with Loopback(lambda asked: ServerReply("<answer>Paris</answer>", seconds=60.0)) as expert:
        server = Process(tmp_path, expert, "--drain-seconds", "1")
        server.ask_aside()
        wait_for(lambda: expert.seen)
        assert server.end(signal.SIGTERM) == 0
    (row,) = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert '"ended": "cancelled"' in row
    kept = Accounts(database=str(tmp_path / "out" / "accounts.sqlite"), replica="x")
    assert kept.accounts()[0].held == 0
    kept.close()


def test_512_in_flight_are_all_booked_and_leave_nothing(tmp_path: Path) -> None:
    """What the accounts say is what the stand-in was asked for, to the nano-dollar, and memory stays."""
    with Loopback(lambda asked: replace(PARIS, seconds=0.3)) as expert:
        server = Process(tmp_path, expert, "--at-once", "512", "--queue", "512")
        resident = Path(f"/proc/{server.process.pid}/statm")

        async def rounds(number: int) -> None:
            limits = httpx.Limits(max_connections=512)
            async with httpx.AsyncClient(timeout=60, limits=limits) as asks:

                async def one() -> None:
                    for _ in range(number):
                        told = await asks.post(f"{server.url}/v1/chat/completions", json=ASK)
                        assert told.json()["ended"] == "answered", told.text

                await asyncio.gather(*[one() for _ in range(512)])

        asyncio.run(rounds(1))
        before = int(resident.read_text().split()[1])
        asyncio.run(rounds(1))
        grown = (int(resident.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE") / 2**20
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        asked = len(expert.seen)
        assert server.end(signal.SIGTERM) == 0
    kept = Accounts(database=str(tmp_path / "out" / "accounts.sqlite"), replica="x")
    (account,) = kept.accounts()
    kept.close()
    assert asked == 1024
    assert (account.spent, account.held) == (1024 * round(0.0101 * NANO), 0)
    assert grown < 20, grown
    assert files < 600


# -- Postgres ----------------------------------------------------------------------------------------------------------

INITDB = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """An empty Postgres of its own, from Debian's package."""
    pytest.importorskip("psycopg")
    if INITDB is None:
        pytest.skip("no Postgres: apt-get install postgresql")
    place = Path("/tmp") / f"pg-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    user = "postgres" if os.getuid() == 0 else None
    if user:
        shutil.chown(place, user)
    told: dict[str, Any] = {"user": user, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
    subprocess.run([INITDB, "-D", place / "data", "-N", "-A", "trust", "-U", "postgres"], check=True, **told)
    server = subprocess.Popen([INITDB.with_name("postgres"), "-D", place / "data", "-k", place, "-h", "", "-F"], **told)
    try:
        wait_for(lambda: list(place.glob(".s.PGSQL.*")))
        time.sleep(0.3)
        yield f"postgresql:///postgres?host={place}&user=postgres"
    finally:
        server.send_signal(signal.SIGINT)  # SIGTERM waits for every client
        server.wait(20)
        shutil.rmtree(place, ignore_errors=True)


def test_replicas_may_begin_at_once_on_an_empty_postgres(postgres: str) -> None:
    """Postgres' own CREATE TABLE IF NOT EXISTS fails where another one is under way."""
    together = threading.Barrier(8)

    def begin(replica: int) -> None:
        together.wait()
        Accounts(None, postgres, str(replica)).close()

    with ThreadPoolExecutor(8) as replicas:
        assert list(replicas.map(begin, range(8))) == [None] * 8


def test_two_replicas_on_one_postgres_hold_a_keys_limit_together(tmp_path: Path, postgres: str) -> None:
    key, lines = new_key("alice")
    (tmp_path / "keys.toml").write_text(lines.replace("usd = 10.0", "usd = 0.07").replace("= 60", "= 6000"))
    options = ("--keys", str(tmp_path / "keys.toml"), "--database", postgres)
    with Loopback(lambda asked: PARIS) as expert:
        servers = [Process(tmp_path, expert, *options, "--replica", name) for name in ("one", "two")]
        try:
            ends: list[str] = []

            def ask(server: Process) -> None:
                for _ in range(20):
                    told = server.ask(key)
                    ends.append(told.json()["ended"] if told.status_code == 200 else str(told.status_code))

            asking = [threading.Thread(target=ask, args=(server,)) for server in servers]
            [one.start() for one in asking]
            [one.join() for one in asking]
        finally:
            [server.end(signal.SIGTERM) for server in servers]
        answered = len(expert.seen)
    kept = Accounts(read_keys(tmp_path / "keys.toml"), postgres)
    account = next(one for one in kept.accounts() if one.name == "alice")
    kept.close()
    assert account.held == 0
    assert answered * 0.0101 * NANO <= account.spent <= 0.0705 * NANO  # a rule's last turn is counted when it is made
    assert ends.count("answered") == answered == 6


def test_a_postgres_whose_row_is_locked_is_not_waited_for_without_end(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(serving_accounts, "PATIENCE_SECONDS", 1)
    accounts = Accounts(None, postgres, "one")
    with psycopg.connect(postgres) as other:
        other.execute("SELECT * FROM accounts FOR UPDATE")
        with pytest.raises(Outage, match="broke off: QueryCanceled"):
            accounts.begin("r", NOBODY, 1.0)
    accounts.begin("r", NOBODY, 1.0)
    accounts.end("r", 7)
    assert [(one.spent, one.held) for one in accounts.accounts()] == [(7, 0)]
    accounts.close()


def test_a_postgres_that_has_closed_an_idle_connection_is_asked_again(postgres: str) -> None:
    """As one does that was started again: what was paid meanwhile must not be lost by it."""
    import psycopg

    accounts = Accounts(None, postgres, "one")
    accounts.begin("r", NOBODY, 1.0)
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
                      "backend_type = 'client backend'")  # fmt: skip
    accounts.end("r", 7)
    assert [(one.spent, one.held) for one in accounts.accounts()] == [(7, 0)]
    accounts.close()
