"""Every source in numbers: questions as they were, service tasks by choices whose outcome and bill differ."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import toolorchestra  # noqa: F401 - registers the ids
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.domains.toolscale.oracle import moves
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import Tokens, Usage
from toolorchestra.envs.wrappers import DiscreteRouting, Routing, RoutingFeatures
from toolorchestra.envs.wrappers.planned_turns import guessed, named_values
from toolorchestra.envs.wrappers.service_features import words_of

SCALAR = {"reward": "scalar", "preference": "none"}
FINANCE = {"domain": "finance", "split": "test", "version": 1, **SCALAR}


def routing(env_id: str, **settings: Any) -> Routing:
    return Routing(gym.make(f"ToolOrchestra/{env_id}", **settings))


def episode_of(env: Routing) -> Episode:
    base = env.unwrapped
    assert isinstance(base, OrchestraEnv)
    assert base.episode is not None
    return base.episode


def sql(env: Routing) -> SqlWorld:
    world = episode_of(env).world
    assert isinstance(world, SqlWorld)
    return world


def act(env: Routing, meaning: str) -> tuple[Any, ...]:
    return env.step(env.action_meanings.index(meaning))


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "tools"), [("HLE-v0", None), ("FRAMES-v0", "plain")])
def test_on_questions_it_is_the_two_wrappers(env_id: str, tools: str | None) -> None:
    settings = {**SCALAR, "diversify": "train"} if tools is None else {**SCALAR, "tools": tools}
    one = routing(env_id, **settings)
    two = RoutingFeatures(DiscreteRouting(gym.make(f"ToolOrchestra/{env_id}", **settings)))
    assert one.feature_names == two.feature_names
    assert one.action_space == two.action_space
    assert one.observation_space == two.observation_space
    drawn = np.random.default_rng(0)
    for seed in range(5):
        (first, info), (second, other) = one.reset(seed=seed), two.reset(seed=seed)
        over = False
        while not over:
            assert np.array_equal(first, second)
            assert np.array_equal(info["action_mask"], other["action_mask"])
            assert np.array_equal(one.action_masks(), info["action_mask"] == 1)
            action = int(drawn.integers(one.action_space.n))  # type: ignore[attr-defined]
            first, reward, terminated, truncated, info = one.step(action)
            second, expected, *_, other = two.step(action)
            assert reward == expected
            assert info["ledger"] == other["ledger"]
            over = terminated or truncated


# -- ToolScale -------------------------------------------------------------------------------------------------------


def test_gymnasiums_checker_finds_nothing() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        for settings in (FINANCE, {**FINANCE, "diversify": "train"}, {**SCALAR, "split": "validation"}):
            check_env(routing("ToolScale-v0", **settings))


def test_made_again_from_its_spec() -> None:
    env = Routing(gym.make("ToolOrchestra/ToolScale-v0", **FINANCE), buckets=16)
    assert env.spec is not None
    again = gym.make(env.spec)
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space


def test_actions_are_experts_sayings_and_tools() -> None:
    env = routing("ToolScale-v0", **FINANCE)
    assert env.action_meanings[:7] == (
        *("expert expert-1", "expert expert-2", "expert expert-3"),
        *("say ask", "say answer", "say refuse", "say transfer"),
    )
    assert {"get_customer", "close_account"} < set(env.action_meanings[7:])
    _, info = env.reset(seed=0)
    assert info["action_mask"].all()
    _, info = env.reset(seed=0, options={"tools": ["get_customer"]})
    offered = {m for m, on in zip(env.action_meanings, info["action_mask"], strict=True) if on}
    assert offered == {"get_customer", "say ask", "say answer", "say refuse", "say transfer"}
    *_, info = act(env, "expert expert-1")
    assert "Error: no tool 'call_expert'" in info["new_messages"][-1]["content"]


def test_mixed_domains_offer_their_own_tools_alone() -> None:
    env = routing("ToolScale-v0", split="test", **SCALAR)
    seen = Counter()
    for seed in range(12):
        env.reset(seed=seed)
        tools = {m for m, on in zip(env.action_meanings, env.action_masks(), strict=True) if on}
        own = {name for name in tools if not name.startswith(("expert ", "say "))}
        assert own == set(sql(env).domain.tools)
        seen[sql(env).domain.name] += 1
    assert len(seen) > 3
    *_, info = act(env, next(m for m, on in zip(env.action_meanings, env.action_masks(), strict=True) if not on))
    assert "Error: no tool" in info["new_messages"][-1]["content"]


def right_choice(env: Routing) -> str:
    """What a task needs next, by its reference path: the upper bound of what an agent can choose."""
    world = sql(env)
    request = world.task.requests[world.mood.request]
    heard = " ".join(m["content"] for m in world.conversation if m["role"] == "assistant")
    if any(fact.value and fact.value not in heard for fact in (*world.task.facts, *request.facts)):
        return "say ask"
    made = [(call.name, dict(call.arguments)) for call in world.calls]
    numbers = [*range(world.task.identify), *request.actions]
    due = [world.task.actions[n] for n in numbers]
    left = [a.name for a in due if (a.name, dict(a.arguments)) not in made]
    return (
        left[0] if left else {"serve": "say answer", "refuse": "say refuse", "transfer": "say transfer"}[request.ending]
    )


def played(env: Routing, choose: Any, episodes: int) -> tuple[float, float, float]:
    """Mean outcome, dollars and reward."""
    rows = []
    for seed in range(episodes):
        env.reset(seed=seed)
        gained, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, info = act(env, choose(env))
            gained, over = gained + float(reward), terminated or truncated
        rows.append((info["outcome"]["value"], info["ledger"]["usd"], gained))
    outcome, usd, reward = np.mean(rows, axis=0)
    return float(outcome), float(usd), float(reward)


def test_accuracy_and_bills_differ_by_what_is_chosen() -> None:
    env = routing("ToolScale-v0", **FINANCE)
    env.action_space.seed(0)
    right = played(env, right_choice, 40)
    strongest = played(env, lambda _: "expert expert-1", 40)
    weakest = played(env, lambda _: "expert expert-3", 40)
    anything = played(env, lambda e: e.action_meanings[int(e.action_space.sample())], 40)
    assert right[0] == 1.0
    assert right[1] < 0.03 < weakest[1] < strongest[1]
    assert right[0] > strongest[0] > weakest[0] > anything[0] + 0.2
    assert right[2] > max(strongest[2], weakest[2]) + 0.2


@pytest.mark.parametrize("meaning", ["say ask", "say answer", "say refuse", "say transfer", "get_customer"])
def test_idle_play_earns_nothing(meaning: str) -> None:
    outcome, usd, reward = played(routing("ToolScale-v0", max_turns=12, **FINANCE), lambda _: meaning, 15)
    assert outcome == 0
    assert usd > 0 > reward


def test_what_the_user_alone_knows_is_not_filled_in_before_it_is_said() -> None:
    env = routing("ToolScale-v0", **FINANCE)
    env.reset(seed=0, options={"task_id": "toolscale/finance/0188"})
    gold = sql(env).task.actions[0]
    assert gold.name == "get_customer"
    *_, info = act(env, "get_customer")
    said = parse(info["new_messages"][0]["content"]).calls[0].arguments
    assert not set(gold.arguments.values()) & set(said.values())
    assert "Error" in info["new_messages"][-1]["content"]
    act(env, "say ask")
    *_, info = act(env, "get_customer")
    assert parse(info["new_messages"][0]["content"]).calls[0].arguments == gold.arguments


def test_a_write_is_confirmed_first_and_what_was_not_found_is_not_told() -> None:
    env = routing("ToolScale-v0", **FINANCE)
    env.reset(seed=0, options={"task_id": "toolscale/finance/0188"})
    *_, info = act(env, "say answer")  # before anything was looked up
    assert "7108.38" not in info["new_messages"][0]["content"]
    env.reset(seed=0, options={"task_id": "toolscale/finance/0188"})
    texts, over = [], False
    while not over:
        *_, terminated, truncated, info = act(env, right_choice(env))
        texts.append(info["new_messages"][0]["content"])
        over = terminated or truncated
    assert any("For your information: 7108.38." in text for text in texts)
    assert texts == list(moves(sql(env).domain, sql(env).task))


def test_a_call_that_the_task_does_not_need_is_made_all_the_same() -> None:
    """And does harm where it writes: it goes by the newest values that the conversation holds."""
    env = routing("ToolScale-v0", **FINANCE)
    env.reset(seed=0, options={"task_id": "toolscale/finance/0188"})
    for meaning in ("say ask", "get_customer", "get_account"):
        act(env, meaning)
    account = sql(env).calls[-1].arguments["account_id"]
    *_, info = act(env, "list_transfers")
    assert parse(info["new_messages"][0]["content"]).calls[0].arguments == {"account_id": account}
    for _ in range(2):
        *_, info = act(env, "open_savings_account")
    outcome = 1.0
    over = False
    while not over:
        *_, terminated, truncated, info = act(env, right_choice(env))
        over = terminated or truncated
        outcome = info["outcome"]["value"] if over else outcome
    assert outcome in (0.0, 1.0)


def test_features_tell_the_conversation() -> None:
    env = routing("ToolScale-v0", **{**FINANCE, "preference": {"outcome": 1, "usd": 0.5, "expert-1": 0.25}})
    names = env.feature_names

    def now() -> dict[str, float]:
        return dict(zip(names, env.observe().tolist(), strict=True))

    env.reset(seed=0, options={"task_id": "toolscale/finance/0188"})
    start = now()
    assert (start["weight:usd"], start["weight:expert-1"]) == (0.5, 0.25)
    assert start["usd_per_mtok_out:expert expert-1"] > start["usd_per_mtok_out:expert expert-3"] > 0
    assert sum(start[f"said_{n}"] for n in range(64)) > 0 == sum(start[f"found_{n}"] for n in range(64))
    act(env, "get_customer")
    assert now()["last_was_refused"] == 1
    act(env, "say ask")
    act(env, "get_customer")
    later = now()
    assert (later["last_was_refused"], later["last:get_customer"]) == (0, 1)
    assert later["called:get_customer"] == 1
    assert later["called:get_account"] == 0
    assert later["usd"] > start["usd"]
    assert sum(later[f"found_{n}"] for n in range(64)) > 0
    assert env.observe() in env.observation_space


def test_words_of_a_result_are_its_names_and_states() -> None:
    assert words_of('{"status": "active", "balance": 7108.38, "open": true}') == {
        'status="active"',
        "open=true",
        "balance",
    }
    assert words_of("Freeze my card, 12 of it") == {"freeze", "card"}


def test_guessed_arguments_fit_the_schema() -> None:
    schema = {
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 3},
            "x": {"type": "string"}, "on": {"type": "boolean"}, "more": {"type": "string"},
        },
        "required": ["kind", "n", "x", "on"],
    }  # fmt: skip
    assert guessed(schema, {"kind": "z", "x": "AC-1"}) == {"kind": "a", "n": 3, "x": "AC-1", "on": True}
    assert named_values([{"a": 1, "rows": [{"a": 2, "b": None}]}]) == {"a": 2}


def test_what_cannot_be_numbered_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a ToolOrchestra environment, got CartPoleEnv"):
        Routing(gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="neither a tool configuration nor a planner"):
        Routing(OrchestraEnv("tests.sources:AdderSource"))
    with pytest.raises(ConfigError, match="buckets must be 1 or more"):
        Routing(gym.make("ToolOrchestra/HLE-v0"), buckets=0)
    env = routing("ToolScale-v0", **FINANCE)
    env.reset(seed=0)
    for action in (-1, 45, "ask", 1.5, np.array([1])):
        with pytest.raises(ValueError, match="from 0 to 44"):
            env.step(action)


# -- τ²-Bench --------------------------------------------------------------------------------------------------------


def tau2(env: Routing) -> Tau2World:
    world = episode_of(env).world
    assert isinstance(world, Tau2World)
    return world


def reference_choice(env: Routing, path: list[str]) -> str:
    return path.pop(0) if path else ("done" if tau2(env).domain.solo else "say answer")


def reference_path(env: Routing) -> list[str]:
    world = tau2(env)
    actions = (world.plan.criteria and world.plan.criteria.actions) or ()
    path = [f"user {a.call.name}" if a.side == "user" and not world.domain.solo else a.call.name for a in actions]
    return path if world.domain.solo else ["say ask", *path]


@needs_package
@pytest.mark.parametrize(
    ("domain", "user", "least"), [("telecom", "none", 1.0), ("telecom", "scripted", 0.9), ("retail", "scripted", 0.9)]
)
def test_the_reference_path_is_within_reach_of_choices(domain: str, user: str, least: float) -> None:
    env = routing("Tau2-v0", domain=domain, user=user, split="test", **SCALAR)
    solved = []
    for seed in range(15):
        env.reset(seed=seed)
        path, over = reference_path(env), False
        while not over:
            *_, terminated, truncated, info = act(env, reference_choice(env, path))
            over = terminated or truncated
        solved.append(info["outcome"]["value"])
    assert np.mean(solved) >= least


@needs_package
def test_tau2_alone_offers_tools_and_done() -> None:
    env = routing("Tau2-v0", **SCALAR)
    assert "done" in env.action_meanings
    assert not any(meaning.startswith(("say ", "user ", "expert ")) for meaning in env.action_meanings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(env)
    outcome, usd, _ = played(env, lambda _: "done", 15)
    assert outcome == 0 < usd


class Hired:
    """An expert that asks for the user's id."""

    suspends = False

    async def complete(self, request: ChatRequest) -> Completion:
        return Completion("May I have your user id?", Usage("gpt-5", request.role, Tokens(100, 0, 20)))


@needs_package
def test_tau2_with_a_user_offers_sayings_requests_and_experts() -> None:
    env = routing("Tau2-v0", domain="telecom", user="scripted", experts={"expert-1": (Hired(), "gpt-5")}, **SCALAR)
    assert env.action_meanings[:4] == ("expert expert-1", "say ask", "say answer", "say transfer")
    assert "user toggle_airplane_mode" in env.action_meanings
    assert "done" not in env.action_meanings
    _, info = env.reset(seed=0)
    assert info["action_mask"].all()
    *_, info = act(env, "expert expert-1")
    assert "expert-1 said: May I have your user id?" in info["new_messages"][-1]["content"]
    assert [charge["role"] for charge in info["charges"]].count("expert") == 1
    *_, info = act(env, "user toggle_airplane_mode")
    assert info["new_messages"][0]["content"] == "Please run toggle_airplane_mode() on your phone."


@needs_package
def test_other_users_are_refused() -> None:
    with pytest.raises(ConfigError, match='need user="none" or user="scripted"'):
        routing("Tau2-v0", domain="retail", user="llm", user_model=(Hired(), "gpt-5"))
