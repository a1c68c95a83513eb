"""What was used is billed however a call ends, and the ledger, the spend cap and the server count the same dollars."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation import played_episodes
from tests.support.loopback import Loopback, ServerReply
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import Outage, ToolError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.calls import ReadyCall
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models import ScriptedModel
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO, TOOL, Tokens, Usage, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.retrieval import Hit
from toolorchestra.envs.runtime.invoke import Gates, advance, perform_here
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.backends import Backing, read
from toolorchestra.envs.tools.question_material import Experts
from toolorchestra.envs.tools.search import Search, SearchSettings

PRICES = load_sheet("paper-2025-11")


def used(item: str = "gpt-5") -> Usage:
    return Usage(item, TOOL, Tokens(1_000_000))


def test_a_result_that_names_what_it_used_is_billed_once() -> None:
    cap = SpendCap(100)
    bill = Bill(PRICES, cap)
    tool = Tool("t", "", {"type": "object"}, lambda context: ToolResult("x", (used(),)))
    done = perform_here(ReadyCall(tool, {}, ToolContext(None, 0, bill)))
    assert done.booked == (used(),)
    assert bill.take() == ()
    assert cap.spent_usd == PRICES.charge(used()).usd


def test_what_is_booked_on_a_part_is_booked_on_the_whole_and_counted_once() -> None:
    cap = SpendCap(100)
    bill = Bill(PRICES, cap)
    bill.part().part().add(used())
    assert len(bill.usages) == 1
    assert cap.spent_usd == PRICES.charge(used()).usd


def test_what_a_call_beside_one_that_runs_beside_has_used_is_kept() -> None:
    bill = Bill(PRICES)
    bill.another().another().add(used())
    bill.another()
    assert bill.unsettled() == (used(),)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_turn_that_is_broken_off_keeps_what_each_of_its_calls_has_used(in_order: bool) -> None:
    async def run(context: ToolContext, seconds: float) -> ToolResult:
        context.bill.add(used())
        await asyncio.sleep(seconds)
        return ToolResult("")

    async def broken_off() -> None:
        turn = asyncio.create_task(Gates().perform_all([ReadyCall(tool, {"seconds": s}, context) for s in (0, 60, 0)]))
        await asyncio.sleep(0.05)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    tool = Tool("t", "", {"type": "object"}, run, in_order=in_order)
    context = ToolContext(None, 0, Bill(PRICES))
    asyncio.run(broken_off())
    assert len(context.bill.unsettled()) == (2 if in_order else 3)
    assert context.bill.unsettled() == ()


def test_a_call_that_waits_for_its_first_reply_is_not_forgotten() -> None:
    bill = Bill(PRICES)
    waits, ended = bill.another(), bill.another()
    ended.take()
    bill.another()
    waits.add(used())
    assert len(bill._beside) == 2
    assert bill.unsettled() == (used(),)


class Raises:
    """A retriever that is reached by a paid query and then fails."""

    suspends = True

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
        await asyncio.sleep(0)
        raise self.error


class Hangs(Raises):
    async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
        await asyncio.sleep(60)
        raise self.error


class ChatQuery(ScriptedModel):
    """Waits, as a real backend does."""

    suspends = True


SHARED = Outage("the same exception object each time")


@pytest.mark.parametrize(
    "error",
    [RuntimeError("x"), ToolError("no"), SHARED, asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("driver", ["env", "vector"])
def test_a_paid_query_is_billed_however_the_search_after_it_fails(error: BaseException, driver: str) -> None:
    check_paid_query(Raises(error), driver)


def test_a_paid_query_is_billed_where_the_search_after_it_misses_its_deadline() -> None:
    check_paid_query(Hangs(OSError()), "env", deadline_seconds=0.2)


def check_paid_query(retriever: Any, driver: str, deadline_seconds: float = 120.0) -> None:
    models = ChatQuery(lambda request: "<query>who</query>")
    search = Search(retriever, SearchSettings(), "local-index", 1.0)

    async def run(context: ToolContext) -> Any:
        return await search.written(context, Experts(models, {"m": "gpt-5"}), "m")

    nothing = {"type": "object", "properties": {}}
    tool = Tool("search", "", nothing, run, bills=("gpt-5", "local-index"), deadline_seconds=deadline_seconds)
    cap = SpendCap(10)
    made = factory(**gym.spec(full_id("HLE-v0")).kwargs, preference="none", spend_cap=cap)
    episodes = []
    for seed in range(2):
        episode = made.start(seed).episode
        assert isinstance(episode.world, QaWorld)
        episode.world.toolbox = Toolbox([tool])
        episodes.append(episode)
    if driver == "env":
        for episode in episodes:
            episode.resolve(run_calls(episode.act(render_call("search", {})).calls))
    else:

        async def both() -> None:
            gates = Gates()
            await asyncio.gather(*(advance(e, render_call("search", {}), gates) for e in episodes))

        asyncio.run(both())
    for episode in episodes:
        assert [c.usage.item for c in episode.ledger if c.tool == "search"] == ["gpt-5"]
    assert cap.spent_usd * NANO == pytest.approx(sum(e.ledger.nano_usd for e in episodes), abs=1e-3)


def endpoints(tmp_path: Path, server: Loopback, price: str, **row: Any) -> str:
    rows = "".join(f"{name} = {value}\n" for name, value in row.items())
    (tmp_path / "b.toml").write_text(
        f'[endpoints.here]\nbase_url = "{server.base_url}"\nfailures_to_open = 100000\n'
        f'[models."*"]\ndeadline_seconds = 20.0\nprice = {{usd_per_mtok = {price}}}\n{rows}'
    )
    return str(tmp_path / "b.toml")


def made(file: str, **settings: Any) -> EpisodeFactory:
    spec = gym.spec(full_id("HLE-v0")).kwargs
    return factory(**spec, backends=Backing(read(file)), preference="none", split="test", **settings)


def test_the_policys_own_replies_are_billed_where_none_can_be_used(tmp_path: Path) -> None:
    unusable = ServerReply(body={"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 1}})
    cap = SpendCap(1000)
    with Loopback(lambda _: unusable) as server:
        one = made(endpoints(tmp_path, server, "{input = 10000, output = 10000}", retries=1), spend_cap=cap)
        chat = played_episodes.policy("chat", one)
        played = asyncio.run(played_episodes.evaluate(one, chat, 0, 6))
        delivered = len(server.seen) * 101 * 10**7
    assert all(p.record.failed and "did not answer" in p.failure for p in played)
    assert len(server.seen) == 12
    assert sum(p.nano_usd for p in played) == delivered
    assert round(cap.spent_usd * NANO) == delivered


@pytest.mark.parametrize("at_once", [1, 64])
def test_a_spend_cap_holds_with_any_number_of_requests_in_flight(tmp_path: Path, at_once: int) -> None:
    """Each reply costs 1 $; a request may cost a little more."""
    cap = SpendCap(5)
    reply = ServerReply(
        render_call("answer", {"model": "answer-1"}), usage={"prompt_tokens": 500, "completion_tokens": 1}, seconds=0.02
    )
    with Loopback(lambda _: reply) as server:
        file = endpoints(tmp_path, server, "{input = 0.000001, output = 1000000}", output_tokens=1)
        one = made(file, spend_cap=cap)
        chat = played_episodes.policy("chat", one)
        played = asyncio.run(played_episodes.evaluate(one, chat, 0, 64, at_once=at_once))
        delivered = len(server.seen)
    assert delivered == 4  # the fifth could cost a little more than what is left
    assert round(cap.spent_usd, 6) == delivered
    assert sum(p.nano_usd for p in played) == round(cap.spent_usd * NANO)
    assert cap.held_usd == 0
    assert cap.used_up
