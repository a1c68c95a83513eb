"""OrchestraVectorEnv: gymnasium's verbs, seeds, infos and autoreset."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode

import toolorchestra  # noqa: F401 - registers the ids
from tests.playing import ADD, vector_of
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.vector import OrchestraVectorEnv


def test_a_closed_one_takes_no_action() -> None:
    env = vector_of("Adder", num_envs=2)
    env.close()
    for use in (lambda: env.step([ADD, ADD]), lambda: env.send([ADD], [0]), env.recv, env.reset):
        with pytest.raises(ClosedEnvironmentError, match="of a closed environment; make another one"):
            use()


def test_the_default_mode_of_make_vec_is_ours() -> None:
    env = gym.make_vec("ToolOrchestra/FRAMES-v0", num_envs=2)
    assert isinstance(env.unwrapped, OrchestraVectorEnv)
    assert env.action_space.sample() in env.action_space
    assert env.observation_space.sample() in env.observation_space
    env.close()
    env.close()


def test_seeds_are_one_number_or_one_for_each() -> None:
    env = vector_of("Adder")
    _, infos = env.reset(seed=[7, None, 9])
    assert infos["task_id"][0] == OrchestraEnv("tests.sources:AdderSource").reset(seed=7)[1]["task_id"]
    assert infos["task_id"][2] == OrchestraEnv("tests.sources:AdderSource").reset(seed=9)[1]["task_id"]
    with pytest.raises(ValueError, match="one seed for each of 3 environments is needed, got 2"):
        env.reset(seed=[1, 2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs must be a whole number from 1 up, got 0"),
        ({"render_mode": "human"}, "no render mode 'human'; valid: .*ansi"),
        ({"max_turn": 3}, r"no argument 'max_turn'.*Did you mean 'max_turns'\?"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vector_of("Adder", **settings)


def test_next_step_resets_in_the_step_after_the_end() -> None:
    env = vector_of("Adder", num_envs=2)
    first = env.episodes[0]
    *_, infos = env.step(["<answer>28</answer>", ADD])
    assert "final_obs" not in infos
    observations, rewards, terminations, _, infos = env.step(["ignored", ADD])
    assert env.episodes[0] is not first
    assert (rewards.tolist(), terminations.tolist()) == ([0.0, 0.0], [False, False])
    assert len(observations[0]["messages"]) == 2
    assert infos["_preference"].tolist() == [True, False]
    assert env.step([ADD, ADD])[0][0]["messages"][-1]["content"] == "3"


def test_same_step_keeps_the_last_observation_and_info() -> None:
    env = vector_of("Adder", num_envs=2, autoreset_mode=AutoresetMode.SAME_STEP)
    observations, rewards, terminations, _, infos = env.step(["<answer>28</answer>", ADD])
    assert (rewards.tolist(), terminations.tolist()) == ([1.0, 0.0], [True, False])
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True, False]
    assert infos["final_obs"][0]["messages"][-1]["content"] == "<answer>28</answer>"
    assert infos["final_info"]["outcome"]["value"][0] == 1.0
    assert len(observations[0]["messages"]) == 2
    assert infos["task_id"][0] != infos["final_info"]["task_id"][0]


def test_disabled_wants_a_reset_mask() -> None:
    env = vector_of("Adder", num_envs=3, autoreset_mode="Disabled")
    env.step(["<answer>28</answer>", ADD, ADD])
    with pytest.raises(ResetNeeded, match=r"environment 0 is over; call reset\(\) with it in options\['reset_mask'\]"):
        env.step([ADD, ADD, ADD])
    observations, infos = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert infos["_task_id"].tolist() == [True, False, False]
    assert [len(o["messages"]) for o in observations] == [2, 4, 4]
    observations = env.step([ADD, ADD, ADD])[0]
    assert [len(o["messages"]) for o in observations] == [4, 6, 6]
    for mask in ([True], np.array([1, 0, 0]), np.zeros(3, bool)):
        with pytest.raises(ValueError, match="reset_mask is 3 booleans with at least one True"):
            env.reset(options={"reset_mask": mask})


def test_the_first_reset_may_not_leave_one_out() -> None:
    env = OrchestraVectorEnv(2, "tests.sources:AdderSource")
    with pytest.raises(ResetNeeded, match=r"step\(\) before reset\(\)"):
        env.step([ADD, ADD])
    with pytest.raises(ResetNeeded, match="environment 1 has not been reset yet"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_gymnasiums_vector_wrappers_fit() -> None:
    env = gym.wrappers.vector.RecordEpisodeStatistics(vector_of("Adder", num_envs=2))
    env.reset(seed=0)
    *_, infos = env.step(["<answer>28</answer>", ADD])
    assert infos["episode"]["r"][0] == 1.0
    assert infos["episode"]["l"][0] == 1


def test_async_says_which_argument_it_needs_and_plays_with_it() -> None:
    env_id = "ToolOrchestra/FRAMES-v0"
    with pytest.raises(ConfigError, match=r'vectorization_mode="async", vector_kwargs=\{"shared_memory": False\}'):
        gym.make_vec(env_id, num_envs=2, vectorization_mode="async")
    kwargs = {"shared_memory": False}
    processes = gym.make_vec(env_id, num_envs=2, vectorization_mode="async", vector_kwargs=kwargs)
    ours = gym.make_vec(env_id, num_envs=2)
    try:
        assert processes.reset(seed=3)[0] == ours.reset(seed=3)[0]
        first, second = (vector.step(["hello", "<answer>1</answer>"]) for vector in (processes, ours))
        assert first[0] == second[0]
        assert first[4]["cost"]["usd"].tolist() == second[4]["cost"]["usd"].tolist()
    finally:
        processes.close()
        ours.close()
