"""Money, time and what cuts an episode off: exact bills, limits by name, the run's spend cap."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.playing import ADD, FREE, env_of, step, usage_of
from tests.sources import BREAK, AnswerWorld, NumberedSource, adder_script
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.rules import Limits
from toolorchestra.envs.money.prices import EXPERT, JUDGE, ORCHESTRATOR, TOOL, USER, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.wrappers.routing import as_learnt


def _spend(context: ToolContext, cents: int, seconds: int, final: bool = False) -> ToolResult:
    del context
    usage = Usage("tavily/search", TOOL, units=cents, seconds=float(seconds))
    return ToolResult(f"spent {cents} ¢", (usage,), final=final, note="<answer>spent</answer>")


_SPENT = {"cents": {"type": "integer"}, "seconds": {"type": "integer"}, "final": {"type": "boolean"}}
_SPEND = {"type": "object", "properties": _SPENT, "required": ["cents", "seconds"]}


class SpenderSource(NumberedSource):
    """`spend` costs and takes what it is told; a cent is one search of the price sheet."""

    name = "spender"
    tools = tuple(
        Tool(name, "Spends.", _SPEND, _spend, bills=("tavily/search",), in_order=in_order)
        for name, in_order in (("spend", False), ("spend_in_order", True))
    )

    def world(self, number: int, toolbox: Toolbox) -> World:
        return AnswerWorld(f"Task {number}: spend.", "done", toolbox)


def spend(cents: int, seconds: int = 0, *, final: bool = False) -> ToolCall:
    return ToolCall("spend", {"cents": cents, "seconds": seconds, **({"final": True} if final else {})})


def spender(**settings: Any) -> OrchestraEnv:
    return env_of("tests.envs.episode.test_limits:SpenderSource", **settings)


def test_parallel_calls_charge_all_and_take_as_long_as_the_longest() -> None:
    env = spender(**FREE)
    done = step(env, spend(1, 30), spend(2, 10), spend(4, 20))
    tools = [c for c in done.info["charges"] if c["role"] == TOOL]
    assert [c["nano_usd"] for c in tools] == [10_000_000, 20_000_000, 40_000_000]
    assert [c["seconds"] for c in tools] == [30.0, 10.0, 20.0]
    assert done.info["cost"]["seconds"] == 30.0
    assert done.info["ledger"]["usd_by_role"][TOOL] == 0.07
    assert step(env, spend(1, 5)).info["ledger"]["seconds"] == 35.0


def test_calls_of_one_turn_take_as_long_as_all_of_them_where_one_wants_their_order() -> None:
    env = spender(**FREE)
    done = step(env, spend(1, 30), ToolCall("spend_in_order", {"cents": 2, "seconds": 10}))
    assert done.info["cost"]["seconds"] == 40.0


def test_the_policy_is_billed_by_an_estimate_that_says_so() -> None:
    env = env_of("Adder", **FREE)
    assert env.episode is not None
    observation = env.episode.observation
    characters = sum(len(m["content"]) for m in observation["messages"]) + sum(
        len(str(t)) for t in observation["tools"]
    )
    (charge,) = step(env, ADD).info["charges"]
    assert charge["estimated"]
    assert usage_of(charge).tokens == Tokens(math.ceil(characters / 4), 0, math.ceil(len(ADD) / 4), 0)


def test_counted_usage_is_billed_once_and_instead_of_the_estimate() -> None:
    env = env_of("Adder", **FREE)
    usage = Usage("gpt-5", ORCHESTRATOR, Tokens(1000, 200, 30, 4), seconds=7.0)
    env.charge_policy(usage)
    first = step(env, ADD)
    assert [usage_of(c) for c in first.info["charges"]] == [usage]
    assert first.info["cost"]["tokens"] == {"input": 1000, "cached": 200, "output": 30, "reasoning": 4}
    assert first.info["cost"]["seconds"] == 7.0
    (second,) = step(env, ADD).info["charges"]
    assert second["estimated"]
    env.charge_policy(usage)
    env.reset(seed=1)
    assert step(env, ADD).info["charges"][0]["estimated"]


def test_a_refusal_costs_what_it_cost_and_is_read_by_the_agent() -> None:
    env = env_of("Broken", way="refuses", **FREE)
    done = step(env, BREAK)
    assert done.info["new_messages"][1] == {"role": "tool", "name": "breaks", "content": "Error: not today"}
    assert [c["item"] for c in done.info["charges"] if c["role"] == EXPERT] == ["gpt-5"]
    assert done.info["ledger"]["usd_by_role"][EXPERT] == 0.00135
    assert done.info["cost"]["seconds"] == 2.5
    assert env.episode is not None
    assert not env.episode.world.broken  # type: ignore[attr-defined]  # the world does not absorb a refusal
    assert step(env, "done").reward == 1.0


def test_the_scalar_reward_subtracts_each_steps_cost() -> None:
    env = spender(reward={"usd": 2.0, "seconds": 0.5}, **FREE)
    steps = [step(env, spend(3, 4)), step(env, spend(1, 2)), step(env, "done")]
    for done in steps[:2]:
        assert done.reward == pytest.approx(-2.0 * done.info["cost"]["usd"] - 0.5 * done.info["cost"]["seconds"])
    total = steps[-1].info["ledger"]
    assert sum(s.reward for s in steps) == pytest.approx(1.0 - 2.0 * total["usd"] - 0.5 * total["seconds"])


@pytest.mark.parametrize(("source", "role"), [("Talker", USER), ("Judged", JUDGE)])
def test_rewards_leave_out_what_users_and_judges_cost(source: str, role: str) -> None:
    env = env_of(source, reward="scalar", **FREE)
    steps = []
    while env.episode is not None and not env.episode.over:
        steps.append(step(env, "done"))
    usd, outcome = steps[-1].info["ledger"]["usd_by_role"], steps[-1].info["outcome"]["value"]
    assert usd[role] > 0
    assert sum(s.reward for s in steps) == pytest.approx(outcome - usd[ORCHESTRATOR], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("turns", "max_turns"), ("context_tokens", "max_context_tokens"), ("usd", "budget"), ("seconds", "max_seconds")],
)
@pytest.mark.parametrize("value", [-1, math.nan])
def test_limits_are_positive_and_called_as_gym_make_calls_them(name: str, argument: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} must be "):
        Limits(**{name: value})


def test_the_last_turn_still_acts() -> None:
    env = env_of("Adder", max_turns=8, **FREE)
    last = [step(env, text) for text in adder_script()][-1]
    assert (last.terminated, last.truncated, last.reward) == (True, False, 1.0)
    env = env_of("Adder", max_turns=7, **FREE)
    last = [step(env, text) for text in adder_script()[:7]][-1]
    assert (last.terminated, last.truncated, last.reward) == (False, True, 0.0)
    assert last.info["truncated_by"] == "turns"
    assert last.info["new_messages"][1]["content"] == "28"
    assert last.info["calls"] == {"add": 7}


def test_the_dollar_limit_cuts_off_after_the_call_that_reaches_it() -> None:
    env = spender(budget=0.05, **FREE)
    assert not step(env, spend(4)).truncated
    last = step(env, spend(4))
    assert last.truncated
    assert last.info["truncated_by"] == "usd"
    assert last.info["calls"] == {"spend": 2}
    assert last.info["outcome"]["value"] == 0.0


def test_a_turn_that_is_paid_above_the_limit_makes_no_calls() -> None:
    env = spender(budget=0.05, **FREE)
    env.charge_policy(Usage("gpt-5", ORCHESTRATOR, Tokens(output=10_000)))
    last = step(env, spend(4))
    assert last.info["truncated_by"] == "usd"
    assert last.info["calls"] == {}
    assert last.info["ledger"]["usd_by_role"] == {ORCHESTRATOR: 0.1}
    assert len(last.info["new_messages"]) == 1


def test_the_limit_in_seconds_is_of_simulated_time() -> None:
    env = spender(max_seconds=60, **FREE)
    assert not step(env, spend(0, 59)).truncated
    assert step(env, spend(0, 1)).info["truncated_by"] == "seconds"


def test_the_context_limit_counts_what_the_policy_would_be_shown() -> None:
    env = env_of("Talker", patience=100, max_context_tokens=500, **FREE)
    step(env, "short")
    last = step(env, "long " * 500)
    assert last.info["truncated_by"] == "context"


def test_an_ending_call_beats_a_limit_reached_by_it() -> None:
    last = step(spender(budget=0.05, max_turns=1, max_seconds=1, **FREE), spend(9, 9, final=True))
    assert (last.terminated, last.truncated, last.info["truncated_by"]) == (True, False, "")


def test_the_spend_cap_is_the_runs_and_is_looked_at_before_each_turn() -> None:
    with pytest.raises(ValueError, match="a spend cap is a positive"):
        SpendCap(0)
    cap = SpendCap(0.10)
    one, two = spender(spend_cap=cap, **FREE), spender(spend_cap=cap, **FREE)
    assert not step(one, spend(6)).truncated
    assert not step(two, spend(6)).truncated
    assert cap.spent_usd > 0.12
    last = step(one, spend(6))
    assert last.info["truncated_by"] == "spend_cap"
    assert last.info["calls"] == {"spend": 1}
    assert step(two, spend(6)).truncated
    assert cap.spent_usd < 0.121


@pytest.mark.parametrize("terms", [(), ("tests.envs.episode.test_reward_terms:words",)])
@pytest.mark.parametrize("turns", [1, 50])
def test_what_the_spend_cap_cut_is_not_known_and_no_agents_wrong_answer(turns: int, terms: tuple[str, ...]) -> None:
    cap = SpendCap(0.10)
    env = spender(spend_cap=cap, max_turns=turns, reward_terms=terms, **FREE)
    last = step(env, spend(12))
    last = step(env, spend(6)) if turns > 1 else last
    assert math.isnan(last.reward)
    assert math.isnan(last.info["outcome"]["value"])
    assert (last.terminated, last.truncated, last.info["truncated_by"]) == (False, True, "spend_cap")
    assert "the spend cap was used up" in last.info["failed"]["error"]
    assert as_learnt(last.reward, last.terminated, last.truncated, last.info) == (0.0, False, True)
    assert round(last.info["ledger"]["usd"], 3) == 0.12


def test_no_episode_begins_when_the_spend_cap_is_used_up() -> None:
    env = spender(spend_cap=SpendCap(0.10), **FREE)
    step(env, spend(12))
    for _ in range(2):
        with pytest.raises(SpendCapReached, match=r"spent 0\.12\d* \$ of its cap of 0\.1 \$.* a higher spend_cap"):
            env.reset()
