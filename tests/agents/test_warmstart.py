"""Demonstrations: the best of some random routes, the same whoever looks for them, and one sequence for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toolorchestra.agents.config import TrainConfig, WarmStart, preset
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluate import played
from toolorchestra.agents.rollout import factory_of, measured
from toolorchestra.agents.tokens import Chat
from toolorchestra.agents.warmstart import Found, demonstrations, find_routes, recorded
from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory

SOME = replace(preset("tiny"), warm_start=WarmStart(demonstrations=24, routes=4))


def made(config: TrainConfig, found: Found) -> EpisodeFactory:
    mix = config.environments[found.env]
    return factory_of(mix.env_id, **{"diversify": "train", **mix.arguments, "split": "train"})


def test_a_route_found_solves_its_task_again() -> None:
    found = find_routes(SOME, range(24))
    assert 12 < len(found) <= 24
    for route in found:
        actions = iter(route.actions)
        episode = played(made(SOME, route), lambda _, actions=actions: next(actions), route.seed)  # type: ignore[misc]
        assert measured(episode).solved
        assert next(actions, None) is None


def test_a_task_gets_the_same_route_whoever_looks_for_it() -> None:
    whole = find_routes(SOME, range(24))
    apart = [*find_routes(SOME, range(0, 24, 2)), *find_routes(SOME, range(1, 24, 2))]
    assert sorted(apart, key=lambda f: f.seed) == whole


def test_more_tries_solve_more_tasks() -> None:
    once = replace(SOME, warm_start=WarmStart(routes=1))
    often = replace(SOME, warm_start=WarmStart(routes=8))
    assert len(find_routes(once, range(40))) < len(find_routes(often, range(40)))


def test_shared_out_over_processes_the_data_are_the_same() -> None:
    chat = Chat(load_tokenizer())
    alone = demonstrations(chat, SOME)
    shared = demonstrations(chat, replace(SOME, model=replace(SOME.model, processes=2)))
    assert [d.tokens for d in shared] == [d.tokens for d in alone]
    for datum in alone:
        assert chat.tokenizer.decode(datum.tokens).count("<tool_call>") == sum(
            a and t == chat.stop for t, a in zip(datum.tokens, datum.advantages, strict=True)
        )


def test_a_missing_file_of_trajectories_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_start\.trajectories: no file .*none\.jsonl"):
        recorded(Chat(load_tokenizer()), tmp_path / "none.jsonl")
