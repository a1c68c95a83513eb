"""Terms of a user's own are part of the last step's reward, stand in info, and fail their episode where they raise."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.wrappers import RecordTrajectories, read_trajectories

HLE = "ToolOrchestra/HLE-v0"
HERE = "tests.envs.episode.test_reward_terms"
ANSWER = render_call("answer", {"model": "answer-1"})


def words(episode: Episode) -> float:
    """Of the last message: the whole transcript is there."""
    return -0.01 * len(str(episode.messages[-1]["content"]).split())


def solved(episode: Episode) -> float:
    assert episode.outcome is not None
    return 0.5 * episode.outcome.value


def breaks(episode: Episode) -> float:
    raise LookupError(f"no weight for {episode.task_id}")


def endless(episode: Episode) -> float:
    return math.inf if episode.turn else 0.0


def last(env: Any, seed: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    env.reset(seed=seed)
    early = env.step(render_call("search", {"model": "search-1"}))
    assert early[1] <= 0.0
    assert "reward_terms" not in early[4]
    return env.step(ANSWER)  # type: ignore[no-any-return]


@pytest.mark.parametrize("given", [words, [f"{HERE}:words", solved]])
def test_what_they_give_is_added_to_the_reward_and_told(given: Any) -> None:
    for seed in range(2):
        plain = last(gym.make(HLE, preference="none"), seed)
        *_, info = step = last(gym.make(HLE, preference="none", reward_terms=given), seed)
        assert step[1] == pytest.approx(plain[1] + sum(info["reward_terms"].values()))
        assert step[2:4] == plain[2:4]
        names = [
            one if isinstance(one, str) else one.__name__
            for one in (given if type(given) in (list, tuple) else [given])
        ]
        assert list(info["reward_terms"]) == [name.rpartition(":")[2] for name in names]
        shown = info["new_messages"][-1]["content"]
        assert info["reward_terms"].get("words", -0.01 * len(shown.split())) == -0.01 * len(shown.split())
        assert {key: value for key, value in info.items() if key != "reward_terms"} == plain[4]


def test_a_vector_environment_and_a_recording_have_them(tmp_path: Path) -> None:
    vector = gym.make_vec(HLE, num_envs=2, vectorization_mode="vector_entry_point", reward_terms=f"{HERE}:words")
    vector.reset(seed=1)
    _, rewards, *_, infos = vector.step([ANSWER, ANSWER])  # type: ignore[arg-type]
    assert (rewards < 1.0).all()
    assert infos["reward_terms"]["words"].tolist() == pytest.approx((rewards - infos["outcome"]["value"]).tolist())
    vector.close()
    env = RecordTrajectories(gym.make(HLE, reward_terms=words), tmp_path / "runs.jsonl")
    _, reward, *_ = last(env)
    env.close()
    (row,) = read_trajectories(tmp_path / "runs.jsonl")
    assert row["rewards"] == [0.0, reward]


@pytest.mark.parametrize("given", [breaks, endless])
def test_one_that_raises_or_gives_no_number_fails_its_episode(given: Any) -> None:
    _, reward, terminated, truncated, info = last(gym.make(HLE, reward_terms=[words, given]))
    assert math.isnan(reward)
    assert (terminated, truncated, info["truncated_by"]) == (False, True, "failed")
    assert info["failed"]["where"] == "reward term"
    assert ("no weight for" if given is breaks else "'endless' gives a finite number") in info["failed"]["error"]
    assert info["reward_terms"] == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("nowhere.at_all:late", "reward term 'nowhere.at_all:late' cannot be loaded.*PYTHONPATH=."),
        ("late", r'"module:function" or a function of an episode, got \'late\''),
        ([words, f"{HERE}:words"], "has 'words' twice"),
    ],
)
def test_what_is_no_term_is_refused_at_make(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        gym.make(HLE, reward_terms=given)


def test_a_command_lines_list_is_kept_as_one_environment() -> None:
    (chosen,) = chosen_envs([["HLE-v0", f'reward_terms=["{HERE}:words", "{HERE}:solved"]', "split=test"]])
    source = "toolorchestra.envs.domains.hle.source:HleSource"
    made = factory(source, **chosen.arguments)
    assert factory(source, **chosen.arguments) is made
    assert [term.name for term in made.rules.terms] == ["words", "solved"]
    assert pickle.loads(pickle.dumps(made)).rules == made.rules
