"""Web search against a stand-in on a loopback socket: what is found, what is billed, and what each failure becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, WrongSetting
from toolorchestra.envs.money.journal import JOURNAL, SpendJournal
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.retrieval import SEARCH_ITEM, Hit
from toolorchestra.envs.retrieval.remote import Service, Tavily
from toolorchestra.envs.tools.backends import Backing, read

CANARY = "tvly-canary-3d"
FOUND = {"results": [{"url": f"http://site/{i}", "title": f"Page {i}", "score": 0.9 - i / 10} for i in range(4)]}
PAGES = {
    "results": [{"url": f"http://site/{i}", "raw_content": f"page {i} " * (1 if i == 2 else 50)} for i in (3, 2, 1, 0)]
}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", CANARY)


def web(asked: ReceivedRequest) -> ServerReply:
    return ServerReply(body=FOUND if asked.path.endswith("/search") else PAGES)


def search(
    reply: Callable[[ReceivedRequest], ServerReply], bill: Bill | None = None, **service: Any
) -> tuple[list[str], Loopback]:
    with Loopback(reply) as server:
        made = Tavily(Service(base_url=server.base_url, **service))
        hits = asyncio.run(made.search("who?", 4, bill))
    return [h.passage.doc_id for h in hits], server


def test_pages_come_in_the_order_of_their_scores_and_stubs_are_left_out() -> None:
    urls, server = search(web)
    assert urls == ["http://site/0", "http://site/1", "http://site/3"]
    first, second = server.seen
    assert (first.json["query"], first.json["max_results"]) == ("who?", 4)
    assert second.json["urls"] == [f"http://site/{i}" for i in range(4)]
    assert first.headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.parametrize("score", ["high", float("nan")])
def test_a_page_whose_score_is_no_number_comes_last(score: Any) -> None:
    rows = [{**FOUND["results"][0], "score": score}, *FOUND["results"][1:]]
    urls, _ = search(lambda a: ServerReply(body={"results": rows}) if a.path.endswith("/search") else web(a))
    assert urls == ["http://site/1", "http://site/3", "http://site/0"]


@pytest.mark.parametrize(
    "fault",
    [
        ServerReply("slow", 429, headers={"Retry-After": "0"}),
        ServerReply(body="{"),
        ServerReply("x" * 99, fault="reset"),
        ServerReply(fault="not http"),
    ],
)
def test_what_passes_is_tried_again(fault: ServerReply) -> None:
    urls, server = search(lambda asked: fault if asked.number == 0 else web(asked))
    assert (len(urls), len(server.seen)) == (3, 3)


def test_a_search_s_deadline_begins_when_its_turn_has_come() -> None:
    with Loopback(lambda asked: replace(web(asked), seconds=0.15)) as server:
        made = Tavily(Service(base_url=server.base_url, deadline_seconds=2.0, retries=0, at_once=2))

        async def together() -> list[Sequence[Hit]]:
            return list(await asyncio.gather(*(made.search("who?", 4) for _ in range(16))))

        assert {len(hits) for hits in asyncio.run(together())} == {3}
    assert server.most_in_flight <= 2


def test_silence_ends_at_the_deadline() -> None:
    with pytest.raises(Outage, match="search did not answer"):
        search(lambda _: ServerReply(fault="silence"), deadline_seconds=0.3, retries=1)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, ConfigError), (404, ConfigError), (400, ToolError), (402, Outage), (410, Outage), (432, Outage)],
)
def test_what_will_not_pass_is_said_at_once(status: int, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        search(lambda asked: ServerReply(f"no, {asked.headers['authorization']}", status))
    assert CANARY not in str(caught.value)


def test_a_search_does_not_follow_a_redirection() -> None:
    with Loopback(web) as other, pytest.raises(WrongSetting, match="is not followed"):
        search(lambda _: ServerReply("", 302, headers={"Location": f"{other.base_url}/moved"}))
    assert not other.seen


def test_a_search_whose_pages_cannot_be_read_is_paid() -> None:
    bill = Bill()
    with pytest.raises(Outage):
        search(lambda a: web(a) if a.path.endswith("search") else ServerReply("", 503), bill, retries=0)
    assert [(usage.item, usage.units) for usage in bill.usages] == [("tavily/search", 1)]


def test_an_episode_pays_by_the_search_and_by_the_page() -> None:
    with Loopback(web) as server:
        backing = Backing(read(web=True, web_url=server.base_url))
        for tools, call in (("plain", render_call("web_search", {"query": "who?"})),
                            ("plain", render_call("local_search", {"query": "who?"}))):  # fmt: skip
            env = gym.make("ToolOrchestra/FRAMES-v0", tools=tools, backends=backing, preference="none")
            env.reset(seed=0)
            for _ in range(2):  # pages that were found before are read, and paid, again
                *_, info = env.step(call)
                by_item = {c["item"]: c["nano_usd"] / 1e9 for c in info["charges"]}
                assert by_item["tavily/search"] == 0.01
                assert by_item["tavily/extract"] == pytest.approx(
                    4 * 0.002
                )  # one of them is too short to be of use, and paid too


def test_a_key_with_the_line_end_of_its_file_is_taken_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", f"{CANARY}\n")
    urls, server = search(web)
    assert len(urls) == 3
    assert server.seen[0].headers["authorization"] == f"Bearer {CANARY}"


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY")
    with pytest.raises(ConfigError, match="export TAVILY_API_KEY="):
        Tavily()


def test_searches_side_by_side_keep_to_a_cap_and_stand_in_the_journal_before_they_go_out(tmp_path: Path) -> None:
    sheet, path = load_sheet("paper-2025-11"), tmp_path / "paid.jsonl"
    price = sheet.price(SEARCH_ITEM).nano_usd_per_unit
    assert price
    cap, sent = SpendCap(2.5 * price / NANO), list[int]()

    def counted(asked: ReceivedRequest) -> ServerReply:
        sent.append(path.read_text().count('"sent"'))
        return ServerReply(body={"results": []}, seconds=0.1)

    async def together(server: Loopback) -> list[Any]:
        JOURNAL.set(SpendJournal(path, cap))
        made = Tavily(Service(base_url=server.base_url, retries=0))
        return await asyncio.gather(
            *(made.search(f"q{n}", 4, Bill(sheet, cap)) for n in range(8)), return_exceptions=True
        )

    with Loopback(counted) as server:
        ends = asyncio.run(together(server))
        assert len(server.seen) == 2
    assert [type(end) for end in ends].count(ToolError) == 6
    assert "nothing was sent" in str(next(end for end in ends if isinstance(end, ToolError)))
    assert round(cap.spent_usd * NANO) == 2 * price
    assert min(sent) >= 1
    assert sum(charge.nano_usd for charge in SpendJournal.left(path)[""]) == 2 * price
