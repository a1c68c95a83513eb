"""The episode's rules: order, histories, listeners, judges, failures."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.playing import ADD, FREE, env_of, step
from tests.sources import BREAK, adder_script
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import factory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import perform_here


def started(source: str, **settings: Any) -> Episode:
    return factory(f"tests.sources:{source}Source", **FREE, **settings).start(0).episode


def test_the_scripted_adder_is_solved_in_eight_turns() -> None:
    env = env_of("Adder", **FREE)
    *steps, last = [step(env, text) for text in adder_script()]
    assert [s.info["new_messages"][1]["content"] for s in steps] == ["1", "3", "6", "10", "15", "21", "28"]
    assert not any(s.terminated or s.truncated or s.reward for s in steps)
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)
    assert last.info["outcome"] == {"value": 1.0, "evidence": {"answer": "28", "expected": "28"}}
    assert last.info["calls"] == {"add": 7}
    assert last.info["truncated_by"] == ""
    assert last.info["failed"] == {}
    assert last.info["ledger"]["usd_by_role"].keys() == {ORCHESTRATOR}


def test_the_machine_refuses_steps_out_of_order() -> None:
    episode = started("Adder")
    with pytest.raises(ResetNeeded, match="that is ready"):
        episode.resolve([])
    pending = episode.act(ADD)
    with pytest.raises(ResetNeeded, match="that is waiting"):
        episode.act(ADD)
    with pytest.raises(ValueError, match="1 calls are pending, got 0 results"):
        episode.resolve([])
    done = episode.resolve([perform_here(ready) for ready in pending.calls])
    assert isinstance(done, Step)


def test_calls_in_one_turn_are_told_in_their_order_whatever_they_are() -> None:
    env = env_of("Adder", **FREE)
    calls = (
        ToolCall("add", {"a": 1, "b": 1}),
        ToolCall("sub", {}),
        ToolCall("add", {"a": "x"}),
        ToolCall("add", {"a": 2, "b": 2}),
    )
    told = step(env, *calls).info["new_messages"][1:]
    assert [m["name"] for m in told] == ["add", "sub", "add", "add"]
    assert [m["content"][:5] for m in told] == ["2", "Error", "Error", "4"]
    assert "no tool 'sub'; valid: add" in told[1]["content"]
    assert "add needs the argument 'b'" in told[2]["content"]
    assert env.episode is not None
    assert env.episode.calls == {"add": 2}


def test_half_surrogates_do_not_reach_the_transcript() -> None:
    env = env_of("Talker", **FREE)
    said = step(env, "a \ud800 b").info["new_messages"][0]["content"]
    assert said == "a ? b"


def test_under_state_history_the_world_retells() -> None:
    env = env_of("Talker", history="state", patience=9, **FREE)
    for number in range(1, 4):
        done = step(env, f"message {number}")
        system, told = done.observation["messages"]
        assert system["role"] == "system"
        assert told == {"role": "user", "content": f"You have said {number} things. Go on."}
        assert [m["role"] for m in done.info["new_messages"]] == ["assistant", "user"]
    inputs = [c.usage.tokens.input for c in env.episode.ledger if c.role == ORCHESTRATOR]  # type: ignore[union-attr]
    assert max(inputs) - min(inputs) < 10  # what it reads does not grow


def test_a_world_that_cannot_retell_says_so_at_the_start() -> None:
    env = OrchestraEnv("tests.sources:AdderSource", history="state")
    with pytest.raises(ConfigError, match='AnswerWorld has no buffers to retell; use history="full"'):
        env.reset(seed=0)


def test_a_user_answers_messages_and_leaves() -> None:
    env = env_of("Talker", patience=3, **FREE)
    first = step(env, "hello")
    assert first.info["new_messages"][1] == {"role": "user", "content": "I heard 'hello'. Go on."}
    assert not step(env, ADD).terminated  # a call is not told to the user
    assert not step(env, "again").terminated
    last = step(env, "bye")
    assert last.terminated
    assert last.info["outcome"]["evidence"] == {"heard": 3}
    assert [m["role"] for m in last.info["new_messages"]] == ["assistant"]
    assert last.info["ledger"]["usd_by_role"]["user"] > 0
    assert last.info["calls"] == {"add": 1}


@pytest.mark.parametrize(("judge", "answer", "value"), [("works", "good", 1.0), ("waits", "bad", 0.0)])
def test_a_judge_is_a_call_billed_in_its_own_role(judge: str, answer: str, value: float) -> None:
    last = step(env_of("Judged", judge=judge, **FREE), answer)
    assert (last.reward, last.terminated) == (value, True)
    assert last.info["ledger"]["usd_by_role"]["judge"] == (100 * 0.25 + 5 * 2) / 1e6
    assert last.info["charges"][-1]["tool"] == "grade"
    assert last.info["outcome"]["evidence"] == {"answer": answer, "judge": "simulated"}


@pytest.mark.parametrize(
    ("judge", "error", "billed"),
    [("raises", "ConnectionError: the judge is away", 0), ("refuses", "the judge is busy", 1), ("silent", "judged", 1)],
)
def test_a_judge_that_fails_makes_the_episode_failed(judge: str, error: str, billed: int) -> None:
    last = step(env_of("Judged", judge=judge, **FREE), "good")
    check_failed(last)
    assert error in last.info["failed"]["error"]
    assert sum(c["role"] == "judge" for c in last.info["charges"]) == billed


def test_a_judge_is_not_asked_once_the_cap_is_used_up() -> None:
    cap = SpendCap(1.0)
    env = env_of("Judged", spend_cap=cap, **FREE)
    cap.add(2 * NANO)
    last = step(env, "good")
    check_failed(last)
    assert "the spend cap was used up before the judge could be asked" in last.info["failed"]["error"]
    assert "judge" not in last.info["ledger"]["usd_by_role"]


def check_failed(last: Step) -> None:
    assert math.isnan(last.reward)
    assert (last.terminated, last.truncated, last.info["truncated_by"]) == (False, True, "failed")
    assert last.info["failed"].keys() == {"where", "error", "traceback"}
    assert last.info["outcome"] == {}


@pytest.mark.parametrize(
    ("way", "where", "error"),
    [
        ("raises", "breaks", "RuntimeError: the disk is on fire"),
        ("raises_later", "breaks", "RuntimeError: the connection is on fire"),
        ("unpriced", "breaks", "no price for 'no-such-item'"),
        ("eternal", "breaks", "ValueError: a result's seconds are a number from 0 up, got inf"),
        ("unlisted", "breaks", "TypeError: what a call used is a Usage, got 'gpt-5'"),
        ("exits", "breaks", "SystemExit: a command-line tool in disguise"),
        ("cancels", "breaks", "CancelledError"),
        ("panics", "breaks", "Panic: all is lost"),
        ("panics here", "breaks", "Panic: all is lost here"),
        ("cancels here", "breaks", "CancelledError"),
        ("mute", "breaks", "Mute: its str() raises RuntimeError"),
        ("absorb", "breaks", "a world's bug"),
    ],
)
def test_what_breaks_in_a_call_fails_the_episode_and_nothing_else(way: str, where: str, error: str) -> None:
    env = env_of("Broken", way=way, **FREE)
    assert not step(env, ADD).truncated
    last = step(env, BREAK)
    check_failed(last)
    assert last.info["failed"]["where"] == where
    assert error in last.info["failed"]["error"]
    assert last.info["ledger"]["usd"] > 0
    with pytest.raises(ResetNeeded):
        step(env, ADD)
    env.reset(seed=1)
    assert step(env, "done").reward == 1.0


def test_a_refusal_that_cannot_be_said_is_a_refusal() -> None:
    done = step(env_of("Broken", way="refuses mutely", **FREE), BREAK)
    assert done.info["new_messages"][-1]["content"] == "Error: its str() raises RuntimeError"
    assert not done.truncated


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("grade", "ZeroDivisionError: a grader's bug"),
        ("no grade", "TypeError: grade() gives an Outcome or a Tool, got NoneType"),
    ],
)
def test_a_grader_that_breaks_fails_the_episode(way: str, error: str) -> None:
    env = env_of("Broken", way=way, **FREE)
    assert not step(env, BREAK).truncated
    last = step(env, "done")
    check_failed(last)
    assert last.info["failed"]["where"] == "grade"
    assert last.info["failed"]["error"] == error
    assert "Traceback" in last.info["failed"]["traceback"]


def test_a_failure_beside_other_calls_keeps_their_bills() -> None:
    last = step(env_of("Broken", **FREE), ToolCall("add", {"a": 1, "b": 1}), ToolCall("breaks", {}))
    check_failed(last)
    assert [m["content"] for m in last.info["new_messages"][1:]] == ["2"]
