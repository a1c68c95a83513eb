"""A user that a model plays says in a field what it agrees to; its words are never read for that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.domains import library
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import evaluate
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.model_user import TRIES, read_reply
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTask
from toolorchestra.envs.domains.toolscale.user import SqlModelUser
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.models import ChatRequest, ScriptedModel

LIBRARY = str(library())
FINANCE = ready("finance").domain
TASK = next(t for t in FINANCE.tasks.values() if [r.intent for r in t.requests] == ["freeze_lost_card"])
YES = ("Absolutely.", "That works for me.", "Of course, go ahead.", "Let's do it.", "Fine by me.")
NO = ("Okay, hold on, don't do it yet.", "Ok, but not today.", "Correct, I don't want it.")


def reply(message: str, agrees_to: tuple[int, ...] = (), takes_back: tuple[int, ...] = ()) -> str:
    return json.dumps({"message": message, "agrees_to": agrees_to, "takes_back": takes_back})


def customer(request: ChatRequest, answer: str) -> str:
    """Says the answer to a question for confirmation, and leaves when all is settled."""
    heard: str = request.messages[-1]["content"]
    if "Do you confirm" in heard:
        return answer
    return reply("###STOP###" if "settled" in heard else "Here you are.")


def finance(user: SqlModelUser, task: SqlTask) -> OrchestraEnv:
    env = OrchestraEnv(ToolScaleSource("finance", user), preference="none")
    env.reset(options={"episode_seed": 3, "task_id": f"toolscale/finance/{task.task_id}"})
    return env


def played(answer: str, task: SqlTask = TASK) -> tuple[float, dict[str, Any]]:
    """The oracle's conversation with a customer that answers its question so."""
    user = SqlModelUser(ScriptedModel(lambda request: customer(request, answer)), "gpt-5-mini")
    env = finance(user, task)
    for move in moves(FINANCE, task):
        _, reward, terminated, truncated, info = env.step(move)
        if terminated or truncated:
            return reward, info
    raise AssertionError("the conversation did not end")


@pytest.mark.parametrize("words", YES)
def test_a_yes_counts_in_whatever_words(words: str) -> None:
    assert played(reply(words, (1,)))[0] == 1.0


@pytest.mark.parametrize("words", [*NO, "Yes, please."])
def test_without_the_field_no_words_are_a_yes(words: str) -> None:
    reward, info = played(reply(words))
    assert reward == 0.0
    assert info["outcome"]["evidence"]["broken"] == ("freeze_card came without the user's yes",)


def test_a_yes_that_is_taken_back_is_none() -> None:
    assert played(reply("Yes. No, wait.", (1,), (1,)))[0] == 1.0  # the yes of the same message stands
    said = iter([reply("Yes.", (1,)), reply("Stop, I want to think about it.", (), (1,))])
    user = SqlModelUser(ScriptedModel(lambda r: next(said) if "Do you confirm" in r.messages[-1]["content"]
                                      else customer(r, "")), "gpt-5-mini")  # fmt: skip
    env, reward = finance(user, TASK), 1.0
    for move in moves(FINANCE, TASK):
        for _ in range(1 + ("Do you confirm" in move)):
            _, reward, *_ = env.step(move)
    assert reward == 0.0


@pytest.mark.parametrize(
    "text",
    ["Yes.", "", "{}", reply("Yes.", (99,)), reply(" ", (1,)), '{"message": "Yes."}', "[" * 9999, '{"message": 1'],
)
def test_what_is_not_of_the_form_is_asked_for_again_and_then_fails(text: str) -> None:
    assert read_reply(text, 1) is None
    asked: list[ChatRequest] = []

    def late(request: ChatRequest) -> str:
        asked.append(request)
        return reply("My name is Ada.") if len(asked) == TRIES else text

    env = OrchestraEnv(ToolScaleSource(LIBRARY, SqlModelUser(ScriptedModel(late), "gpt-5-mini")), preference="none")
    env.reset(seed=1)
    assert env.step("Who are you?")[4]["new_messages"][-1]["content"] == "My name is Ada."
    assert len({request.attempt for request in asked}) == TRIES
    assert "could not be read" in asked[1].messages[-1]["content"]
    asked.clear()
    late_too = SqlModelUser(ScriptedModel(lambda _: text), "gpt-5-mini")
    env = OrchestraEnv(ToolScaleSource(LIBRARY, late_too), preference="none")
    env.reset(seed=1)
    assert f"in {TRIES} tries" in env.step("Who are you?")[4]["failed"]["error"]


def test_a_reply_may_stand_in_other_text() -> None:
    found = read_reply(f"```json\n{reply('Both, please.', (1, 2))}\n```", 2)
    assert found is not None
    assert (found.text, found.agrees_to) == ("Both, please.", {0, 1})


def answers(asked: ReceivedRequest) -> ServerReply:
    """A server of the model that plays the customer, and of the one that serves it."""
    system = asked.json["messages"][0]["content"]
    if "You play a customer" in system:
        return ServerReply(reply("Bye. ###STOP###"))
    return ServerReply("Hello, who are you?")


def backends(tmp_path: Path, server: Loopback) -> str:
    file = tmp_path / "endpoints.toml"
    price = "price = {usd_per_mtok = {input = 1.0, output = 1000.0, cached = 0.0}}"
    file.write_text(
        f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\nretries = 0\n{price}\n', encoding="utf-8"
    )
    return str(file)


def test_a_named_model_plays_the_user_and_is_billed_by_the_files_price(tmp_path: Path) -> None:
    with Loopback(answers) as server:
        env = gym.make(
            "ToolOrchestra/ToolScale-v0", domain=LIBRARY, user="my-user", backends=backends(tmp_path, server)
        )
        env.reset(seed=1)
        _, _, terminated, _, info = env.step("Hello, who are you?")
    assert terminated
    assert [asked.json["model"] for asked in server.seen] == ["my-user"]
    assert info["ledger"]["usd_by_role"]["user"] > 0.001


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"user": "my-user"},
            "no user 'my-user'; valid: scripted. Or name the model that plays it, with backends=FILE",
        ),
        ({"user": 5}, "no user 5"),
        ({"user": "my-user", "backends": "FILE", "call_expert": False}, "no model 'my-user'"),
    ],
)
def test_a_name_that_nobody_serves_is_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('[endpoints.here]\nbase_url = "http://127.0.0.1:9/v1"\n[models.other]\n', encoding="utf-8")
    if "backends" in given:
        given = {**given, "backends": str(file)}
    with pytest.raises(ConfigError, match=says):
        ToolScaleSource(LIBRARY, **given)


def test_evaluate_plays_it_by_an_endpoint(tmp_path: Path) -> None:
    with Loopback(answers) as server:
        words = ["--env", "ToolScale-v0", f"domain={LIBRARY}", "user=my-user", "--tasks", "2"]
        assert evaluate.main([*words, "--backends", backends(tmp_path, server)]) == 0
        assert {asked.json["model"] for asked in server.seen} == {"my-user", "qwen3-8b"}
