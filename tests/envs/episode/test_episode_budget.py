"""A budget binds: what ends above it is not solved, the agent sees what is left, and what a call costs at least."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.envs.episode.test_limits import spend, spender
from tests.playing import FREE, env_of, step
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.money.prices import NANO, PriceSheet

OWN = {"tavily/search": {"usd_per_unit": 0.01}, "qwen3-8b": {"free": "ours"}}
SHEET = PriceSheet.read({"id": "own", "date": "2026-01-01", "source": "made up", "prices": OWN}, "own")


def costliest_at_once(budget: float | None, tasks: int = 12) -> list[dict[str, Any]]:
    env = gym.make("ToolOrchestra/HLE-v0", preference="none", budget=budget)
    ends = []
    for seed in range(tasks):
        env.reset(seed=seed)
        _, reward, terminated, _, info = env.step(render_call("answer", {"model": "answer-1"}))
        assert reward == info["outcome"]["value"]
        ends.append({**info, "reward": reward, "terminated": terminated})
    return ends


def test_an_answer_above_the_budget_does_not_solve_the_task() -> None:
    strict, free = costliest_at_once(0.001), costliest_at_once(None)
    for end in strict:
        over = round(end["ledger"]["usd"] * NANO) - 1_000_000
        assert over > 0
        assert round(end["over_budget_usd"] * NANO) == over
        assert round(end["budget_left_usd"] * NANO) == -over
        assert (end["reward"], end["terminated"]) == (0.0, True)
    before = [end["outcome"]["evidence"]["value_without_budget"] for end in strict]
    assert before == [end["reward"] for end in free]
    assert sum(before) > 0


def test_what_costs_the_budget_to_the_last_cent_is_solved() -> None:
    env = spender(budget=0.05, prices=SHEET, preference="none")
    env.reset(seed=0)
    step(env, spend(5))
    env.reset(seed=0)
    assert not step(env, spend(4)).truncated
    last = step(env, "done")
    assert (last.reward, last.info["over_budget_usd"], last.info["budget_left_usd"]) == (1.0, 0.0, 0.01)


@pytest.mark.parametrize("source", ["Talker", "Judged"])
def test_users_and_judges_are_not_paid_from_the_budget(source: str) -> None:
    free = step_to_end(env_of(source, **FREE))
    own = free["ledger"]["usd_by_role"]["orchestrator"]
    assert free["ledger"]["usd"] > own
    env = env_of(source, budget=own * 1.5, **FREE)
    end = step_to_end(env)
    assert (end["over_budget_usd"], end["truncated_by"]) == (0.0, "")


def step_to_end(env: Any) -> dict[str, Any]:
    info: dict[str, Any] = {}
    while not env.episode.over:
        info = step(env, "done").info
    return info


def test_the_agent_reads_what_is_left_and_what_a_call_costs_at_least() -> None:
    env = gym.make("ToolOrchestra/FRAMES-v0", preference="none", budget=0.5)
    observation, info = env.reset(seed=3)
    system = observation["messages"][0]["content"]
    assert "Budget: $0.5. An episode that costs more is not solved. A call costs at least: search-1 $0." in system
    assert info["budget"] == 0.5
    assert set(info["least_usd"]) > {"search-1", "answer-1"}
    observation, *_, info = env.step(render_call("search", {"model": "search-3"}))
    told = re.search(r"\n\[Budget left: \$([0-9.]+)\]$", observation["messages"][-1]["content"])
    assert told is not None
    left = 500_000_000 - round(info["ledger"]["usd"] * NANO)
    assert round(float(told[1]) * NANO) == left
    assert round(info["budget_left_usd"] * NANO) == left


def test_with_state_history_the_latest_message_says_what_is_left() -> None:
    env = gym.make("ToolOrchestra/HLE-v0", preference="none", budget=0.5, history="state")
    env.reset(seed=3)
    for _ in range(2):
        observation, *_, info = env.step(render_call("search", {"model": "search-3"}))
        shown = [m["content"].count("[Budget left") for m in observation["messages"]]
        assert shown == [0] * (len(shown) - 1) + [1]
        assert f"${info['budget_left_usd']:.9f}".rstrip("0") in observation["messages"][-1]["content"]


CALLS = {"HLE-v0": {"tools": "paper"}, "FRAMES-v0": {"tools": "plain"}, "ToolScale-v0": {}}


@pytest.mark.parametrize("env_id", CALLS)
def test_no_call_costs_less_than_is_told(env_id: str) -> None:
    told = 0
    for seed in range(2):
        env: Any = gym.make(f"ToolOrchestra/{env_id}", preference="none", budget=100.0, **CALLS[env_id]).unwrapped
        _, info = env.reset(seed=seed)
        for tool in env.episode.world.toolbox:
            for key in tool.keys:
                if key not in info["least_usd"]:
                    continue
                env.reset(seed=seed)
                given = {tool.keyed_by: key} if tool.keyed_by else {}
                given |= {name: "x" for name in tool.parameters["required"] if name not in given}
                *_, stepped = env.step(render_call(tool.name, given))
                cost = sum(c["nano_usd"] / NANO for c in stepped["charges"] if c["tool"] == key)
                assert cost >= info["least_usd"][key] > 0
                told += 1
    assert told > 0
