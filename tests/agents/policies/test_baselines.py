"""What there is to learn between the baselines, and what each does with tools that lack something."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.played_episodes import Standing, record, standing
from tests.agents.evaluation.test_replayed_routing import recording
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import NAMES, RandomPolicy, baseline
from toolorchestra.agents.policies.oracle import Oracle, Scale
from toolorchestra.agents.policies.plans import MOST_SEARCHES
from toolorchestra.agents.policies.players import playable, player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.env import play_turn
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import REWARDED_ROLES
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

TASKS = 300


def standings(env_id: str, names: tuple[str, ...], **arguments: str) -> dict[str, Standing]:
    made = factory_of(env_id, preference="none", **arguments)
    rules = {name: baseline(name) for name in names}
    return {name: standing([record(played(made, rule, seed)) for seed in range(TASKS)]) for name, rule in rules.items()}


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_no_expert_alone_is_enough_and_who_plans_is_as_right_for_less(env_id: str) -> None:
    got = standings(env_id, (*NAMES, "task-oracle"), split="test")
    assert 0.55 < got["strongest"].accuracy < 0.85
    assert got["oracle"].accuracy > got["strongest"].accuracy - 0.02
    assert got["oracle"].cents < 0.7 * got["strongest"].cents
    assert got["task-oracle"].accuracy > got["strongest"].accuracy + 0.08
    assert got["random"].accuracy < got["cheapest"].accuracy - 0.05
    assert got["cheapest"].accuracy < got["strongest"].accuracy - 0.1


@pytest.mark.parametrize("name", ["cheapest", "strongest"])
def test_a_fixed_rule_searches_until_nothing_new_comes_and_not_again_after_the_program(name: str) -> None:
    made = factory_of("HLE-v0")
    plain = 0
    for seed in range(40):
        ended = played(made, baseline(name), seed)
        told = [(str(m.get("name")), str(m["content"])) for m in ended.messages if m["role"] == "tool"]
        called = [tool for tool, _ in told]
        assert called == ["search"] * called.count("search") + ["enhance_reasoning", "answer"]
        nothing = [text.startswith((NOTHING_NEW, NOTHING_MISSING)) for tool, text in told if tool == "search"]
        assert not any(nothing[:-1])
        assert nothing[-1] or len(nothing) == MOST_SEARCHES
        plain += len(nothing) == 1
    assert plain > 10


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_a_guesser_without_tools_scores_under_five_per_cent(env_id: str) -> None:
    """Who says the last word of the question, the floor of each world."""
    made = factory_of(env_id, preference="none", tools="plain")

    def guess(episode: Episode) -> str:
        assert isinstance(episode.world, QaWorld)
        return render_call("submit", {"answer": episode.world.question.text.split()[-1]})

    assert standing([record(played(made, guess, seed)) for seed in range(100)]).accuracy < 0.05


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_the_plain_tools_can_be_orchestrated_too(env_id: str) -> None:
    got = standings(env_id, ("cheapest", "oracle"), tools="plain")
    assert got["oracle"].accuracy > got["cheapest"].accuracy
    assert got["oracle"].accuracy > 0.6


# -- one expert, always ------------------------------------------------------------------------------------------------


def played_by(made: EpisodeFactory, name: str, seed: int = 0) -> Episode:
    chosen, episode = player(name, made), made.start(seed).episode
    while not episode.over:
        play_turn(episode, asyncio.run(chosen.move(episode)).text)
    return episode


def last_result_before(episode: Episode) -> str:
    """What the expert said, before it was handed in."""
    said = [str(message["content"]) for message in episode.messages if message["role"] == "tool"]
    return said[0]


def test_the_expert_is_asked_at_once_and_nobody_else() -> None:
    episode = played_by(factory_of("ToolOrchestra/HLE-v0"), "always:answer-3")
    assert episode.calls == {"answer-3": 1}
    assert episode.turn == 1


def test_where_asking_ends_nothing_its_answer_is_handed_in() -> None:
    episode = played_by(factory_of("ToolOrchestra/HLE-v0", tools="plain"), "always:qwen3-32b")
    assert episode.turn == 2
    assert isinstance(episode.world, QaWorld)
    assert episode.world.answer == last_result_before(episode)


@pytest.mark.parametrize(("attempts", "turns"), [("one", 1), ("checked", 2)])
def test_a_recorded_model_is_sent(attempts: str, turns: int) -> None:
    made = factory_of("ToolOrchestra/Recorded-v0", rows=recording(), attempts=attempts, preference="none")
    values = []
    for seed in range(6):
        episode = played_by(made, "always:expensive", seed)
        assert episode.turn == turns
        assert episode.outcome is not None
        values.append(episode.outcome.value == float(int(episode.task_id.split()[-1]) % 5 != 0))
    assert all(values)


def test_an_expert_may_write_every_turn_of_a_conversation() -> None:
    made = factory_of("ToolOrchestra/ToolScale-v0", domain="restaurant", level="easy")
    episodes = [played_by(made, "always:expert-1", seed) for seed in range(4)]
    for episode in episodes:
        assert episode.calls == {"expert-1": episode.turn}
    assert sum(episode.outcome is not None and episode.outcome.value for episode in episodes) >= 3
    with pytest.raises(ConfigError, match="no expert to ask 'expert-4'; valid: expert-1, expert-2, expert-3"):
        player("always:expert-4", made)


def test_who_cannot_be_asked_is_refused() -> None:
    made = factory_of("ToolOrchestra/HLE-v0")
    said = playable("always:answer-8", made)
    assert said.startswith(
        "policy 'always:answer-8' asks one expert for the answer; no expert to ask 'answer-8'; valid: answer-1"
    )
    with pytest.raises(ConfigError, match="no expert to ask 'search-1'"):
        player("always:search-1", made)
    with pytest.raises(ConfigError, match="valid: none"):
        player("always:answer-1", factory_of("ToolOrchestra/HLE-v0", tools="none"))


# -- tools that lack something -----------------------------------------------------------------------------------------


def said(episode: Episode) -> list[tuple[str, dict[str, Any]]]:
    """The calls of an episode."""
    texts = [str(m["content"]) for m in episode.messages if m["role"] == "assistant"]
    return [(call.name, dict(call.arguments)) for text in texts for call in parse(text).calls]


def test_at_random_every_plain_tool_is_called_with_what_it_takes() -> None:
    seen: dict[str, dict[str, Any]] = {}
    for seed in range(12):
        episode = played(factory_of("HLE-v0", tools="plain", preference="none"), RandomPolicy(seed), seed)
        assert episode.failure is None
        seen |= dict(said(episode))
        question = str(episode.messages[1]["content"])
        for name, arguments in said(episode):
            if name.endswith("_search"):
                assert arguments["query"][:40] in question
    assert set(seen) == {"web_search", "local_search", "python", "ask", "submit"}
    assert seen["python"]["code"].startswith("print(")


LONELY = {
    "tools": [
        {"kind": "search", "name": "find", "offers": [{"alias": "s", "model": "gpt-5", "seconds": 1}]},
        {"kind": "submit", "name": "hand_in"},
    ]
}


def test_the_told_oracle_searches_until_it_hears_that_nothing_is_missing() -> None:
    """Unlike the oracle, who knows it."""
    made = factory_of("FRAMES-v0", preference="none")
    heard: dict[str, list[bool]] = {"oracle": [], "told-oracle": []}
    for seed in range(30):
        for name, found in heard.items():
            ended = played(made, baseline(name), seed)
            texts = [str(m["content"]) for m in ended.messages if m["role"] == "tool" and m.get("name") == "search"]
            if 0 < len(texts) < 8:  # who searched in vain may run out of turns
                found.append(texts[-1].startswith(NOTHING_MISSING))
    assert len(heard["told-oracle"]) > 15
    assert all(heard["told-oracle"])
    assert not any(heard["oracle"])


def test_where_nobody_can_be_asked_the_oracle_cannot_play(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(LONELY))
    factory = factory_of("HLE-v0", tools=str(tmp_path / "tools.json"), preference="none")
    with pytest.raises(ConfigError, match=r"nothing among \['find', 'hand_in'\] asks an expert for the answer"):
        played(factory, baseline("oracle"), 0)
    assert [name for name, _ in said(played(factory, baseline("cheapest"), 0))][-1] == "hand_in"


def test_baselines_say_which_worlds_they_play() -> None:
    episode = factory_of("ToolScale-v0").start(0).episode
    with pytest.raises(ConfigError, match=rf"the baselines play question worlds; {episode.task_id} is a SqlWorld"):
        baseline("oracle")(episode)


def test_an_oracle_plans_for_the_preference() -> None:
    """Who minds seconds alone beside the answer is answered sooner, and who minds dollars cheaper."""
    ended = {}
    for preference in ("accurate", "fast", "frugal"):
        factory = factory_of("HLE-v0", preference=preference, split="test")
        ended[preference] = [played(factory, baseline("oracle"), seed) for seed in range(40)]
    seconds = {preference: sum(e.ledger.seconds for e in episodes) for preference, episodes in ended.items()}
    usd = {
        preference: sum(e.ledger.nano_usd_of(REWARDED_ROLES) for e in episodes)
        for preference, episodes in ended.items()
    }
    assert seconds["fast"] < seconds["accurate"]
    assert usd["frugal"] < usd["accurate"]


def test_an_oracle_calls_what_the_user_favours_as_often_as_anybody_does() -> None:
    factory = factory_of("HLE-v0", preference={"outcome": 1.0, "search-1": 1.0}, split="test")
    scale = Scale((0.0, 0.1), (0.0, 100.0), {"search-1": 3})
    calls = [played(factory, Oracle(scale), seed).calls.get("search-1", 0) for seed in range(20)]
    assert min(calls) >= 3
    assert {played(factory, Oracle(), seed).calls.get("search-1", 0) > 0 for seed in range(20)} == {True}
