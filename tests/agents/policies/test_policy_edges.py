"""What the baselines do with tools that lack something, and what a third party may change of the oracle."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation import played_episodes
from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of, made
from tests.agents.reports.test_training_page import ended_run, summary_of
from tests.support.loopback import Loopback, ServerReply
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import RandomPolicy, baseline
from toolorchestra.agents.policies.oracle import Oracle, Scale
from toolorchestra.agents.reports.training_data import seeds_table
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.prices import REWARDED_ROLES
from toolorchestra.envs.tools.backends import Backing, read


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


def test_an_oracle_plans_for_the_wish() -> None:
    """Who minds seconds alone beside the answer is answered sooner, and who minds dollars cheaper."""
    ended = {}
    for wish in ("accurate", "fast", "frugal"):
        factory = factory_of("HLE-v0", preference=wish, split="test")
        ended[wish] = [played(factory, baseline("oracle"), seed) for seed in range(40)]
    seconds = {wish: sum(e.ledger.seconds for e in episodes) for wish, episodes in ended.items()}
    usd = {wish: sum(e.ledger.nano_usd_of(REWARDED_ROLES) for e in episodes) for wish, episodes in ended.items()}
    assert seconds["fast"] < seconds["accurate"]
    assert usd["frugal"] < usd["accurate"]


def test_an_oracle_calls_what_the_user_favours_as_often_as_anybody_does() -> None:
    factory = factory_of("HLE-v0", preference={"outcome": 1.0, "search-1": 1.0}, split="test")
    scale = Scale((0.0, 0.1), (0.0, 100.0), {"search-1": 3})
    calls = [played(factory, Oracle(scale), seed).calls.get("search-1", 0) for seed in range(20)]
    assert min(calls) >= 3
    assert {played(factory, Oracle(), seed).calls.get("search-1", 0) > 0 for seed in range(20)} == {True}


def test_a_policy_that_cannot_be_asked_fails_its_own_episode(tmp_path: Path) -> None:
    with Loopback(lambda asked: expert(asked) if asked.number < 2 else ServerReply("gone", 503)) as server:
        factory = made("HLE-v0", Backing(read(file_of(tmp_path, server, retries=0, failures_to_open=1000))))
        policy = played_episodes.policy("chat", factory)
        episodes = asyncio.run(played_episodes.evaluate(factory, policy, 7, 3, at_once=1))
    assert [e.record.failed for e in episodes] == [True] * 3
    assert all(e.failure.startswith("policy: ") for e in episodes)
    assert [e.record.turns for e in episodes] == [1, 0, 0]
    assert [e.nano_usd > 0 for e in episodes] == [True, False, False]  # what was paid before is on the bill
    with pytest.raises(ConfigError, match=r"^no live policy 'chaet'; valid: chat, cheap, dear, random\. Did you mean"):
        played_episodes.policy("chaet", factory)


def test_runs_are_told_apart_by_all_that_was_played() -> None:
    factory = factory_of("HLE-v0", preference="none")
    digests = []
    for seed in (0, 0, 1):
        policy = played_episodes.policy("random", factory, seed)
        digests.append(played_episodes.whole_digest(asyncio.run(played_episodes.evaluate(factory, policy, 0, 2))))
    assert digests[0] == digests[1] != digests[2]


def test_a_player_that_is_missing_in_a_run_has_no_row(tmp_path: Path) -> None:
    runs = [summary_of(ended_run(tmp_path / str(seed), seed, 0.9)) for seed in range(2)]
    del runs[1]["standings"]["strongest"]
    shown = seeds_table(runs)
    assert "| policy: reward |" in shown
    assert "strongest" not in shown
