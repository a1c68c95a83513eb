"""Players of τ²-Bench for proofs and timings: the reference path, nothing, a transfer, a recorded run. They know the
tasks, so they are no policies; what they do they do as an agent does, by text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import MAX_CALLS, render, render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.domain import steady
from toolorchestra.envs.domains.tau2.source import RECORDED, Tau2Source
from toolorchestra.envs.domains.tau2.task import Done, Tau2Task
from toolorchestra.envs.domains.tau2.world import Recording, Tau2World, recorded_calls
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Step

FAREWELL = "Is there anything else I can do for you?"
TRANSFERRED = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
DONE = render_call("done", {})
_TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


def request(call: ToolCall) -> str:
    """What an agent says to have the user make a call."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"Please run {call.name}({arguments}) on your phone."


def gold(plan: Tau2Task, *, solo: bool) -> list[str]:
    """The reference path as texts: own calls, requests to the user, what must be communicated, and the farewell."""
    criteria = plan.criteria
    texts = []
    for action in (criteria and criteria.actions) or ():
        asks = action.side == "user" and not solo
        texts.append(request(action.call) if asks else render_call(*action.call))
    if solo:
        return [*texts, DONE]
    if criteria and criteria.communicate:
        texts.append("For your information: " + "; ".join(criteria.communicate))
    return [*texts, FAREWELL]


def idle(plan: Tau2Task, *, solo: bool) -> list[str]:
    """A player that does nothing: its only text ends the episode."""
    del plan
    return [DONE if solo else FAREWELL]


def transfer(plan: Tau2Task, *, solo: bool) -> list[str]:
    """Hand the user over at once."""
    del plan
    call = render_call("transfer_to_human_agents", {"summary": "The user needs help."})
    return [call, DONE if solo else TRANSFERRED]


PLAYERS = {"gold": gold, "nothing": idle, "transfer": transfer}


def plans(source: Tau2Source, split: str) -> Mapping[str, Tau2Task]:
    """The tasks of a split, by their ids in the environment."""
    return {task_id: source.plan(task_id) for task_id in source.ids(split)}


def play(env: OrchestraEnv, task_id: str, texts: list[str], seed: int = 0) -> Step:
    """Play an episode to its end; texts that come after it are left unsaid, missing ones are an empty message each."""
    env.reset(seed=seed, options={"task_id": task_id})
    last: Step | None = None
    for text in _endless(texts):
        last = Step(*env.step(text))
        if last.terminated or last.truncated:
            break
    if last is None:
        raise ConfigError("an episode has at least one step")
    return last


def _endless(texts: list[str]) -> Iterator[str]:
    yield from texts
    while True:
        yield ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded run, played again."""

    run: Recording
    reward: float
    parts: Mapping[str, float]
    outputs: int
    """Outputs of tools that were recorded."""
    outputs_equal: int

    @property
    def agrees(self) -> bool:
        """Whether the reward is the recorded one, and so is every part that was recorded."""
        return self.reward == self.run.reward and all(self.parts.get(k) == v for k, v in (self.run.parts or {}).items())


def recorded_texts(run: Recording) -> list[str]:
    """The agent's messages of a run as actions, without the fixed greeting."""
    texts = []
    for number, message in enumerate(run.messages):
        if message["role"] != "assistant" or (number == 0 and not run.solo and not message.get("tool_calls")):
            continue
        said = _tagless(message.get("content") or "")
        calls = recorded_calls(message)
        stops = run.solo and not calls and "###STOP###" in said
        if len(calls) > MAX_CALLS:
            texts += [render(calls[k : k + MAX_CALLS]) for k in range(0, len(calls), MAX_CALLS)]
        else:
            texts.append(DONE if stops else render(calls, said))
    return texts


def _tagless(text: str) -> str:
    """A recorded text may quote the grammar's tags, which would then be read as actions."""
    for tag in _TAGS:
        text = text.replace(tag, tag.replace("<", "‹").replace(">", "›"))
    return text


def replay(env: OrchestraEnv, source: Tau2Source, task_id: str) -> Replayed:
    """Play a recorded run again, its user's turns too."""
    run = source.recording(task_id)
    last = play(env, task_id, recorded_texts(run))
    if env.episode is None or not isinstance(env.episode.world, Tau2World):
        raise ConfigError("replay() needs an environment of Tau2-v0")
    made = [entry.content for entry in env.episode.world.log if isinstance(entry, Done)]
    recorded = [message["content"] for message in run.messages if message["role"] == "tool"]
    equal = sum(_same(a, b) for a, b in zip(made, recorded, strict=False))
    outcome: Mapping[str, Any] = last.info["outcome"] or {"evidence": {"parts": {}}}
    return Replayed(run, last.reward, outcome["evidence"]["parts"], len(recorded), equal)


def _same(made: str, recorded: str) -> bool:
    """Whether two outputs say the same, whatever pydantic's version, which it prints into its errors."""
    recorded = steady(recorded)
    try:
        return bool(json.loads(made) == json.loads(recorded))
    except ValueError:
        return made == recorded


SOURCE = "toolorchestra.envs.domains.tau2.source:Tau2Source"
MOST_TURNS = 1000


class Case(NamedTuple):
    """A set of tasks under a kind of user."""

    domain: str
    split: str
    user: str


class Solved(NamedTuple):
    """How many tasks there are, and how many of them each player solves."""

    tasks: int
    gold: int
    nothing: int
    transfer: int


EXPECTED: Mapping[Case, Solved] = {
    Case("airline", "base", "scripted"): Solved(50, 50, 19, 19),
    Case("retail", "base", "scripted"): Solved(114, 114, 7, 7),
    Case("telecom", "base", "scripted"): Solved(114, 114, 0, 20),
    Case("telecom", "full", "scripted"): Solved(2285, 2285, 0, 32),
    Case("telecom-workflow", "base", "scripted"): Solved(114, 114, 0, 20),
    Case("telecom", "base", "none"): Solved(114, 114, 0, 20),
    Case("telecom", "full", "none"): Solved(2285, 2285, 0, 32),
    Case("mock", "base", "scripted"): Solved(9, 8, 1, 2),
    Case("mock", "base", "none"): Solved(6, 6, 1, 2),
}


def made(user: str, *, corrected: bool = False, **settings: Any) -> tuple[OrchestraEnv, Tau2Source]:
    """An environment with its source."""
    env = OrchestraEnv(SOURCE, user=user, corrected=corrected, preference="none", max_turns=MOST_TURNS, **settings)
    source = env.factory.source
    if not isinstance(source, Tau2Source):
        raise ConfigError(f"{SOURCE} made a {type(source).__name__}")
    return env, source


def winners(case: Case, player: str, *, corrected: bool = False) -> list[str]:
    """The benchmark's ids of the tasks that a player solves."""
    env, source = made(case.user, corrected=corrected, domain=case.domain, split=case.split)
    act = PLAYERS[player]
    tasks = plans(source, case.split)
    return [
        plan.task_id
        for task_id, plan in tasks.items()
        if play(env, task_id, act(plan, solo=case.user == "none")).reward == 1.0
    ]


def count(case: Case, *, corrected: bool = False) -> Solved:
    """Counts the tasks of a case, and how many of them each player solves."""
    _, source = made(case.user, domain=case.domain, split=case.split)
    return Solved(len(source.ids(case.split)), *(len(winners(case, player, corrected=corrected)) for player in PLAYERS))


@dataclass(frozen=True, slots=True)
class ReplayResults:
    """What came of recorded runs that were played again."""

    runs: Sequence[Replayed]

    @property
    def complete(self) -> bool:
        """Whether every reward came back, and every part of it that was recorded."""
        return bool(self.runs) and all(run.agrees for run in self.runs)

    def __str__(self) -> str:
        recorded = Counter(part for run in self.runs for part in run.run.parts or ())
        agreed = Counter(
            part for run in self.runs for part, value in (run.run.parts or {}).items() if run.parts.get(part) == value
        )
        lines = [
            f"{sum(run.reward == run.run.reward for run in self.runs)}/{len(self.runs)} rewards",
            *(f"{part} {agreed[part]}/{number}" for part, number in sorted(recorded.items())),
            f"{sum(run.outputs_equal for run in self.runs)}/{sum(run.outputs for run in self.runs)} tool outputs",
        ]
        return ", ".join(lines)


def replay_all(recordings: str, *, corrected: bool = False) -> ReplayResults:
    """Replay every run of a file."""
    env, source = made(
        "replay",
        corrected=corrected,
        domain="all",
        split=RECORDED,
        recordings=recordings,
    )
    return ReplayResults([replay(env, source, task_id) for task_id in source.ids(RECORDED)])
