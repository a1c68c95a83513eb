"""Tau2-v0's user behind a real server on loopback: it speaks, is billed, and fails the episode when it breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation import played_episodes
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.support.tau2_players import gold, play
from tests.tau2_playing import SOURCE, needs_package
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.conversation_log import Done, Entry, Said
from toolorchestra.envs.domains.tau2.domain import load_domain
from toolorchestra.envs.domains.tau2.prompts import user_message
from toolorchestra.envs.domains.tau2.scripted_user import Tau2ScriptedUser
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.task import GoldAction, Tau2Task
from toolorchestra.envs.domains.tau2.users import understood
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.wire import text_of
from toolorchestra.envs.money.prices import ORCHESTRATOR, USER, Tokens, Usage
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

pytest.importorskip("openai", reason='needs pip install ".[models]"')
from toolorchestra.envs.models.openai import OpenAiModels

pytestmark = needs_package
ITEM = "gpt-5-mini"


def played(server: Loopback) -> tuple[str, Step]:
    """The user's first words, and the step in which the agent says goodbye."""
    row = {"deadline_seconds": 2.0, "patience_seconds": 4.0, "retries": 1}
    ends = {"endpoints": {"here": {"base_url": server.base_url}}, "models": {"*": row}}
    models = OpenAiModels(Endpoints.read(ends, "test"), seed=0)
    settings: dict[str, Any] = {"domain": "retail", "split": "test", "user": (models, ITEM), "preference": "none"}

    async def talk() -> tuple[str, Step]:
        try:
            episode = factory(SOURCE, **settings).start(3).episode
            observation = await begin(episode, Gates())
            first = str(observation["messages"][-1]["content"])
            return first, await advance(episode, "Is there anything else?", Gates())
        finally:
            await models.aclose()

    return asyncio.run(talk())


def test_a_served_user_opens_leaves_and_is_billed_as_the_user() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}

    def customer(asked: ReceivedRequest) -> ServerReply:
        del asked
        return ServerReply("###STOP###" if len(server.seen) > 1 else "I want to return a lamp.", usage=usage)

    with Loopback(customer) as server:
        first, step = played(server)
    assert first == "I want to return a lamp."
    assert step.terminated
    assert step.info["outcome"]["evidence"]["termination"] == "user_stop"
    assert len(server.seen) == 2
    bought = [c for c in step.info["charges"] if c["role"] == "user"]
    assert [(c["tokens"]["input"], c["tokens"]["output"]) for c in bought] == [(1000, 10)] * 2


def test_a_served_user_that_breaks_fails_the_episode() -> None:
    with Loopback(lambda asked: ServerReply("oops", 500)) as server:
        _, step = played(server)
    assert step.reward != step.reward  # nan: no evidence of anything
    assert step.info["failed"]


# -- a user that calls its tools natively, named in a backends file ----------------------------------------------------

APART = 100_000
"""How far the episodes' seeds lie apart. The stand-in tells requests apart by them: scenarios may be equal."""


def gold_of(plan: Tau2Task) -> Sequence[GoldAction]:
    """The calls of a reference path."""
    return (plan.criteria and plan.criteria.actions) or ()


def native(text: str) -> ServerReply:
    """A move in the grammar as a server with tool calls of its own sends it."""
    move = parse(text)
    calls = tuple({"name": call.name, "arguments": json.dumps(call.arguments)} for call in move.calls)
    return ServerReply(None if calls else text, calls=calls)


class StandIn:
    """Plays the scripted users of some tasks by native calls, and agents that know the reference paths. Counts."""

    def __init__(self, source: Tau2Source, task_ids: Sequence[str]) -> None:
        self.domain = load_domain("telecom", source.release, False)
        self.plans = [source.plan(task_id) for task_id in task_ids]
        self.users = [Tau2ScriptedUser(self.domain, plan) for plan in self.plans]
        self.usages: list[Usage] = []
        self.wrong: list[str] = []

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        model, messages = asked.json["model"], asked.json["messages"]
        case = asked.json["seed"] // APART
        reply = self.customer(case, messages) if model == ITEM else self.agent(case, messages)
        if "tools" not in asked.json or (model == ITEM and asked.json.get("temperature") != 0.0):
            self.wrong.append(model)
        used = Tokens(len(asked.text) // 3, len(asked.text) // 7, len(self.usages) % 89 + 1, 0)
        self.usages.append(Usage(model, USER if model == ITEM else ORCHESTRATOR, used))
        counted = {"prompt_tokens": used.input + used.cached, "completion_tokens": used.output}
        return replace(reply, seconds=0.002, usage={**counted, "prompt_tokens_details": {"cached_tokens": used.cached}})

    def customer(self, case: int, messages: Sequence[Mapping[str, Any]]) -> ServerReply:
        if messages[0]["content"] != user_message(self.domain, self.plans[case]):
            self.wrong.append("another task's scenario")
        log: list[Entry] = [Said("assistant", str(messages[-1]["content"]))]
        if messages[-1]["role"] == "tool":
            given = next(m["tool_calls"] for m in reversed(messages) if m["role"] == "assistant")
            log = [
                Done("user", ToolCall(call["function"]["name"], {}), message["content"], False)
                for call, message in zip(given, messages[-len(given) :], strict=True)
            ]
        try:
            self.users[case].reply(log, 0).send(None)
            raise AssertionError("a scripted user does not wait")
        except StopIteration as done:
            reply = done.value
        return native("".join(render_call(*call) for call in reply.calls) or reply.text)

    def agent(self, case: int, messages: Sequence[Mapping[str, Any]]) -> ServerReply:
        said = sum(message["role"] == "assistant" for message in messages) - 1  # without the greeting
        return native(gold(self.plans[case], solo=False)[said])


ENDPOINTS = """
[endpoints.here]
base_url = "{}"
in_flight = 64

[models.gpt-5-mini]
seeded = true
retries = 0

[models.qwen3-8b]
seeded = true
retries = 0
native_tools = true
"""


async def all_at_once(made: EpisodeFactory, task_ids: Sequence[str]) -> list[played_episodes.PlayedEpisode]:
    """Each task, played by the environment's orchestrator model."""
    policy, gates = played_episodes.policy("chat", made), Gates()
    runs = [
        played_episodes.play(made, policy, number * APART, gates, {"task_id": task_id})
        for number, task_id in enumerate(task_ids)
    ]
    played = await asyncio.gather(*runs)
    assert isinstance(made.source, Tau2Source)
    assert made.source.backing is not None
    await made.source.backing.aclose()
    return played


def test_20_episodes_at_once_with_a_native_user_are_the_scripted_users_and_billed_to_the_nano_dollar(
    tmp_path: Path,
) -> None:
    scripted = OrchestraEnv(SOURCE, domain="telecom", split="test", user="scripted", preference="none", max_turns=100)
    source = scripted.factory.source
    assert isinstance(source, Tau2Source)
    chosen = [i for i in source.ids("test") if any(a.side == "user" for a in gold_of(source.plan(i)))][:20]
    rewards = [play(scripted, task_id, gold(source.plan(task_id), solo=False)).reward for task_id in chosen]
    stand_in = StandIn(source, chosen)
    with Loopback(stand_in) as server:
        file = tmp_path / "endpoints.toml"
        file.write_text(ENDPOINTS.format(server.base_url), encoding="utf-8")
        made = gym.make(
            "ToolOrchestra/Tau2-v0", domain="telecom", split="test", user=ITEM, backends=str(file),
            preference="none",
        ).unwrapped  # fmt: skip
        assert isinstance(made, OrchestraEnv)
        assert made.factory.settings.max_turns == 100
        played = asyncio.run(all_at_once(made.factory, chosen))
        assert server.most_in_flight > 1
    assert stand_in.wrong == []
    assert [one.failure for one in played] == [""] * 20
    assert [one.record.right for one in played] == rewards == [1.0] * 20
    calls = sum(isinstance(m.get("tool_calls"), list) for one in server.seen for m in one.json["messages"])
    assert calls > 100
    sheet = made.factory.sheet
    own = sum(sheet.charge(usage).nano_usd for usage in stand_in.usages)
    assert sum(one.nano_usd for one in played) == own
    for role in (USER, ORCHESTRATOR):
        counted = sum(sheet.charge(usage).nano_usd for usage in stand_in.usages if usage.role == role)
        assert sum(one.nano_usd_by_role.get(role, 0) for one in played) == counted > 0


@pytest.mark.parametrize("asked_natively", [True, False])
def test_a_native_call_of_the_users_is_heard_however_the_tools_were_offered(asked_natively: bool) -> None:
    call = {"function": {"name": "check_status_bar", "arguments": "{}"}}
    request = ChatRequest("m", "user", (), native_tools=asked_natively)
    reply = {"choices": [{"message": {"content": "<think>hm</think>Let me see.", "tool_calls": [call]}}]}
    move = parse(text_of(reply, request))
    assert (move.thought, move.said, move.calls) == ("", "Let me see.", (ToolCall("check_status_bar", {}),))


def test_a_call_that_a_native_user_quotes_is_words_and_one_in_text_mode_is_a_call() -> None:
    reply = {"choices": [{"message": {"content": f"I read {render_call('toggle_data', {})}"}}]}
    request = ChatRequest("m", "user", ())
    assert understood(text_of(reply, request, native=True)).calls == ()
    assert "I read < tool_call>" in understood(text_of(reply, request, native=True)).text
    assert understood(text_of(reply, request)).calls == (ToolCall("toggle_data", {}),)


def test_a_native_call_that_cannot_be_read_is_asked_for_again_and_never_told_to_the_agent() -> None:
    broken = ServerReply(None, calls=({"name": "check_status_bar", "arguments": "{"},))
    with Loopback(lambda asked: broken if len(server.seen) < 3 else ServerReply("Hello. ###STOP###")) as server:
        first, step = played(server)
    assert first.startswith("<instructions>")  # the system message is the last: the customer said nothing
    assert len(server.seen) == 2  # asked again once, as the file says
    assert "native call cannot be read" in step.info["failed"]["error"]
