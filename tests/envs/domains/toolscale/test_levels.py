"""Levels and splits of the shipped domains, and users that do not stay with their first words."""

from __future__ import annotations

import random

import pytest

from tests.domains import library
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.source import LEVELS, ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.user import SqlScriptedUser
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.synth.formats import spec as specs


def test_levels_choose_tasks() -> None:
    for wanted in LEVELS:
        source = ToolScaleSource("railway", level=wanted)
        task_id = source.draw("train", random.Random(1))
        assert source.find(task_id)[1].level == wanted
    with pytest.raises(ConfigError, match="no level 'harder'"):
        ToolScaleSource(level="harder")
    with pytest.raises(ConfigError, match="no task of level hard in split 'test' of library; ask for another split or"):
        ToolScaleSource(str(library()), level="hard").draw("test", random.Random(1))


def test_every_domain_holds_out_intents_and_words() -> None:
    source = ToolScaleSource()
    assert {task_id.split("/")[1] for task_id in source.task_ids("heldout")} == set(loader.names())
    for name in loader.names():
        said: dict[bool, set[str]] = {True: set(), False: set()}
        intents: dict[bool, set[str]] = {True: set(), False: set()}
        for task in ready(name).domain.tasks.values():
            held = task.split == "heldout"
            for request in task.requests:
                intents[held].add(request.intent)
                said[held].update((*request.say, *(request.first.say if request.first else ())))
        assert intents[True]
        assert not intents[True] & intents[False]
        assert not said[True] & said[False]


@pytest.mark.parametrize("kind", ["corrects", "changes_mind", "negotiates"])
def test_a_user_takes_its_first_words_back_and_says_yes_to_the_last(kind: str) -> None:
    domain = ready("finance").domain
    task = next(t for t in domain.tasks.values() if t.requests[0].first and t.requests[0].first.kind == kind)
    first = task.requests[0].first
    assert first is not None
    user = SqlScriptedUser(task, 5)
    assert any(say in user.opening() for say in first.say)
    env = OrchestraEnv(ToolScaleSource("finance"), preference="none")
    env.reset(seed=5, options={"task_id": f"toolscale/finance/{task.task_id}"})
    heard, reward = [], 0.0
    for move in moves(domain, task):
        _, reward, terminated, _, info = env.step(move)
        heard.append(info["new_messages"][-1]["content"])
        if terminated:
            break
    assert sum(any(then in text for then in first.then) for text in heard) == 1  # taken back once
    assert reward == 1.0
    world = env.episode.world if env.episode else None
    assert isinstance(world, SqlWorld)
    assert world.unasked == ()


def test_every_shipped_domain_says_which_spec_it_is_made_of() -> None:
    for name in loader.names():
        assert loader.manifest(loader.SHIPPED / name)["generator"]["spec_hash"] == specs.load(name).digest
