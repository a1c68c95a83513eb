"""A wall clock that jumps: limits hold, nothing hangs, and bills are right."""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.serving.test_serve_process import Process, wait_for
from tests.support.loopback import Loopback
from tests.support.served import PARIS
from tests.support.wall_clock import WallClock
from toolorchestra.agents.serving.accounts import Accounts, ApiKey, Refused

HOUR = 3600
PAID_USD = 0.0101


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_bills_and_deadlines_hold_when_the_clock_jumps_in_a_request(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    with Loopback(lambda asked: replace(PARIS, seconds=1.0)) as expert:
        server = Process(tmp_path, expert, policy="random", env=clock.env)

        def jump_in_a_request(by: int, **more: Any) -> Any:
            """Set the clock while a request runs, and give its answer."""
            number = len(expert.seen)
            came = server.ask_aside(model="random", **more)
            wait_for(lambda: len(expert.seen) > number)
            clock.set(by)
            wait_for(lambda: came)
            return came[0].json()

        for by in (HOUR, -HOUR):
            told = jump_in_a_request(by)
            assert told["created"] == pytest.approx(time.time() + by, abs=60)
            assert told["ended"] == "answered"
            assert told["usage"]["cost"] == pytest.approx(PAID_USD)
            began = time.monotonic()
            told = jump_in_a_request(-by, deadline_seconds=0.5)
            assert told["ended"] == "deadline"
            assert told["usage"]["cost"] >= PAID_USD  # it was sent, and may be paid
            assert 0.5 <= time.monotonic() - began < 3
        assert server.end(signal.SIGTERM) == 0
    accounts = Accounts(database=str(tmp_path / "out" / "accounts.sqlite"), replica="other")
    (account,) = accounts.accounts()
    accounts.close()
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert (account.held, account.spent) == (0, sum(row["totals"]["nano_usd"] for row in rows))


def test_a_key_that_may_ask_0_times_a_minute_may_not_ask() -> None:
    accounts = Accounts({"bob": ApiKey("0" * 64, requests_per_minute=0)})
    with pytest.raises(Refused, match="0 requests a minute are allowed") as refused:
        accounts.begin("r", "bob", 0.01)
    assert refused.value.after_seconds == 3600
    accounts.close()


def test_a_keys_rate_goes_on_after_its_clock_was_set_back() -> None:
    now = [1e9]
    accounts = Accounts({"bob": ApiKey("0" * 64, requests_per_minute=12)}, clock=lambda: now[0])

    def taken() -> int:
        """Ask until a request is refused."""
        made = 0
        with suppress(Refused):
            while made < 9:
                accounts.begin(f"{now[0]} {made}", "bob", 0.01)
                made += 1
        return made

    assert taken() == 2
    now[0] -= HOUR
    assert taken() == 0
    now[0] += 5
    assert taken() == 1
    now[0] += HOUR
    assert taken() == 2  # what may come at once, however long the clock says that it was
    accounts.close()
