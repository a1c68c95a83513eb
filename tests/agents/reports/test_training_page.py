"""The page over a training run: the rollouts it has dumped, by step, with rewards and why some taught nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.recorded_runs import record
from tests.agents.reports.test_evaluation_page import parts, transcripts
from tests.agents.reports.test_page_in_chromium import count, texts
from toolorchestra.agents.commands import page as page_command
from toolorchestra.agents.configuration.config import as_json
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.rows import ROWS, line_of
from toolorchestra.agents.reports.evaluation_page import write_page
from toolorchestra.agents.reports.page_data import read_run
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.wrappers import read_trajectories

FAILED = "the episode failed"


def run(folder: Path) -> Path:
    """Two steps of two rollouts each, of which the last failed."""
    file = record(folder / "made.jsonl", "HLE-v0", "cheapest", [1, 2, 3, 4], split="train")
    lines: list[dict[str, Any]] = list(read_trajectories(file))
    file.unlink()
    for place, line in enumerate(lines):
        training = {"step": 10 * (place // 2), "group": 0, "rollout": place % 2, "reward": 0.5 + place,
                    "parts": {}, "advantage": 1.0 - place, "left_out": ""}  # fmt: skip
        line |= {"training": training, "policy": "policy", "env": "HLE-v0"}
    lines[3] |= {"outcome": None, "failed": {"where": "sampler", "error": "Outage: gone"}}
    lines[3]["training"] |= {"reward": None, "advantage": None, "left_out": FAILED}
    (folder / ROLLOUTS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    return folder


def with_checkpoint(folder: Path, state: object) -> Path:
    place = folder / "checkpoints" / "step-000010"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps(state))
    return folder


def test_the_page_of_a_training_run_has_its_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    assert page_command.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "4 rollouts of 2 steps of training, by weights that change: no evaluation." in said
    assert f"{ROLLOUTS}: 1 lines could not be read: 5." in said
    (index,) = parts(tmp_path / "page.html", "index")
    assert [trial["training"]["step"] for trial in index["trials"]] == [0, 0, 10, 10]
    assert [(t["env"], t["policy"], t["status"]) for t in index["trials"][2:]] == [
        ("HLE-v0", "policy", "ended"),
        ("HLE-v0", "policy", "failed"),
    ]
    assert [one["training"]["left_out"] for one in transcripts(tmp_path / "page.html")] == ["", "", "", FAILED]
    assert index["title"] == tmp_path.name
    assert index["manifest"] is None


def test_what_was_asked_for_is_the_newest_checkpoints(tmp_path: Path) -> None:
    state = {"step": 10, "config": as_json(preset("tiny"))}
    manifest = read_run(with_checkpoint(run(tmp_path), state)).manifest
    assert manifest["simulated"] is True
    assert manifest["training"]["config"]["preset"] == "tiny"


@pytest.mark.parametrize("state", [[1], {"step": 1}, {"config": {"environments": [{"env_id": "Gone-v0"}]}}])
def test_a_checkpoint_of_another_version_says_nothing_of_simulation(tmp_path: Path, state: object) -> None:
    manifest = read_run(with_checkpoint(run(tmp_path), state)).manifest
    assert "simulated" not in (manifest or {})


def test_rows_of_an_evaluation_come_first_and_a_folder_of_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_bytes(line_of(read_run(run(tmp_path)).trials[0].row))
    assert len(read_run(tmp_path).trials) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no rows .* rollouts\.jsonl"):
        read_run(tmp_path / "empty")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_browser_filters_by_step_and_by_what_was_learnt_from(tmp_path: Path) -> None:
    page = write_page(run(tmp_path)).file
    with Chromium() as tab:
        tab.open(page, "view=trials")
        options = texts(tab, "[name=step] option")
        assert options == ["any", "0 (2)", "10 (2)"]
        tab.open(page, "view=trials&step=10")
        assert count(tab) == 2
        assert texts(tab, ".row .sums .policy") == ["reward 2.5", "reward none"]
        assert texts(tab, "[name=left] option") == ["any", "it was learnt from (1)", f"{FAILED} (1)"]
        tab.open(page, f"view=trials&left={FAILED.replace(' ', '+')}")
        assert count(tab) == 1
        tab.size(390, 844)
        tab.key("j")
        tab.until("document.querySelector('.facts-line')?.innerText.includes('taught nothing')")
        assert tab.value("document.documentElement.scrollWidth") <= 390
        assert tab.complaints == []
