"""The stages of a run on its held-out tasks: played once, kept, and beside the fixed players."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.agents.training.trained_models import write_run
from toolorchestra.agents.commands import stages as command
from toolorchestra.agents.evaluation.stages import StagesPlayed
from toolorchestra.agents.training import stages_of_a_run
from toolorchestra.agents.training.stages_of_a_run import stages_of
from toolorchestra.envs.base.errors import ConfigError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of which the weights after the supervised start and those of step 4 are kept."""
    made = write_run(tmp_path / "run")
    other = write_run(tmp_path / "other", scale=0.0)
    (first,) = (other / "checkpoints").iterdir()
    shutil.copytree(first, made / "checkpoints" / "step-000000")
    return made


def stages(run: Path, again: bool = False) -> StagesPlayed:
    return stages_of(run, 2, again=again, say=lambda _line: None)


def test_every_stage_and_every_fixed_player_plays_the_same_tasks(run: Path) -> None:
    played = stages(run)
    assert list(played.plays) == [
        *("before training", "supervised start", "trained"),
        *("cheapest", "strongest", "cascade", "oracle"),
    ]
    assert played.stages == ["before training", "supervised start", "trained"]
    assert {len(plays) for plays in played.plays.values()} == {len(played.wishes)} == {4}  # two worlds
    strongest, cheapest = ([p and p.cents for p in played.plays[name]] for name in ("strongest", "cheapest"))
    assert strongest != cheapest
    assert played.plays["trained"] != played.plays["before training"]  # they have other weights


def test_what_was_played_is_read_and_not_played_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = stages(run)
    with monkeypatch.context() as patched:
        patched.setattr(stages_of_a_run, "build", None)
        assert stages(run).as_json() == json.loads(json.dumps(played.as_json()))
        with pytest.raises(TypeError):
            stages(run, again=True)
    best = run / "checkpoints" / "step-000004"
    shutil.rmtree(best)
    shutil.copytree(run / "checkpoints" / "step-000000", best)  # other weights
    monkeypatch.setattr(stages_of_a_run, "build", None)
    with pytest.raises(TypeError):
        stages(run)


def test_weights_that_are_gone_are_told(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-000000")
    with pytest.raises(ConfigError, match="supervised start are played from it"):
        stages(run)


def test_the_command_prints_each_run_and_both_together(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(run), str(run), "--tasks", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("## run") == 2
    assert said.count("4 tasks.") == 2
    assert "8 tasks." in said.split("## All runs")[1]
    assert "supervised start → trained" in said
