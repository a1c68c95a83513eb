"""A wall clock that jumps: limits hold, nothing hangs, and bills are right."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from tests.agents.serving.test_serve import ADD, PARIS
from tests.agents.serving.test_serve_process import Process, wait_for
from tests.support.loopback import Loopback
from tests.support.wall_clock import WallClock
from toolorchestra.agents.serving.accounts import Accounts, ApiKey, Refused, new_key

HOUR = 3600
PAID_USD = 0.0101


class Jumping(NamedTuple):
    """A server whose wall clock a test sets, and the expert behind it."""

    process: Process
    clock: WallClock
    expert: Loopback
    keys: dict[str, str]

    def ask(self, name: str, text: str, **more: Any) -> httpx.Response:
        """Ask one question."""
        return self.process.ask(self.keys[name], model="random", **{"messages": asked(text), **more})

    def jump_in_a_request(self, by: int, **more: Any) -> Any:
        """Set the clock while a request runs, and give its answer."""
        number = len(self.expert.seen)
        came = self.process.ask_aside(self.keys["amy"], model="random", messages=asked("Slow?"), **more)
        wait_for(lambda: len(self.expert.seen) > number)
        self.clock.set(by)
        wait_for(lambda: came)
        return came[0].json()


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jumping]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("clock")
    made = {name: new_key(name) for name in ("amy", "bob")}
    (folder / "keys.toml").write_text(made["amy"][1].replace("= 60", "= 6000") + "\n" + made["bob"][1])
    clock = WallClock(folder)
    options = ("--keys", str(folder / "keys.toml"), "--session-seconds", "1.5")
    with Loopback(lambda asked: replace(PARIS, seconds=1.0 if "Slow?" in asked.text else 0.0)) as expert:
        process = Process(folder, expert, *options, policy="random", env=clock.env)
        yield Jumping(process, clock, expert, {name: key for name, (key, _) in made.items()})
        assert process.end(signal.SIGTERM) == 0
    accounts = Accounts(database=str(folder / "out" / "accounts.sqlite"), replica="other")
    assert all(one.held == 0 for one in accounts.accounts())
    rows = [json.loads(line) for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sum(one.spent for one in accounts.accounts()) == sum(row["totals"]["nano_usd"] for row in rows)
    accounts.close()


def test_a_request_in_whose_middle_the_clock_jumps_has_its_bill(jumping: Jumping) -> None:
    for by in (HOUR, -HOUR):
        told = jumping.jump_in_a_request(by)
        assert told["created"] == pytest.approx(time.time() + by, abs=60)
        assert told["ended"] == "answered"
        assert told["usage"]["cost"] == pytest.approx(PAID_USD)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_deadline_is_kept_whatever_the_clock_says(jumping: Jumping, by: int) -> None:
    began = time.monotonic()
    told = jumping.jump_in_a_request(by, deadline_seconds=0.5)
    assert told["ended"] == "deadline"
    assert told["usage"]["cost"] >= PAID_USD  # it was sent, and may be paid
    assert 0.5 <= time.monotonic() - began < 3


@pytest.mark.parametrize(("by", "waits", "status"), [(HOUR, 0.0, 200), (-HOUR, 2.0, 409)])
def test_a_conversation_waits_for_as_long_as_was_said(jumping: Jumping, by: int, waits: float, status: int) -> None:
    for seed in range(40):
        told = jumping.ask("amy", "Sum?", tools=[ADD], seed=seed).json()
        if told["choices"][0]["finish_reason"] == "tool_calls":
            break
    jumping.clock.set(by)
    time.sleep(waits)
    message = told["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in message["tool_calls"]]
    again = jumping.ask("amy", "", tools=[ADD], messages=[*asked("Sum?"), message, *results])
    assert again.status_code == status, again.text


def test_a_keys_rate_counts_on_when_the_clock_was_set_back(jumping: Jumping) -> None:
    answers = [jumping.ask("bob", "Capital?")]
    while answers[-1].status_code != 429:
        answers.append(jumping.ask("bob", "Capital?"))
    jumping.clock.set(-2 * HOUR)
    assert jumping.ask("bob", "Capital?").status_code == 429
    time.sleep(1.1)
    assert jumping.ask("bob", "Capital?").status_code == 200


def test_a_keys_rate_goes_on_after_its_clock_was_set_back() -> None:
    now = [1e9]
    accounts = Accounts({"bob": ApiKey("0" * 64, requests_per_minute=12)}, clock=lambda: now[0])

    def taken() -> list[str]:
        """Ask until a request is refused."""
        made: list[str] = []
        with suppress(Refused):
            while len(made) < 9:
                accounts.begin(f"{now[0]} {len(made)}", "bob", 0.01)
                made.append("taken")
        return made

    assert len(taken()) == 2
    now[0] -= HOUR
    assert len(taken()) == 0
    now[0] += 5
    assert len(taken()) == 1
    now[0] += HOUR
    assert len(taken()) == 2  # what may come at once, however long the clock says that it was
    accounts.close()
