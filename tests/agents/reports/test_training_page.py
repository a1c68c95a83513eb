"""The page of training runs: what the test came to, curves, and every episode; and several runs as a table."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.reports.recorded_runs import INJECTION, record, training_run, with_episodes
from tests.agents.reports.test_page import parts, transcripts
from tests.two_texts import raises
from toolorchestra.agents.commands import report
from toolorchestra.agents.configuration.config import EnvMix, as_json
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.rows import ROWS, line_of
from toolorchestra.agents.reports.page import read_run, write_page
from toolorchestra.agents.reports.training_data import MINE, read_training
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.wrappers import read_trajectories

LEFT_OUT = "the episode failed"


def rollouts_of(folder: Path) -> Path:
    """Two steps of two rollouts each, of which the last failed."""
    file = record(folder / "made.jsonl", "HLE-v0", "cheapest", [1, 2, 3, 4], split="train")
    lines: list[dict[str, Any]] = list(read_trajectories(file))
    file.unlink()
    for place, line in enumerate(lines):
        training = {"step": 10 * (place // 2), "group": 0, "rollout": place % 2, "reward": 0.5 + place,
                    "parts": {}, "advantage": 1.0 - place, "left_out": ""}  # fmt: skip
        line |= {"training": training, "policy": "policy", "env": "HLE-v0"}
    lines[3] |= {"outcome": None, "failed": {"where": "sampler", "error": "Outage: gone"}}
    lines[3]["training"] |= {"reward": None, "advantage": None, "left_out": LEFT_OUT}
    (folder / ROLLOUTS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    return folder


def with_checkpoint(folder: Path, state: object) -> Path:
    place = folder / "checkpoints" / "step-000010"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps(state))
    return folder


def test_the_page_of_a_training_run_has_its_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollouts_of(tmp_path)
    assert report.main([str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "4 rollouts of 2 steps of training, by weights that change: no evaluation." in said
    assert f"{ROLLOUTS}: 1 lines could not be read: 5." in said
    (index,) = parts(tmp_path / "page.html", "index")
    assert [trial["training"]["step"] for trial in index["trials"]] == [0, 0, 10, 10]
    assert [(t["env"], t["policy"], t["status"]) for t in index["trials"][2:]] == [
        ("HLE-v0", MINE, "ended"),
        ("HLE-v0", MINE, "failed"),
    ]
    assert [one["training"]["left_out"] for one in transcripts(tmp_path / "page.html")] == ["", "", "", LEFT_OUT]
    assert index["title"] == tmp_path.name
    assert index["manifest"] is None


def test_what_was_asked_for_is_the_newest_checkpoints(tmp_path: Path) -> None:
    state = {"step": 10, "config": as_json(preset("tiny"))}
    manifest = read_run(with_checkpoint(rollouts_of(tmp_path), state)).manifest
    assert manifest["simulated"] is True
    assert manifest["training"]["preset"] == "tiny"


def test_rows_of_an_evaluation_come_first_and_a_folder_of_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_bytes(line_of(read_run(rollouts_of(tmp_path)).trials[0].row))
    assert len(read_run(tmp_path).trials) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no run at .*; name a folder of"):
        read_run(tmp_path / "empty")


# -- a run that has ended ----------------------------------------------------------------------------------------------


def shown(folder: Path) -> dict[str, Any]:
    found = read_training([folder]).training
    assert found is not None
    return dict(found)


def test_the_page_says_what_a_run_reached_and_how_it_was_made(tmp_path: Path) -> None:
    found = shown(training_run(tmp_path / "run"))
    assert "solves 64.0% at 3.10 ¢ a task. It earns 90.0% [84.0%, 97.0%]" in found["lead"]
    facts = {name: value for name, value in found["facts"]}
    assert facts["parameters"] == "196,864, all trained"
    assert (facts["training took"], facts["began"]) == ("10 min", "2023-11-14 22:13 UTC")
    assert (facts["machine"], facts["trained by"]) == ("Fast CPU, 2 cores", "toolorchestra 9.8.7")
    assert [one["policy"] for one in found["players"]] == [MINE, "cheapest", "strongest", "oracle"]
    assert found["players"][0]["accuracy"] == [0.64, 0.6, 0.68]
    assert [one["title"] for one in found["tables"]] == [
        "The test",
        "By the user's preference",
        "Counterfactual probes",
    ]
    assert found["tables"][0]["rows"][0][2] == ("64.0%", "60.0% to 68.0%")
    held_out = found["curves"][0]
    assert [line["name"] for line in held_out["lines"]] == [MINE, "cheapest", "strongest", "oracle"]
    assert len(held_out["lines"][0]["band"]) == 5
    assert [len(one["lines"]) for one in found["curves"]] == [4, 4, 4, 1, 1]


def test_the_page_says_which_tasks_are_not_new(tmp_path: Path) -> None:
    run = training_run(tmp_path / "run")
    path = run / "report" / "summary.json"
    summary = json.loads(path.read_text())

    def lead(*mixes: EnvMix) -> str:
        configuration = as_json(replace(preset("tiny"), environments=mixes))
        path.write_text(json.dumps({**summary, "configuration": configuration}))
        return str(shown(run)["lead"])

    new, chosen = EnvMix("ToolOrchestra/HLE-v0"), EnvMix("Tau2-v0", validation="test")
    seen = EnvMix("m:Mine/Desk-v0", validation="train", test="train")
    assert lead(new).startswith("On tasks, prices, tools and wordings never trained on, as far as")
    assert "split" not in lead(new)
    assert lead(new, chosen).startswith("On tasks, prices, ")
    same = "The checkpoint was chosen on tasks of the same split of"
    assert f" ¢ a task. {same} Tau2-v0. It earns" in lead(new, chosen)
    assert lead(new, seen).startswith("On prices, tools and wordings never trained on, as far as")
    assert f". The test tasks of Desk-v0 are from the split that was trained on. {same} Desk-v0. It " in lead(new, seen)


def test_test_and_rollouts_are_on_one_page_and_no_text_is_part_of_its_html(tmp_path: Path) -> None:
    run = with_episodes(training_run(tmp_path / "run", name=f"odd {INJECTION}"))
    written = write_page(run)
    assert (written.file, written.trials) == (run / "page.html", 8)
    assert "4 rollouts of 1 steps of training are among the trajectories." in written.notes[0]
    (index,) = parts(written.file, "index")
    assert [bool(one.get("training")) for one in index["trials"]] == [False] * 4 + [True] * 4
    assert [one["status"] for one in index["trials"]][:4] == ["ended", "ended", "ended", "failed"]
    assert index["manifest"]["simulated"] is True
    text = written.file.read_text()
    assert "globalThis.ran" not in text
    assert '<h1 id="title"><span>Training</span> run</h1>' in text
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", text)


@pytest.mark.parametrize("text", ['{"standings": {"pol', "[]", "null", "{}", '{"standings": {"policy": {}}}', "\x00"])
def test_a_summary_that_cannot_be_read_is_named_with_what_to_do(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = training_run(tmp_path / "run")
    path = run / "report" / "summary.json"
    path.write_text(text)
    said = rf"^{re.escape(str(path))}: expected the figures of a report \(\w+: .*\); go on with the run, which writes"
    with raises(ConfigError, said, "toolorchestra train --resume"):
        read_training([run])
    assert report.main([str(run), str(training_run(tmp_path / "other"))]) == 2
    assert f"{path}: expected the figures of a report" in capsys.readouterr().err
    path.unlink()
    assert shown(run)["lead"] == ""


# -- several runs ------------------------------------------------------------------------------------------------------


def test_several_runs_are_one_page_and_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [training_run(tmp_path / f"run{seed}", seed=seed) for seed in (0, 1)]
    page = tmp_path / "all.html"
    assert report.main([*map(str, runs), "--out", str(page)]) == 0
    (index,) = parts(page, "index")
    assert index["title"] == "2 training runs"
    assert [one["policy"] for one in index["training"]["players"]] == ["run0", "run1"]
    assert [row[0] for row in index["training"]["tables"][0]["rows"]] == ["run0", "run1"]
    assert not (runs[0] / "page.html").exists()
    assert "| run1 | 90.0% (84.0% to 97.0%) | 0.600 | 64.0% | 3.10 |" in capsys.readouterr().out
    assert report.main([str(tmp_path / "run0"), "--out", str(tmp_path)]) == 2
