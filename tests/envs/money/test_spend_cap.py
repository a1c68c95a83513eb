"""Money that is set aside under a spend cap: in turn, for no longer than the wait that was allowed, and never lost."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, ServerReply
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.backends import Backing, read


def test_who_came_first_is_served_first_also_where_a_later_one_would_fit() -> None:
    async def run() -> list[str]:
        cap, served = SpendCap(10), list[str]()
        first = await cap.hold(6 * NANO)

        async def wants(name: str, usd: int) -> None:
            hold = await cap.hold(usd * NANO)
            served.append(name)
            hold.release()

        waiting = []
        for name, usd in (("expensive", 8), ("cheap", 1), ("also cheap", 2)):
            waiting.append(asyncio.create_task(wants(name, usd)))
            await asyncio.sleep(0.01)
        assert served == []  # two of them would fit beside the first, but it is the expensive one's turn
        first.release()
        await asyncio.gather(*waiting)
        assert cap.held_usd == 0
        return served

    assert asyncio.run(run()) == ["expensive", "cheap", "also cheap"]


def test_money_that_never_comes_back_is_said_when_the_wait_is_over() -> None:
    async def run() -> None:
        cap = SpendCap(10)
        await cap.hold(6 * NANO)  # whoever has it never ends
        behind = asyncio.create_task(cap.hold(9 * NANO, 5.0))
        await asyncio.sleep(0)
        with pytest.raises(Outage, match=r"had no 5 \$ free for 0\.05 s: 6 \$ are set aside .* nothing was sent"):
            await cap.hold(5 * NANO, 0.05)
        assert not cap.used_up
        behind.cancel()
        await asyncio.gather(behind, return_exceptions=True)
        (await cap.hold(4 * NANO, 0.05)).release()  # nobody who gave up stands in the way

    asyncio.run(run())


def test_a_cancelled_request_that_had_just_been_served_gives_it_back() -> None:
    async def run() -> None:
        cap = SpendCap(10)
        first = await cap.hold(6 * NANO)
        task = asyncio.create_task(cap.hold(8 * NANO))
        await asyncio.sleep(0)
        first.release()  # sets it aside for the task, which is cancelled before it hears of it
        assert cap.held_usd == 8
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert cap.held_usd == 0

    asyncio.run(run())


def test_all_who_wait_are_refused_when_the_first_can_never_be_served() -> None:
    async def run() -> None:
        cap = SpendCap(10)
        first = await cap.hold(6 * NANO)
        waiting = [asyncio.create_task(cap.hold(usd * NANO)) for usd in (9, 8)]
        await asyncio.sleep(0)
        cap.add(4 * NANO)
        first.release()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in told] == [SpendCapReached, SpendCapReached]
        assert "may cost 9 $" in str(told[0])
        assert cap.used_up

    asyncio.run(run())


def test_threads_with_loops_of_their_own_share_one_cap_and_lose_nothing() -> None:
    cap, most = SpendCap(10), list[float]()

    async def some(number: int) -> None:
        async def one(turn: int) -> None:
            hold = await cap.hold((1 + (number + turn) % 7) * NANO)
            most.append(cap.held_usd)
            await asyncio.sleep(0)
            hold.release()

        await asyncio.gather(*(one(turn) for turn in range(50)))

    threads = [threading.Thread(target=lambda n=number: asyncio.run(some(n))) for number in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(most) == 300
    assert max(most) <= 10
    assert cap.held_usd == 0


def test_a_loop_that_is_closed_keeps_no_money() -> None:
    cap = SpendCap(10)
    other = asyncio.new_event_loop()
    hold = asyncio.run(cap.hold(6 * NANO))
    task = other.create_task(cap.hold(8 * NANO))
    other.run_until_complete(asyncio.sleep(0))
    task.cancel()
    other._ready.clear()  # type: ignore[attr-defined] # as a loop that is closed without ending its tasks
    other.close()
    hold.release()
    assert asyncio.run(cap.hold(10 * NANO, 1.0)) is not None


def test_a_call_waits_for_money_no_longer_than_for_its_turn(tmp_path: Path) -> None:
    pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
    sheet, cap = load_sheet("paper-2025-11"), SpendCap(1)
    with Loopback(lambda asked: ServerReply("42")) as server:
        file = tmp_path / "b.toml"
        file.write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\nqueue_seconds = 0.2\noutput_tokens = 64\n'
        )

        async def run() -> None:
            await cap.hold(round(0.99999999 * NANO))
            models = Backing(read(str(file))).models
            with pytest.raises(Outage, match="the spend cap had no"):
                await models.complete(ChatRequest("gpt-5", "answer", (), bill=Bill(sheet, cap)))

        asyncio.run(asyncio.wait_for(run(), 10))
        assert server.seen == []


def test_a_cap_that_a_fork_copied_refuses_to_count() -> None:
    cap = SpendCap(5)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        refused = []
        for use in (cap.check, lambda: cap.add(1), lambda: asyncio.run(cap.hold(1))):
            try:
                use()
            except ConfigError as err:
                refused.append(str(err))
        os.write(theirs, f"{len(refused)} {refused[0][:30]}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 100) == f"3 {'this spend cap counts in process'[:30]}".encode()
    assert cap.spent_usd == 0
    cap.check()
