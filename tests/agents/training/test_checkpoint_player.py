"""A checkpoint plays as its run's evaluations did: greedily alike each time, sampled by its seed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.agents.evaluation.played_episodes import PlayedEpisode, evaluate, whole_digest
from tests.agents.training.trained_models import SHORT
from toolorchestra.agents.configuration.config import ModelConfig, as_json
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.players import Player, player
from toolorchestra.agents.rollouts.rollout import Job, Rollouts, factory_of
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.checkpoint_player import CheckpointPlayer
from toolorchestra.agents.training.saved_model import checkpoint_of
from toolorchestra.agents.training.trainer import rollout_params
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory

RUN = replace(preset("tiny"), average=0.5, model=ModelConfig(hidden=16, rows=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that went to step 1, and whose best checkpoint is the one before."""
    made = tmp_path_factory.mktemp("run")
    engine, _ = build(RUN)
    for step in (0, 1):
        with torch.no_grad():
            for mean in engine._average:
                mean.add_(0.01)
        state = {"config": as_json(RUN), "best_step": 0, "step": step}
        checkpoint.save(made / "checkpoints", step, state, engine.save)
    engine.close()
    return made


@pytest.fixture
def made() -> EpisodeFactory:
    return factory_of("HLE-v0", **SHORT)


@pytest.fixture
def greedy(folder: Path, made: EpisodeFactory) -> Iterator[CheckpointPlayer]:
    who = player(f"checkpoint:{folder}", made)
    assert isinstance(who, CheckpointPlayer)
    yield who
    who.close()
    who.close()


def played(made: EpisodeFactory, who: Player, tasks: int = 6, at_once: int = 6) -> list[PlayedEpisode]:
    return asyncio.run(evaluate(made, who.move, 3, tasks, at_once))


def test_greedy_play_is_what_the_rollouts_of_its_run_do(greedy: CheckpointPlayer, made: EpisodeFactory) -> None:
    assert (greedy.name.split(":")[0], greedy.simulated) == ("checkpoint", False)
    got = played(made, greedy)  # six at once, in a sampler of four rows
    assert [one.failure for one in got] == [""] * 6
    assert whole_digest(played(made, greedy, at_once=1)) == whole_digest(got)
    rollouts = Rollouts(greedy.engine, greedy.chat, rollout_params(greedy.config, 0.0))
    again = rollouts.collect([Job("HLE-v0", made, 3 + k) for k in range(6)])
    assert [t.measure.usd for t in again] == [one.record.usd for one in got]
    assert [t.turns for t in again] == [one.record.turns for one in got]


def test_sampled_play_follows_from_its_seed(folder: Path, made: EpisodeFactory) -> None:
    digests = []
    for seed in (1, 1, 2):
        who = player(f"checkpoint:{folder}", made, seed, PlayerOptions(temperature=1.0))
        digests.append(whole_digest(played(made, who)))
        who.close()  # type: ignore[attr-defined]
    assert digests[0] == digests[1] != digests[2]


def test_what_no_longer_fits_is_silence_that_costs_nothing(folder: Path, greedy: CheckpointPlayer) -> None:
    long = factory_of("HLE-v0", **{**SHORT, "style": "full"})  # descriptions longer than the context
    episode = long.start(0).episode
    move = asyncio.run(greedy.move(episode))
    assert move.text == ""
    assert move.usage is not None
    assert sum(move.usage.tokens) == 0
    (got,) = asyncio.run(evaluate(long, greedy.move, 0, 1))
    assert (got.record.turns, got.failure, got.record.right, got.nano_usd) == (3, "", 0.0, 0)


def test_an_environment_has_the_limits_that_it_had_in_the_mix(tmp_path: Path, made: EpisodeFactory) -> None:
    hle, frames = RUN.environments
    foreign = replace(hle, env_id="Tests/NotHere-v0", max_tokens=1)
    frames = replace(frames, max_context=200)  # more than the other one has
    config = replace(RUN, environments=(foreign, replace(hle, max_tokens=3, max_context=99), frames))
    engine, _ = build(config)
    checkpoint.save(tmp_path, 0, {"config": as_json(config)}, engine.save)
    for factory, limits in ((made, (3, 99)), (factory_of("FRAMES-v0", **SHORT), (10, 200))):
        who = player(f"checkpoint:{tmp_path / 'step-000000'}", factory)
        assert isinstance(who, CheckpointPlayer)
        assert (who._params.max_tokens, who.config.max_context) == limits
        who.close()


def test_what_was_trained_with_vllm_plays_by_the_sampler_of_this_process(
    folder: Path, tmp_path: Path, made: EpisodeFactory
) -> None:
    config = replace(RUN, model=replace(RUN.model, sampler="vllm", cache="fp8"))

    def of_vllm(draft: Path) -> None:
        state = torch.load(folder / "checkpoints" / "step-000000" / "engine.pt", weights_only=True)
        torch.save({**state, "sampler_rng": torch.tensor([7])}, draft / "engine.pt")  # no generator's state

    path = checkpoint.save(tmp_path, 0, {"config": as_json(config)}, of_vllm)
    who = player(f"checkpoint:{path}", made, 1, PlayerOptions(sampler="local"))
    assert isinstance(who, CheckpointPlayer)
    assert (who.config.model.sampler, who.config.model.cache) == ("local", "auto")
    who.close()


def test_which_checkpoint_a_folder_stands_for(folder: Path, tmp_path: Path, made: EpisodeFactory) -> None:
    first, second = checkpoint.all_of(folder / "checkpoints")
    assert checkpoint_of(folder) == first
    assert checkpoint_of(second) == second
    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / first.name)
    assert checkpoint_of(tmp_path / "run").name == second.name
    with pytest.raises(ConfigError, match=r"no whole checkpoint in .*name a run's folder"):
        player(f"checkpoint:{tmp_path}", made)
    with pytest.raises(ConfigError, match="no whole checkpoint in"):
        player("checkpoint:", made)


def test_settings_of_another_version_are_refused(folder: Path, tmp_path: Path, made: EpisodeFactory) -> None:
    old = checkpoint.all_of(folder / "checkpoints")[0]
    state = {**checkpoint.read_state(old), "config": {"stepz": 3}}
    path = checkpoint.save(tmp_path, 0, state, lambda draft: (draft / "engine.pt").touch())
    with pytest.raises(ConfigError, match=r"was written with settings that this version does not read .*stepz"):
        player(f"checkpoint:{path}", made)


def test_it_says_what_it_is_made_of_so_that_other_weights_are_noticed(
    folder: Path, made: EpisodeFactory, greedy: CheckpointPlayer
) -> None:
    other = player(f"checkpoint:{folder / 'checkpoints' / 'step-000001'}", made)
    again = player(f"checkpoint:{folder}", made)
    assert isinstance(other, CheckpointPlayer)
    assert isinstance(again, CheckpointPlayer)
    assert greedy.made_of == again.made_of != other.made_of
    for one in (other, again):
        one.close()
