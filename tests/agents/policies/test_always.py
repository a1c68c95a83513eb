"""One expert, always: alone it is asked, and what cannot ask it is refused before anything is played."""

from __future__ import annotations

import asyncio

import pytest

from tests.agents.calibration.test_replayed import recording
from toolorchestra.agents.policies.players import playable, player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import EpisodeFactory


def played(made: EpisodeFactory, name: str, seed: int = 0) -> Episode:
    chosen, episode = player(name, made), made.start(seed).episode
    while not episode.over:
        moved: Pending | Step = episode.act(asyncio.run(chosen.move(episode)).text)
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    return episode


def last_result_before(episode: Episode) -> str:
    """What the expert said, before it was handed in."""
    said = [str(message["content"]) for message in episode.messages if message["role"] == "tool"]
    return said[0]


def test_the_expert_is_asked_at_once_and_nobody_else() -> None:
    episode = played(factory_of("ToolOrchestra/HLE-v0"), "always:answer-3")
    assert episode.calls == {"answer-3": 1}
    assert episode.turn == 1


def test_where_asking_ends_nothing_its_answer_is_handed_in() -> None:
    episode = played(factory_of("ToolOrchestra/HLE-v0", tools="plain"), "always:qwen3-32b")
    assert episode.turn == 2
    assert isinstance(episode.world, QaWorld)
    assert episode.world.answer == last_result_before(episode)


@pytest.mark.parametrize(("attempts", "turns"), [("one", 1), ("checked", 2)])
def test_a_recorded_model_is_sent(attempts: str, turns: int) -> None:
    made = factory_of("ToolOrchestra/Recorded-v0", rows=recording(), attempts=attempts, preference="none")
    values = []
    for seed in range(6):
        episode = played(made, "always:dear", seed)
        assert episode.turn == turns
        assert episode.outcome is not None
        values.append(episode.outcome.value == float(int(episode.task_id.split()[-1]) % 5 != 0))
    assert all(values)


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
