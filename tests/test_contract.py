"""The conformance test over every registered id and the tests' own sources; and that it notices what breaks a rule."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.sources import AdderSource, AnswerWorld, add, adder_script
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.types import Answer, Question, Rows, Transcript
from toolorchestra.envs.domains.source import Scene, Source, Task, TaskWorld
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.registration import ids, register
from toolorchestra.envs.testing import ConformanceError, check_environment
from toolorchestra.envs.testing.conformance_rules import RULES
from toolorchestra.envs.tools import Toolbox, tool

SECRETS = "nothing before the end says the answer"
OWN = ("Adder", "Sleeper", "Broken", "Judged", "Talker")


def own_id(name: str) -> str:
    """Registers a source of tests.sources, or of this file, under an id."""
    module = "tests.sources" if name in OWN else "tests.test_contract"
    register(f"Tests/{name}-v0", f"{module}:{name}Source")
    return f"Tests/{name}-v0"


EVERY_ID = [pytest.param(name, marks=needs_package if "Tau2" in name else ()) for name in ids()]


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_every_id_conforms(env_id: str) -> None:
    report = check_environment(env_id)
    assert report.env_id == env_id
    assert {*RULES} - {*report.rules} <= {SECRETS}
    assert report.steps > report.episodes >= 30


@pytest.mark.parametrize(
    "settings",
    [
        {"tools": "plain", "history": "state"},
        {"diversify": "train", "preference": "none", "style": "brief"},
        {"reward": {"usd": 1.0, "seconds": 0.01}},
        {"budget": 0.02, "max_context_tokens": 4000, "max_seconds": 60.0},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_every_setting_conforms(settings: dict[str, Any]) -> None:
    check_environment("ToolOrchestra/HLE-v0", abandoned=80, **settings)


@needs_package
@pytest.mark.parametrize(
    "settings",
    [
        {"domain": "all", "user": "scripted"},
        {"domain": "retail", "user": "scripted", "split": "test", "abandoned": 10_000},
        {"domain": "telecom", "user": "scripted", "split": "small"},
    ],
    ids=lambda settings: settings["domain"],
)
def test_every_domain_of_tau2_conforms(settings: dict[str, Any]) -> None:
    check_environment("ToolOrchestra/Tau2-v0", **{"abandoned": 160, **settings})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adder", {}),
        ("Sleeper", {"backend": "bed", "max_in_flight": 3}),
        ("Broken", {"way": "raises_later"}),
        ("Judged", {}),
        ("Talker", {"history": "state"}),
    ],
)
def test_sources_of_third_parties_conform(name: str, settings: dict[str, Any]) -> None:
    check_environment(own_id(name), abandoned=32, **settings)


def test_a_policy_of_ones_own_may_play() -> None:
    def scripted(episode: Episode) -> str:
        return adder_script()[episode.turn]

    report = check_environment(own_id("Adder"), policy=scripted, abandoned=16, episodes=1, seeds=[7])
    assert report.steps == 9 * report.episodes  # a reset and eight turns


def test_ten_thousand_abandoned_episodes_leave_nothing_behind() -> None:
    check_environment("ToolOrchestra/HLE-v0", seeds=(0,), episodes=1, abandoned=10_000)


def test_calls_in_flight_that_are_abandoned_leave_nothing_behind() -> None:
    def naps_long(episode: Episode) -> str:
        return "done" if episode.turn > 1 or episode.task_id.endswith("7") else LONG_NAP

    check_environment(own_id("Sleeper"), seeds=(0,), episodes=1, abandoned=160, policy=naps_long)


LONG_NAP = '<tool_call>{"name": "nap", "arguments": {"milliseconds": 30}}</tool_call>'


class SameTaskSource(AdderSource):
    """Has one task."""

    def draw(self, split: str, rng: random.Random) -> str:
        return f"{self.name}/{split}/0"


class LoudSource(AdderSource):
    """Says the answer in what is public of a task."""

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        scene = super().open(task_id, seed, sheet, tools)
        return scene._replace(world=_QuestionWorld(scene.world.toolbox), public={"hint": "forty-two"})


class _QuestionWorld(AnswerWorld):
    __slots__ = ("question",)

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__("What is it?", "forty-two", toolbox)
        self.question = Question("What is it?", Answer("forty-two"), "all", "knowledge", 1.0)


def told(number: int) -> Task:
    return Task(f"What is {number}?", f"answer {number}")


class HintSource(Source):
    """Says the answer of a Task in what is public of it."""

    tools = (add,)

    def tasks(self) -> Iterable[Task]:
        return map(told, range(100))

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        scene = super().open(task_id, seed, sheet, tools)
        return scene._replace(public={**scene.public, "hint": scene.world.task.answer})  # type: ignore[attr-defined]


class ToldSource(HintSource):
    """Says it in the system message. That all tasks have one which lists all answers is no breach."""

    listed = False

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        return Source.open(self, task_id, seed, sheet, tools)

    def world(self, task: Task, toolbox: Toolbox) -> World:
        said = ", ".join(str(one.answer) for one in self.tasks()) if self.listed else task.answer
        return TaskWorld(task, toolbox, f"The answer is one of: {said}.")


class ListedSource(ToldSource):
    listed = True


class _LooseMessage(dict[str, Any]):
    pass


class LooseSource(AdderSource):
    """Its messages can be changed."""

    def world(self, number: int, toolbox: Toolbox) -> World:
        return _LooseWorld(f"Task {number}", "28", toolbox)


class _LooseWorld(AnswerWorld):
    def opening(self) -> Transcript:
        return (_LooseMessage(role="user", content=self.request),)  # type: ignore[return-value]


class LeakySource(AdderSource):
    """Every episode starts a thread that nobody stops."""

    def world(self, number: int, toolbox: Toolbox) -> World:
        stopped = threading.Event()
        THREADS.append(stopped)
        threading.Thread(target=stopped.wait, daemon=True).start()
        return super().world(number, toolbox)


THREADS: list[threading.Event] = []


@tool
def remember(word: str) -> int:
    """Counts calls over all episodes: a tool with a memory."""
    MEMORY.append(word)
    return len(MEMORY)


MEMORY: list[str] = []


class MemorySource(AdderSource):
    """Its tool remembers earlier episodes."""

    tools = (remember,)


@pytest.mark.parametrize(
    ("name", "rule", "seen"),
    [
        ("SameTask", "different seeds", "20 seeds gave {'adder/train/0'} alone"),
        ("Memory", "the same seed gives", "'content'] was '"),
        ("Loud", "nothing before the end", "info says the expected answer: {'forty-two'}"),
        ("Hint", "nothing before the end", "info says the expected answer: {'answer "),
        ("Told", "nothing before the end", "the system message says the expected answer: {'answer "),
        ("Loose", "gymnasium's own check", "observation space"),
    ],
)
def test_a_broken_rule_is_named(name: str, rule: str, seen: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_environment(own_id(name), abandoned=16)
    assert f"Tests/{name}-v0 breaks the rule" in str(caught.value)
    assert rule in str(caught.value)
    assert seen in str(caught.value)


def test_a_rule_that_had_nothing_to_look_at_is_not_reported() -> None:
    few: dict[str, Any] = {"seeds": (0, 1), "episodes": 1, "abandoned": 0}
    assert SECRETS not in check_environment(own_id("Adder"), **few).rules
    assert SECRETS in check_environment(own_id("Listed"), **few).rules


class CheatingEnv(OrchestraEnv):
    """Bends one thing that the engine gets right."""

    cheat = ""

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.cheat == "takes anything" and self.episode and not self.episode.over and not isinstance(action, str):
            action = "hm"
        observation, reward, terminated, truncated, info = super().step(action)
        if self.cheat == "hidden fee":
            info["ledger"]["usd"] += 1e-9
        elif self.cheat == "no outcome":
            info.pop("outcome", None)
        elif self.cheat == "failure is 0":
            reward = 0.0 if math.isnan(reward) else reward
        elif self.cheat == "strict":
            truncated = truncated or not action.strip()
        elif self.cheat == "rewrites":
            observation = {**observation, "messages": Rows(observation["messages"][1:])}
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("cheat", "rule", "seen"),
    [
        ("takes anything", "non-str is refused", "step(None) did not raise TypeError"),
        ("hidden fee", "to the nano-dollar", "the ledger's dollars are"),
        ("no outcome", "the last step says", "lacks ['outcome']"),
        ("failure is 0", "its reward nan", "a reward of 0.0: it must be nan"),
        ("strict", "unusable actions", "the action '' ends the episode"),
        ("rewrites", "only grow", "the transcript is not the one before"),
    ],
)
def test_a_cheating_environment_is_caught(cheat: str, rule: str, seen: str) -> None:
    env_id = f"Tests/Cheat-{cheat.replace(' ', '-')}-v0"
    made = type("CheatingEnv", (CheatingEnv,), {"cheat": cheat})
    quiet = {"order_enforce": False, "disable_env_checker": True}
    gym.register(env_id, made, kwargs={"source": "tests.sources:AdderSource"}, **quiet)
    try:
        with pytest.raises(ConformanceError) as caught:
            check_environment(env_id, abandoned=16)
        assert rule in str(caught.value)
        assert seen in str(caught.value)
    finally:
        del gym.registry[env_id]


def test_leaked_threads_are_counted() -> None:
    try:
        with pytest.raises(ConformanceError, match=r"abandoned.*process holds threads: \d+ more"):
            check_environment(own_id("Leaky"), seeds=(0,), episodes=1, abandoned=16)
    finally:
        for stopped in THREADS:
            stopped.set()
