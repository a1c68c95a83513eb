"""A canary answers its share, and is stopped when it is surely worse, and seldom when it is not."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import stdev
from typing import Any

import httpx2 as httpx
import pytest

import toolorchestra as to
from tests.support.served import running
from toolorchestra.agents.evaluation.statistics import student
from toolorchestra.agents.policies.base import Move
from toolorchestra.agents.serving import canary as module
from toolorchestra.agents.serving.canary import Canary
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.episode.episode import Episode

QUESTIONS = list(to.make("HLE-v0").unwrapped.factory.source.askable)  # type: ignore[attr-defined]


def stopped(seed: int, requests: int, fails: float, right: float, usd: float) -> str:
    """Play a canary beside a policy that fails in 5 %, is right in 70 % and costs a cent a request."""
    rng, canary = random.Random(seed), Canary("old", "new", 0.3, 1.5)
    for number in range(requests):
        policy = canary.choose("old", str((seed, number)))
        mine = policy == "new"
        ended = "failed" if rng.random() < (fails if mine else 0.05) else "answered"
        cost = rng.expovariate(1 / (usd if mine else 0.01))
        canary.ended(policy, ended, cost, float(rng.random() < (right if mine else 0.7)), str(number))
    return canary.stopped


@pytest.mark.parametrize(
    ("worse", "says"),
    [
        ({"fails": 0.3, "right": 0.7, "usd": 0.01}, "more of its requests fail"),
        ({"fails": 0.05, "right": 0.3, "usd": 0.01}, "fewer of its answers are right"),
        ({"fails": 0.05, "right": 0.7, "usd": 0.04}, "it costs more than 1.5 times as much"),
    ],
)
def test_a_worse_one_is_stopped_and_the_reason_said(worse: dict[str, float], says: str) -> None:
    assert all(stopped(seed, 2000, **worse).startswith(says) for seed in range(3))


def test_one_that_is_no_worse_is_seldom_stopped() -> None:
    assert sum(bool(stopped(seed, 800, 0.05, 0.7, 0.01)) for seed in range(25)) <= 3


def test_clients_that_never_send_their_tools_results_stop_nothing() -> None:
    canary = Canary("old", "new", 0.3, 1.5)
    for policy, ended in (("old", "answered"), ("new", "expired")):
        for number in range(200):
            canary.ended(policy, ended, 0.01, None, str(number))
    assert (canary.stopped, canary.arms["new"].bad) == ("", 0)


def test_the_moves_of_a_loop_count_as_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOPS_KEPT", 10)
    canary = Canary("old", "new", 0.3, 1.5)
    for policy, usd in (("old", 0.01), ("new", 0.1)):
        for move in range(200):
            ended = "failed" if move in (70, 71) else "tool_calls"
            canary.ended(policy, ended, usd * (1 + move // 100), None, str(move // 20))
    new = canary.arms["new"]
    assert (canary.stopped, new.requests, new.bad, len(new._loops)) == ("", 10, 1, 10)
    costs = [2.0] * 5 + [4.0] * 5
    reach = student(9) * stdev(costs) / 10**0.5
    assert new.told()["usd"] == 3.0
    assert new.told()["usd_interval"] == pytest.approx((3.0 - reach, 3.0 + reach))
    for number in range(1000):
        canary.ended("old", "answered", 0.01, None, f"alone {number}")
    assert (canary.arms["old"].requests, len(canary.arms["old"]._loops)) == (1010, 10)


def test_the_share_is_drawn_by_the_request_and_ends_with_the_canary() -> None:
    canary = Canary("old", "new", 0.1, 1.5)
    chosen = [canary.choose("old", str(number)) for number in range(2000)]
    assert chosen == [canary.choose("old", str(number)) for number in range(2000)]
    assert 150 < chosen.count("new") < 250
    assert canary.choose("other", "1") == "other"
    canary.stopped = "enough"
    assert {canary.choose("old", str(number)) for number in range(200)} == {"old"}


class Caller:
    """Calls the client's first tool."""

    simulated = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def move(self, episode: Episode) -> Move:
        """Call it."""
        return Move(render_call(episode.world.toolbox.tools[0].name, {}), None)


def caller(name: str, *_: Any) -> Caller:
    return Caller(name)


other = caller


def test_who_answers_a_loops_first_request_answers_all_of_it(tmp_path: Path) -> None:
    first, canary = (f"{__name__}:{name}" for name in ("caller", "other"))
    fetch = {"type": "function", "function": {"name": "fetch"}}
    drawn = set()
    with running(tmp_path / "out", first, canary=canary, canary_share=0.5) as server:
        for _ in range(8):
            messages: list[Any] = [{"role": "user", "content": "Go on."}]
            body = {"model": first, "messages": messages, "tools": [fetch], "orchestrator_tools": []}
            for _ in range(4):
                message = httpx.post(f"{server.url}/v1/chat/completions", json=body).json()["choices"][0]["message"]
                (call,) = message["tool_calls"]
                messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "1"}]
            decided = httpx.post(f"{server.url}/v1/decision", json=body).json()["policy"]
            who = {decided, *(one.policy for one in list(server.service.latest)[-4:])}
            assert len(who) == 1
            drawn |= who
    assert drawn == {first, canary}


def test_over_the_server_with_feedback(tmp_path: Path) -> None:
    with running(tmp_path / "out", "cascade", canary="always:answer-1", canary_share=0.5) as server:

        def post(path: str, **body: Any) -> httpx.Response:
            return httpx.post(f"{server.url}{path}", json=body)

        ids = [
            post("/v1/chat/completions", model="cascade", messages=[{"role": "user", "content": question}]).json()["id"]
            for question in QUESTIONS[:12]
        ]
        assert post("/v1/feedback", id=ids[0], right=False).status_code == 200
        assert post("/v1/feedback", id="chatcmpl-nobody", right=False).status_code == 404
        assert post("/v1/feedback", id=ids[0]).status_code == 400
        told = httpx.get(f"{server.url}/v1/activity").json()["canary"]
    assert {name: arm["requests"] > 0 for name, arm in told["arms"].items()} == {
        "cascade": True,
        "always:answer-1": True,
    }
    assert sum(arm["requests"] for arm in told["arms"].values()) == 12
    assert ids[0] in (tmp_path / "out" / "feedback.jsonl").read_text()
