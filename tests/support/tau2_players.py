"""Players of τ²-Bench for proofs and timings: the reference path, nothing, a transfer, a recorded run. They know the
tasks, so they are no policies; what they do they do as an agent does, by text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any, NamedTuple

from tests.tau2_playing import SOURCE, plan_of
from toolorchestra.envs.base.actions import MAX_CALLS, render, render_call
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.domain import steady
from toolorchestra.envs.domains.tau2.source import RECORDED, Tau2Source
from toolorchestra.envs.domains.tau2.task import Done, Tau2Task
from toolorchestra.envs.domains.tau2.world import Recording, recorded_calls
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
    return {task_id: plan_of(source, task_id) for task_id in source.ids(split)}


def play(env: OrchestraEnv, task_id: str, texts: list[str], seed: int = 0) -> Step:
    """Play an episode to its end; texts that come after it are left unsaid, missing ones are an empty message each."""
    env.reset(seed=seed, options={"task_id": task_id})
    for text in chain(texts, repeat("")):
        last = Step(*env.step(text))
        if last.terminated or last.truncated:
            return last
    raise AssertionError("an episode ends")


class Replayed(NamedTuple):
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
    world: Any = env.episode and env.episode.world
    made = [entry.content for entry in world.log if isinstance(entry, Done)]
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


MOST_TURNS = 1000


def made(user: str, *, corrected: bool = False, **settings: Any) -> tuple[OrchestraEnv, Tau2Source]:
    """An environment with its source."""
    env = OrchestraEnv(SOURCE, user=user, corrected=corrected, preference="none", max_turns=MOST_TURNS, **settings)
    assert isinstance(env.factory.source, Tau2Source)
    return env, env.factory.source


def winners(env: OrchestraEnv, player: str, *, solo: bool) -> list[str]:
    """The benchmark's ids of the tasks of an environment that a player solves."""
    source: Any = env.factory.source
    tasks = plans(source, env.factory.settings.split)
    return [p.task_id for i, p in tasks.items() if play(env, i, PLAYERS[player](p, solo=solo)).reward == 1.0]


def replay_all(recordings: str, *, corrected: bool = False) -> list[Replayed]:
    """Replay every run of a file."""
    env, source = made("replay", corrected=corrected, domain="all", split=RECORDED, recordings=recordings)
    return [replay(env, source, task_id) for task_id in source.ids(RECORDED)]
