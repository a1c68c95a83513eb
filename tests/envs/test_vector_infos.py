"""A vector's infos: those of gymnasium's SyncVectorEnv over the same id, to the value, the dtype and the mask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import ADD
from tests.sources import BREAK
from tests.tau2_playing import needs_package
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.registration import ids, register
from toolorchestra.envs.testing import RandomCaller
from toolorchestra.envs.vector import OrchestraVectorEnv
from toolorchestra.envs.vector_infos import gathered, info_of

EVERY_ID = [pytest.param(name, marks=needs_package if "Tau2" in name else ()) for name in ids()]
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
ANSWER = "<answer>28</answer>"


def settings_of(env_id: str) -> dict[str, Any]:
    """Episodes that end soon, some of them by a limit."""
    own = {"domain": "mock", "user": "scripted", "split": "base"} if "Tau2" in env_id else {}
    return {"max_turns": 4, **own}


def both(env_id: str, mode: AutoresetMode, num_envs: int = 3, **settings: Any) -> tuple[Any, Any]:
    """Ours, and gymnasium's over single ones."""
    ours = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode=mode, **settings)
    fns = [lambda: gym.make(env_id, **settings)] * num_envs
    return ours, SyncVectorEnv(fns, autoreset_mode=mode)


def demand_same(ours: Any, theirs: Any, where: str = "infos") -> None:
    """Keys, kinds, dtypes, masks and values."""
    if isinstance(theirs, Mapping):
        assert isinstance(ours, dict), where
        assert sorted(ours) == sorted(theirs), where
        for key in theirs:
            demand_same(ours[key], theirs[key], f"{where}[{key!r}]")
        return
    assert isinstance(ours, np.ndarray), where
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
    for mine, yours in zip(ours.tolist(), theirs.tolist(), strict=True):
        assert mine == yours or (mine != mine and yours != yours), where


def play_both(ours: Any, theirs: Any, mode: AutoresetMode, turns: int, options: dict[str, Any] | None = None) -> int:
    """Random calls to both; gives how many episodes ended."""
    callers = [RandomCaller(i) for i in range(ours.num_envs)]
    first, second = (vector.reset(seed=5, options=options) for vector in (ours, theirs))
    assert tuple(first[0]) == tuple(second[0])
    demand_same(first[1], second[1])
    ended = 0
    for _ in range(turns):
        texts = [
            caller(e) if (e := ours.unwrapped.episodes[i]) is not None and not e.over else ""
            for i, caller in enumerate(callers)
        ]
        mine, yours = ours.step(texts), theirs.step(texts)
        assert tuple(mine[0]) == tuple(yours[0])
        for a, b in zip(mine[1:4], yours[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        demand_same(mine[4], yours[4])
        done = mine[2] | mine[3]
        ended += int(done.sum())
        if mode == AutoresetMode.DISABLED and done.any():
            again = [vector.reset(options={"reset_mask": done.copy()}) for vector in (ours, theirs)]
            demand_same(again[0][1], again[1][1])
    ours.close()
    theirs.close()
    return ended


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_infos_are_those_of_gymnasiums_own_vector_in_every_mode(mode: AutoresetMode) -> None:
    ours, theirs = both("ToolOrchestra/HLE-v0", mode, **settings_of("HLE"))
    assert play_both(ours, theirs, mode, turns=12) >= 3


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_infos_are_those_of_gymnasiums_own_vector(env_id: str) -> None:
    ours, theirs = both(env_id, AutoresetMode.SAME_STEP, num_envs=2, **settings_of(env_id))
    assert play_both(ours, theirs, AutoresetMode.SAME_STEP, turns=6) >= 2


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_failure_beside_an_end_has_gymnasiums_shape(mode: AutoresetMode) -> None:
    register("Tests/Broken-v0", "tests.sources:BrokenSource")
    for vector in both("Tests/Broken-v0", mode, num_envs=2, way="raises", preference="none"):
        vector.reset(seed=0)
        infos = vector.step([BREAK, ANSWER])[4]
        infos = infos["final_info"] if mode == AutoresetMode.SAME_STEP else infos
        assert infos["failed"]["where"].tolist() == ["breaks", None]
        assert infos["failed"]["_where"].tolist() == [True, False]
        assert infos["outcome"]["_value"].tolist() == [False, True]
        assert infos["_failed"].tolist() == infos["_outcome"].tolist() == [True, True]
        vector.close()


@pytest.mark.parametrize("said", [(3, None), (None, 3), (2**70, 4), (4, 2**63), (1, 0.5), (True, 2), (3, "x"), ({}, 3)])
@pytest.mark.parametrize("more", [0, 1])
def test_values_that_no_array_of_numbers_holds_stay_what_they_are(said: tuple[Any, Any], more: int) -> None:
    infos = gathered(dict(enumerate({"rank": value} for value in said)), 2 + more)
    assert [info_of(infos, i) for i in range(2)] == [{"rank": value} for value in said]
    assert list(map(type, infos["rank"][:2])) == list(map(type, said))
    assert infos["_rank"].tolist() == [True, True, False][: 2 + more]


def test_charges_have_names() -> None:
    env = OrchestraEnv("tests.sources:AdderSource", preference="none")
    env.reset(seed=0)
    info = json.loads(json.dumps(env.step(ADD)[4]))
    (charge,) = info["charges"]
    assert env.episode is not None
    (real,) = env.episode.ledger
    assert (charge["item"], charge["role"], charge["tool"]) == ("qwen3-8b", "orchestrator", "")
    assert charge["tokens"] == info["cost"]["tokens"] == real.usage.tokens._asdict()
    assert charge["nano_usd"] == real.nano_usd
    assert charge["estimated"] is True


def test_an_infos_row_can_be_taken_out_again() -> None:
    env = OrchestraVectorEnv(2, "tests.sources:AdderSource", preference="none")
    env.reset(seed=0)
    single = OrchestraEnv("tests.sources:AdderSource", preference="none")
    single.reset(seed=1)
    texts: Sequence[str] = [ADD, ANSWER]
    assert info_of(env.step(texts)[4], 1) == single.step(ANSWER)[4]
