"""One meaning of a seed: an episode's own is what jobs, trials and records name, and reset() plays it by option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import FREE, HLE
from tests.tau2_playing import needs_package
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.factory import OPTIONS, factory
from toolorchestra.envs.registration import ids
from toolorchestra.envs.testing import RandomCaller
from toolorchestra.envs.vector import OrchestraVectorEnv
from toolorchestra.envs.wrappers import RecordTrajectories, read_trajectories, reset_to_recorded

EVERY_ID = [pytest.param(name, marks=needs_package if "Tau2" in name else ()) for name in ids()]


def made(env_id: str, **settings: Any) -> Any:
    own = {"domain": "mock", "user": "scripted", "split": "base"} if "Tau2" in env_id else {}
    return gym.make(env_id, max_turns=4, **own, **settings)


def ended(env: Any, caller: RandomCaller) -> list[Any]:
    """Plays on until the end."""
    steps = []
    while not env.unwrapped.episode.over:
        steps.append(env.step(caller(env.unwrapped.episode)))
    return steps


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_the_seed_that_info_names_is_the_episode_again(env_id: str) -> None:
    env, other = made(env_id), made(env_id)
    for _ in range(3):
        first = env.reset(seed=5)
        again = other.reset(options={"episode_seed": first[1]["episode_seed"]})
        assert again == first
        assert ended(env, RandomCaller(1)) == ended(other, RandomCaller(1))


def test_evaluations_seed_is_a_jobs() -> None:
    shared = factory(HLE)
    (trial,) = trials_of("HLE-v0", shared, "p", 1, 5, 1)
    assert trial.seed == 5
    assert shared.start(trial.seed, {"task_id": trial.task}).info == shared.start(5).info
    env = OrchestraEnv(HLE)
    assert env.reset(options={"episode_seed": 5})[1] == shared.start(5).info


def test_a_named_seed_draws_nothing() -> None:
    env, other = OrchestraEnv(HLE), OrchestraEnv(HLE)
    env.reset(seed=3)
    other.reset(seed=3)
    env.reset(options={"episode_seed": 77})
    assert env.reset() == other.reset()
    assert env.reset(seed=3, options={"episode_seed": np.int64(77)})[1]["episode_seed"] == 77
    assert env.reset(options={"episode_seed": None}) == other.reset(seed=3)


def test_an_option_that_is_none_is_left_out() -> None:
    nothing = dict.fromkeys(OPTIONS)
    for settings in ({"preference": "frugal"}, {"preference": "sampled"}, {"budget": 0.5}):
        env = OrchestraEnv(HLE, **settings)  # type: ignore[arg-type]
        assert env.reset(seed=3, options=nothing) == env.reset(seed=3)


@pytest.mark.parametrize("seed", ["5", True])
def test_a_seed_that_is_no_number_is_refused(seed: Any) -> None:
    for env in (OrchestraEnv(HLE), OrchestraVectorEnv(2, HLE)):
        with pytest.raises(ConfigError, match="episode_seed must be a whole number or None, got"):
            env.reset(options={"episode_seed": seed})
    with pytest.raises(ConfigError, match="no reset option 'episode_seed'"):  # a job's seed is the episode's already
        factory(HLE).start(3, {"episode_seed": 5})


VARIED = {"vary": ["tools", "aliases", "prices"]}


def recorded(env: Any, path: Path, options: dict[str, Any] | None) -> tuple[dict[str, Any], list[Any]]:
    recording = RecordTrajectories(env, path)
    recording.reset(seed=8, options=options)
    steps = ended(recording, RandomCaller(2))
    (row,) = read_trajectories(path)
    return row, steps


@pytest.mark.parametrize(
    ("env_id", "settings", "options"),
    [
("ToolOrchestra/HLE-v0", VARIED, {"budget": 0.5, "preference": "frugal"}),
("ToolOrchestra/FRAMES-v0", {}, {"prices": "unseen-2026-01", "tools": ["search-1", "answer-1", "answer-2"]}),
("ToolOrchestra/ToolScale-v0", {}, {"preference": "none"}),
pytest.param("ToolOrchestra/Tau2-v0", {}, None, marks=needs_package),
],
)  # fmt: skip
def test_a_recorded_episode_is_played_again(
    env_id: str, settings: dict[str, Any], options: dict[str, Any] | None, tmp_path: Path
) -> None:
    row, steps = recorded(made(env_id, **settings), tmp_path / "t.jsonl", options)
    env = made(env_id, **settings)
    _, info = reset_to_recorded(env, row)
    assert info["episode_seed"] == row["seed"]
    assert (info["task"], info["preference"], info["price_sheet"]) == (
        row["task"],
        row["preference"],
        row["price_sheet"],
    )
    assert ended(env, RandomCaller(2)) == steps


def test_other_arguments_are_noticed(tmp_path: Path) -> None:
    row, _ = recorded(OrchestraEnv(HLE, **FREE), tmp_path / "t.jsonl", None)
    with pytest.raises(ConfigError, match=r"begins with other tools than were recorded; make the environment with"):
        reset_to_recorded(OrchestraEnv(HLE, tools="plain", **FREE), row)
    with pytest.raises(ConfigError, match=r"begins with other messages than were recorded"):
        reset_to_recorded(OrchestraEnv(HLE, budget=0.7, **FREE), row)
    with pytest.raises(ConfigError, match=r"reset_to_recorded goes around a ToolOrchestra environment"):
        reset_to_recorded(gym.make("CartPole-v1"), row)
