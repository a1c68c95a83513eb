"""The page that watches a server: what it is told, what it may do, and what a browser shows of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import toolorchestra as to
from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.test_page import HOSTILE
from tests.agents.reports.test_page_in_chromium import CONTRAST, CUT_OFF, count, texts
from tests.support.served import ADD, ANSWER_ALONE, PARIS, ServedPolicies, running, running_over
from toolorchestra.agents.serving.accounts import new_key

QUESTIONS = list(to.make("HLE-v0").unwrapped.factory.source.askable)  # type: ignore[attr-defined]
in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPolicies]:
    with running(tmp_path_factory.mktemp("served"), "cascade", "random") as server:
        yield server


def test_the_page_may_run_its_own_script_and_ask_its_own_server_alone(simulated: ServedPolicies) -> None:
    told = httpx.get(simulated.url)
    allowed = dict(part.split(" ", 1) for part in told.headers["content-security-policy"].split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", told.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", told.text, re.DOTALL)
    for name, content in (("script-src", script), ("style-src", style)):
        assert allowed[name] == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert allowed["default-src"] == "'none'"
    assert allowed["connect-src"] == "'self'"
    assert allowed["frame-ancestors"] == "'none'"
    assert allowed["require-trusted-types-for"] == "'script'"
    assert "src=" not in re.sub(r"<script>.*?</script>", "", told.text, flags=re.DOTALL)
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", told.text)


def test_a_page_of_another_site_cannot_spend_where_no_key_is_asked(simulated: ServedPolicies) -> None:
    """A browser sends text to any address of its own machine without asking it first."""
    body = json.dumps({"model": "cascade", "messages": [{"role": "user", "content": QUESTIONS[0]}]})
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        headers = {"sec-fetch-site": site, "content-type": "text/plain"}
        told = httpx.post(f"{simulated.url}/v1/chat/completions", content=body, headers=headers)
        assert told.status_code == status


def test_what_is_in_flight_is_told_and_shown_so_far(simulated: ServedPolicies) -> None:
    waiting = simulated.left_waiting(QUESTIONS[3])["id"]
    told = httpx.get(f"{simulated.url}/v1/activity").json()
    row = next(row for row in told["in_flight"] if row["request_id"] == waiting)
    assert (row["state"], row["model"], row["question"]) == ("waits for the client", "random", QUESTIONS[3][:400])
    assert row["usd_by_role"]["orchestrator"] > 0
    so_far = httpx.get(f"{simulated.url}/v1/trajectories/{waiting}").json()
    assert so_far["messages"][1]["content"] == QUESTIONS[3]
    assert sum(one["nano_usd"] for one in so_far["charges"]) == round(1e9 * sum(row["usd_by_role"].values()))
    missing = httpx.get(f"{simulated.url}/v1/trajectories/chatcmpl-none")
    assert missing.status_code == 404


def test_the_totals_are_those_of_the_requests_and_keep_no_names_of_strangers(tmp_path: Path) -> None:
    with running(tmp_path, "cascade", "random") as server:
        answers = [server.ask("cascade", QUESTIONS[n]).json() for n in range(3)]
        told = server.left_waiting(QUESTIONS[3])
        messages: list[Any] = [{"role": "user", "content": QUESTIONS[3]}]
        while told["choices"][0]["finish_reason"] == "tool_calls":
            message = told["choices"][0]["message"]
            results = [{"role": "tool", "tool_call_id": one["id"], "content": "1"} for one in message["tool_calls"]]
            messages += [message, *results]
            told = server.ask("random", messages, tools=[ADD]).json()
        server.ask("cascade", QUESTIONS[0], budgt_usd=1)
        totals = httpx.get(f"{server.url}/v1/activity").json()["totals"]
    assert {"policy": "cascade", "ended": "answered", "count": 3} in totals["requests"]
    assert totals["refused"] == [{"code": "invalid_request", "count": 1}]
    assert {one["key"] for one in totals["usd"]} == {"-"}
    experts = sum(answer["usage"]["cost_by_role"]["expert"] for answer in answers)
    assert next(one["count"] for one in totals["usd"] if one["role"] == "expert") >= experts > 0
    calls = {(one["tool"], one["model"]) for one in totals["calls"]}
    assert {("search-3", "qwen3-32b"), ("client's own", "")} <= calls
    assert "add" not in {tool for tool, _ in calls}


def test_a_server_that_keeps_no_texts_shows_none(tmp_path: Path) -> None:
    with running(tmp_path, "random", no_texts=True) as server:
        waiting = server.left_waiting(QUESTIONS[3])["id"]
        ended = server.ask("random", QUESTIONS[0]).json()["id"]
        told = httpx.get(f"{server.url}/v1/activity").text
        for request in (waiting, ended):
            shown = httpx.get(f"{server.url}/v1/trajectories/{request}")
            assert shown.json()["charges"]
            assert "messages" not in shown.json()
            told += shown.text
        assert not any(json.dumps(QUESTIONS[n])[1:-1][-60:] in told for n in (0, 3))


# -- as a browser shows it ---------------------------------------------------------------------------------------------


@pytest.fixture
def tab() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


READY = "document.documentElement?.dataset.ready"


@in_chromium
def test_it_asks_for_a_key_and_then_follows(tab: Chromium, tmp_path: Path) -> None:
    made = {name: new_key(name) for name in ("alice", "root")}
    lines = "\n".join(text for _, text in made.values()) + "\nadmin = true"
    (tmp_path / "keys.toml").write_text(lines)
    (alice, _), (root, _) = made.values()
    with running(tmp_path / "out", "cascade", "random", keys=str(tmp_path / "keys.toml")) as server:
        server.ask("cascade", QUESTIONS[2], alice)
        tab.visit(server.url)
        for key, words in (("to-wrong", "no such key"), (alice, "admin = true"), (root, None)):
            tab.until("document.getElementById('key')")
            tab.value(f"document.querySelector('#key input').value = {json.dumps(key)}")
            tab.click("document.querySelector('#key button')")
            if words:
                tab.until(f"document.querySelector('#key .note')?.textContent.includes({json.dumps(words)})")
        tab.until(READY)
        assert texts(tab, ".fact b")[2] == "1"
        assert "Calls by tool and model" in texts(tab, ".card h2")
        server.left_waiting(QUESTIONS[3], alice)
        tab.until("document.querySelector('.card .link')?.textContent === 'random'")
        tab.key("2")
        listed = count(tab)
        tab.key("j")
        tab.until("document.querySelector('.chip.running')")
        server.ask("cascade", QUESTIONS[1], alice)
        tab.until(f"document.getElementById('count').textContent.startsWith('{listed + 1} requests')")
        assert tab.value("document.querySelector('.row[aria-selected=true]').id") == "row-0"
        tab.visit(server.url)  # the tab keeps the key
        tab.until(READY)
    tab.until("document.getElementById('pulse')?.textContent === 'no answer'")
    refused = [one for one in tab.complaints if "401" not in one and "403" not in one and "ERR_CONNECTION" not in one]
    assert refused == []


@in_chromium
def test_strangers_texts_stay_texts_on_every_screen(tab: Chromium, tmp_path: Path) -> None:
    spoilt = HOSTILE.replace("\ud800", "")
    expert_says = type(PARIS)(f"<answer>{spoilt}</answer>", usage=PARIS.usage)
    with running_over(lambda asked: expert_says, tmp_path, "always:answer-1") as (server, _):
        server.ask("always:answer-1", f"{spoilt} Capital?", **ANSWER_ALONE)
        server.ask("always:answer-1", "Capital?", tools=[ADD], budget_usd=1e-9, **ANSWER_ALONE)
        for dark, width in ((False, 1280), (True, 390)):
            tab.dark(dark)
            tab.size(width, 844)
            tab.visit(server.url)
            tab.until(READY)
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert tab.value(CUT_OFF) == []
            assert tab.value(CONTRAST) == []
            tab.key("2")
            tab.key("j")
            tab.key("j")
            tab.until("document.querySelector('.verdict.answered') && document.querySelector('.turn')")
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert tab.value(CONTRAST) == []
        assert "<script>globalThis.ran=1</script>" in texts(tab, "#detail")[0]
        assert tab.value("document.querySelectorAll('main script, main img').length") == 0
        assert tab.value("typeof globalThis.ran") == "undefined"
        assert tab.complaints == []
