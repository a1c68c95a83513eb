"""The stages of a run on its held-out tasks: played once and kept, beside baselines, and as tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.agents.training.trained_models import write_run
from toolorchestra.agents.commands import report
from toolorchestra.agents.reports import stages as of_stages
from toolorchestra.agents.reports.stages import StagesPlayed, TaskResult, as_markdown, stages_of, together
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
    assert {len(plays) for plays in played.plays.values()} == {len(played.preferences)} == {4}  # two worlds
    strongest, cheapest = ([p and p.cents for p in played.plays[name]] for name in ("strongest", "cheapest"))
    assert strongest != cheapest
    # Models of random weights all talk alike; so what was loaded is compared, and not what it said.
    loaded = of_stages._made_of(run, run / "checkpoints" / "step-000004", 2)["checkpoints"]
    assert len(set(loaded.values())) == 3


def test_what_was_played_is_read_and_not_played_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = stages(run)
    with monkeypatch.context() as patched:
        patched.setattr(of_stages, "build", None)
        assert stages(run).as_json() == json.loads(json.dumps(played.as_json()))
        with pytest.raises(TypeError):
            stages(run, again=True)
    best = run / "checkpoints" / "step-000004"
    shutil.rmtree(best)
    shutil.copytree(run / "checkpoints" / "step-000000", best)  # other weights
    monkeypatch.setattr(of_stages, "build", None)
    with pytest.raises(TypeError):
        stages(run)


def test_weights_that_are_gone_are_told(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-000000")
    with pytest.raises(ConfigError, match="supervised start are played from it"):
        stages(run)


def test_the_command_prints_each_run_and_both_together(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(run), str(run), "--stages", "--tasks", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("## run") == 2
    assert said.count("4 tasks.") == 2
    assert "8 tasks." in said.split("## All runs")[1]
    assert "supervised start → trained" in said


# -- as tables ---------------------------------------------------------------------------------------------------------


def played(*rewards: float) -> StagesPlayed:
    """The trained model earns these, and solves what it earns anything for; before it earned half of that."""
    after = [TaskResult(reward, float(reward > 0), 2.0, 5.0) for reward in rewards]
    before = [TaskResult(play.reward / 2, 0.0, 3.0, 5.0) for play in after]
    oracle = [TaskResult(1.0, 1.0, 1.0, 5.0) for _ in after]
    preferences = ["fast", "frugal"] * (len(rewards) // 2)
    readable = {"before": 0.5, "after": 1.0}
    return StagesPlayed(
        preferences, {"before": before, "after": after, "oracle": oracle}, ["before", "after"], readable
    )


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in cells}


def part(text: str, title: str) -> dict[str, list[str]]:
    """The table behind a title."""
    return rows(text.partition(title)[2].split("\n\n")[1])


def test_means_shares_and_differences() -> None:
    text = as_markdown(played(0.8, 0.8, 0.4, 0.0))
    found = rows(text)
    assert [cell.split()[0] for cell in found["after"][:4]] == ["0.500", "50.0%", "75.0%", "2.00"]
    assert found["after"][4:] == ["5", "100.0%"]
    assert found["before"][5] == "50.0%"
    by_preference = part(text, "by preference:")
    assert by_preference["fast"] == ["2", "0.30 / 0% / 3.00", "0.60 / 100% / 2.00", "1.00 / 100% / 1.00"]
    shares = part(text, "Share of the oracle's reward, by preference:")
    assert [cell.split()[0] for cell in shares["fast"]] == ["2", "30.0%", "60.0%"]
    assert shares["frugal"][2].startswith("40.0% [")
    change = found["before → after"]
    assert [cell.split()[0] for cell in change] == ["+0.250", "+75.0%", "-1.00"]
    assert change[2] == "-1.00 [-1.00, -1.00]"  # the same on every task: the pairs are what is drawn


def test_without_an_oracle_there_are_no_shares() -> None:
    whole = played(0.8, 0.8)
    plays = {name: some for name, some in whole.plays.items() if name != "oracle"}
    text = as_markdown(StagesPlayed(whole.preferences, plays, whole.stages, whole.readable))
    assert "Share of the oracle's reward" not in text


def test_a_task_that_somebody_failed_counts_for_nobody() -> None:
    whole = played(0.8, 0.8, 0.4, 0.0)
    plays = {**whole.plays, "before": [None, *whole.plays["before"][1:]]}
    found = as_markdown(StagesPlayed(whole.preferences, plays, whole.stages, whole.readable))
    assert "3 tasks." in found
    assert rows(found)["after"][0].startswith("0.400")
    assert rows(found)["oracle"][0].startswith("1.000")


def test_runs_are_put_together_task_by_task() -> None:
    both = together([played(0.8, 0.8), played(0.4, 0.0)])
    assert as_markdown(both) == as_markdown(played(0.8, 0.8, 0.4, 0.0))
