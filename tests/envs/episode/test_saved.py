"""Copies and pickles of an episode in the middle go on as it does, and none of them meets the others."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import ADD, FREE, HLE
from tests.sources import AdderSource
from tests.tau2_playing import needs_package
from toolorchestra.envs.domains.toolscale.database import DatabaseSession
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import ids
from toolorchestra.envs.testing import RandomCaller

EVERY_ID = [pytest.param(name, marks=needs_package if "Tau2" in name else ()) for name in ids()]
OWN = {"ToolOrchestra/Tau2-v0": {"domain": "telecom", "user": "scripted", "split": "base"}}
Again = Callable[[Any], Any]


def unpickled(env: Any) -> Any:
    return pickle.loads(pickle.dumps(env))


AGAIN = [pytest.param(copy.deepcopy, id="copied"), pytest.param(unpickled, id="pickled")]


def said(caller: RandomCaller, episode: Episode) -> str:
    return caller(episode) if episode.turn % 2 else "I do not know it."


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("env_id", EVERY_ID)
def test_it_goes_on_as_the_episode_does(env_id: str, again: Again) -> None:
    settings = {"max_turns": 4, "vary": ["tools", "prices"]} if "HLE" in env_id else {"max_turns": 4}
    env: Any = gym.make(env_id, **settings, **OWN.get(env_id, {}))
    for seed in range(1, 3):
        env.reset(seed=seed, options={"budget": 5.0, "preference": "frugal"})
        caller = RandomCaller(seed)
        others = [again(env)]
        while not env.episode.over:
            text = said(caller, env.episode)
            step = env.step(text)
            for other in others:
                assert other.step(text) == step
            others.append(again(env))
        for other in others:
            assert other.episode.over
            assert other.episode.messages == env.episode.messages
            assert list(other.episode.ledger) == list(env.episode.ledger)
        assert env.reset() == others[0].reset() == again(others[1]).reset()  # the generators go on alike


def solved(env: Any) -> tuple[list[str], SqlWorld]:
    """A task with two writes at least, reset, and the texts that solve it."""
    for seed in range(100):
        env.reset(seed=seed, options={"preference": "none"})
        world = env.episode.world
        writes = [a for a in world.task.actions if world.domain.tools[a.name].kind == "write"]
        if len(writes) >= 2:
            return list(moves(world.domain, world.task)), world
    raise AssertionError("no task with two writes")


def session_of(env: Any) -> DatabaseSession:
    assert isinstance(env.episode.world, SqlWorld)
    return env.episode.world.session


@pytest.mark.parametrize("again", AGAIN)
def test_the_database_goes_with_it(again: Again) -> None:
    env: Any = gym.make("ToolOrchestra/ToolScale-v0")
    texts, world = solved(env)
    before: list[tuple[int, Any]] = []
    steps: list[Any] = []
    for number, text in enumerate(texts):
        before.append((number, again(env)))
        steps.append(env.step(text))
        if not env.episode.over:
            assert sorted(session_of(again(env)).changes(), key=str) == sorted(world.session.changes(), key=str)
    assert steps[-1][1] == 1.0
    for number, other in before:  # each from where it was taken, after the first has long ended
        twin = again(other)
        for at in range(number, len(texts)):
            assert other.step(texts[at]) == twin.step(texts[at]) == steps[at]
        assert other.episode.outcome == env.episode.outcome


@pytest.mark.parametrize("again", AGAIN)
def test_copies_write_apart_and_spoil_no_later_episode(again: Again) -> None:
    env: Any = gym.make("ToolOrchestra/ToolScale-v0")
    texts, world = solved(env)
    left = iter(texts)
    while not world.session.changes():
        env.step(next(left))
    written = len(world.session.changes())
    other = again(env)
    theirs = session_of(other)
    kept = theirs.private
    while len(theirs.changes()) == written:
        other.step(next(left))
    assert len(world.session.changes()) == written
    theirs.close()
    world.session.close()
    fresh = DatabaseSession(theirs.database)
    assert fresh.own() is not kept  # a copy that began with somebody's writes serves nobody else
    assert fresh.changes() == []


def test_another_process_goes_on(tmp_path: Path) -> None:
    env: Any = gym.make("ToolOrchestra/ToolScale-v0")
    texts, _ = solved(env)
    half = len(texts) // 2
    for text in texts[:half]:
        env.step(text)
    (tmp_path / "env").write_bytes(pickle.dumps(env))
    (tmp_path / "texts").write_bytes(pickle.dumps(texts[half:]))
    code = (
        "import pickle, sys; from pathlib import Path; here = Path(sys.argv[1])\n"
        "env, texts = (pickle.loads((here / name).read_bytes()) for name in ('env', 'texts'))\n"
        "print([env.step(text) for text in texts][-1][1], env.episode.ledger.nano_usd)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    reward = [env.step(text) for text in texts[half:]][-1][1]
    assert done.stdout.split() == [str(reward), str(env.episode.ledger.nano_usd)] == ["1.0", done.stdout.split()[1]]


def test_a_source_that_was_handed_over_is_copied_but_not_pickled() -> None:
    env = OrchestraEnv(AdderSource(), **FREE)  # type: ignore[arg-type]
    env.reset(seed=0)
    assert copy.deepcopy(env).step(ADD) == env.step(ADD)
    with pytest.raises(TypeError, match="only a source named by its path can be made again elsewhere"):
        pickle.dumps(env)
    capped = OrchestraEnv(HLE, spend_cap=SpendCap(1.0))
    capped.reset(seed=0)
    assert copy.deepcopy(capped).factory.rules.spend_cap is capped.factory.rules.spend_cap
    with pytest.raises(TypeError, match="cap"):
        pickle.dumps(capped)
