"""Episodes whose first words are a model's; limits of a world's own; and text beside calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.sources import MESSAGE, NOTHING, NumberedSource, add
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ResetNeeded, ToolError
from toolorchestra.envs.base.types import Message, Outcome, Transcript
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Step
from toolorchestra.envs.factory import factory
from toolorchestra.envs.money.prices import USER, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates, begin
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.vector import OrchestraVectorEnv

BILL = Usage("gpt-5-mini", USER, Tokens(input=100, output=10), seconds=3.0)


async def _speak_first(context: ToolContext) -> ToolResult:
    world: CallerWorld = context.world
    await asyncio.sleep(0.001)
    if world.way == "outage":
        raise ConnectionError("the line is dead")
    if world.way == "refusal":
        raise ToolError("not today", (BILL,))
    world.said = f"Hello from {world.number}."
    return ToolResult(world.said, (BILL,))


def _hear(context: ToolContext, text: str) -> ToolResult:
    return ToolResult(f"heard {text!r}", final=text == "enough")


_LISTENS = Tool("message", "A caller.", MESSAGE, _hear, bills=("gpt-5-mini",))
_SPEAKS = Tool("opening", "The caller speaks.", NOTHING, _speak_first, bills=("gpt-5-mini",))


def _aside(context: ToolContext) -> str:
    return f"aside: {context.aside!r}"


class CallerWorld(World):
    """A caller who speaks first. Hearing "enough" ends it: cut off by the world's own limit, or not."""

    __slots__ = ("number", "said", "toolbox", "way")
    listener = _LISTENS

    def __init__(self, number: int, toolbox: Toolbox, way: str) -> None:
        self.number, self.toolbox, self.way = number, toolbox, way
        self.said = ""

    def opening(self) -> Transcript | Tool:
        return (Message(role="user", content=self.said),) if self.said else _SPEAKS

    def grade(self, *, finished: bool) -> Outcome:
        del finished
        return Outcome(0.5, {}, truncated_by="patience" if self.way == "impatient" else "")


class CallerSource(NumberedSource):
    name = "caller"
    tools = (add, Tool("look", "Shows the aside.", NOTHING, _aside))

    def __init__(self, way: str = "") -> None:
        self.way = way

    def world(self, number: int, toolbox: Toolbox) -> World:
        return CallerWorld(number, toolbox, self.way)


def made(way: str = "", **settings: Any) -> OrchestraEnv:
    env = OrchestraEnv("tests.envs.test_opening:CallerSource", way=way, preference="none", **settings)
    env.reset(seed=1, options={"task_id": "caller/train/7"})
    return env


def contents(messages: Sequence[Message]) -> list[str]:
    return [m["content"] for m in messages]


def test_the_first_words_are_in_the_first_observation_and_on_the_first_bill() -> None:
    env = made()
    observation, info = env.reset(seed=1, options={"task_id": "caller/train/7"})
    assert contents(observation["messages"])[1:] == ["Hello from 7."]
    assert "charges" not in info
    *_, info = env.step("hello")
    assert [c["role"] for c in info["charges"]] == ["user", "orchestrator"]
    assert info["cost"]["seconds"] == info["ledger"]["seconds"] == 3.0
    *_, info = env.step("hello")
    assert [c["role"] for c in info["charges"]] == ["orchestrator"]


@pytest.mark.parametrize("way", ["outage", "refusal"])
def test_an_outage_at_the_opening_fails_the_first_step_and_runs_nothing(way: str) -> None:
    env = made(way)
    _, reward, terminated, truncated, info = env.step(render_call("add", {"a": 1, "b": 2}))
    assert math.isnan(reward)
    assert (terminated, truncated, info["truncated_by"], info["calls"]) == (False, True, "failed", {})
    assert "the line is dead" in info["failed"]["error"] or "not today" in info["failed"]["error"]


def test_an_opening_is_not_paid_for_once_the_cap_is_used_up() -> None:
    cap = SpendCap(1e-4)
    made_factory = factory("tests.envs.test_opening:CallerSource", preference="none", spend_cap=cap)
    cap.add(100_000)
    episode = made_factory.start(5).episode
    assert not episode.opening
    assert episode.act(render_call("add", {"a": 1, "b": 2})).calls == ()
    last = episode.resolve(())
    assert isinstance(last, Step)
    assert math.isnan(last.reward)
    assert "spend cap was used up before the episode could be opened" in last.info["failed"]["error"]
    assert [*last.info["ledger"]["usd_by_role"]] == ["orchestrator"]


def test_openings_of_a_vector_run_together_also_after_an_end() -> None:
    env = OrchestraVectorEnv(3, "tests.envs.test_opening:CallerSource", preference="none")
    observations, _ = env.reset(seed=5)
    assert all(o["messages"][-1]["content"].startswith("Hello from") for o in observations)
    env.step(["enough"] * 3)
    observations, *_ = env.step(["ignored"] * 3)
    assert all(len(o["messages"]) == 2 for o in observations)


def test_the_asyncio_driver_begins_what_has_to_be_begun() -> None:
    async def first() -> str:
        episode = factory("tests.envs.test_opening:CallerSource").start(1, {"task_id": "caller/train/9"}).episode
        with pytest.raises(ResetNeeded, match=r"that is opening; run its opening, see begin\(\), first"):
            episode.act("hello")
        observation = await begin(episode, Gates())
        assert await begin(episode, Gates()) == observation
        return str(observation["messages"][-1]["content"])

    assert asyncio.run(first()) == "Hello from 9."


def test_a_limit_of_the_worlds_own_is_a_truncation_by_its_name() -> None:
    _, reward, terminated, truncated, info = made("impatient").step("enough")
    assert (reward, terminated, truncated, info["truncated_by"]) == (0.5, False, True, "patience")
    _, reward, terminated, truncated, info = made().step("enough")
    assert (reward, terminated, truncated, info["truncated_by"]) == (0.5, True, False, "")


def test_text_beside_calls_is_known_to_the_world_for_that_turn_alone() -> None:
    env = made()
    look = render_call("look", {})
    assert env.step(f"psst {look}")[4]["new_messages"][-1]["content"] == "aside: 'psst'"
    assert env.step(look)[4]["new_messages"][-1]["content"] == "aside: ''"
