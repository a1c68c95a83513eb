"""The table and the picture of learning curves, from folders that are written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import learning


def run_folder(folder: Path, seed: int, shares: list[float], *, planned: bool = False) -> Path:
    (folder / "report").mkdir(parents=True)
    config = {"preset": "tiny", "algorithm": "grpo", "groups": 2, "rollouts": 5, "max_staleness": 0, "seed": seed}
    config["warm_start"] = {"planned": planned}
    summary = {
        "configuration": config,
        "of_oracle": {"value": shares[-1], "low": shares[-1] - 0.03, "high": shares[-1] + 0.03},
        "standings": {"policy": {"cents": 1.5}},
    }
    (folder / "report" / "summary.json").write_text(json.dumps(summary))
    rows = [
        {"kind": "eval", "step": 10 * n, "of_oracle": share, "policy/reward": share / 2, "oracle/reward": 0.5}
        for n, share in enumerate(shares)
    ]
    rows += [{"kind": "train", "step": n, "time/step": 6.0} for n in range(20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_plays_are_counted_to_the_first_evaluation_that_reaches_a_share(tmp_path: Path) -> None:
    curves = [
        learning.curve_of(run_folder(tmp_path / "a", 0, [0.2, 0.85, 0.96])),
        learning.curve_of(run_folder(tmp_path / "b", 1, [0.2, 0.7, 0.88])),
    ]
    row = learning.table(curves).splitlines()[-1]
    assert row == ("| tiny, grpo, 2 x 5 | 2 | 20% | 150 | 1 of 2 | 1 of 2 | 2.0 | 92.0% ± 2.1 (96.0%, 88.0%) | 1.50 |")


def test_the_picture_has_a_line_for_each_run_and_each_baseline(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", 3, [0.2, 0.85, 0.96])
    assert learning.main([str(folder), "--svg", str(tmp_path / "learning.svg")]) == 0
    drawn = (tmp_path / "learning.svg").read_text()
    assert drawn.count("<polyline") == 2
    assert "oracle" in drawn
    assert "seeds 3" in drawn


def test_of_a_planned_start_and_of_the_cascade_there_is_a_level_line(tmp_path: Path) -> None:
    """The cascade's from what `report --stages` kept; one task of it broke."""
    folder = run_folder(tmp_path / "a", 3, [0.2, 0.85, 0.96])
    plays = {"cascade": [[0.25, 1.0, 2.0, 9.0], None, [0.75, 1.0, 2.0, 9.0]]}
    stages = {"preferences": ["fast"] * 3, "stages": [], "readable": {}, "plays": plays}
    (folder / "report" / "stages.json").write_text(json.dumps(stages))
    planned = run_folder(tmp_path / "b", 3, [0.9, 0.95], planned=True)
    assert learning.curve_of(folder).levels["cascade"] == 0.5
    assert learning.main([str(folder), str(planned), "--svg", str(tmp_path / "learning.svg")]) == 0
    drawn = (tmp_path / "learning.svg").read_text()
    assert [drawn.count(f">{name}<") for name in ("oracle", "cascade", "planned start")] == [1, 1, 1]
    assert drawn.count("<polyline") == 4
    assert "seeds 3<" in drawn


def test_a_cascade_that_could_not_play_has_no_level_line(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", 3, [0.2, 0.85])
    for plays in ({}, {"cascade": [None, None]}):
        stages = {"preferences": ["fast"] * 2, "stages": [], "readable": {}, "plays": plays}
        (folder / "report" / "stages.json").write_text(json.dumps(stages))
        assert "cascade" not in learning.curve_of(folder).levels


def test_the_plane_has_a_point_with_both_intervals_for_each_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = run_folder(tmp_path / "a", 3, [0.2, 0.85]), tmp_path / "e"
    run.mkdir()
    policies: list[dict[str, Any]] = [
        {
            "env": "HLE-v0",
            "tasks": 20,
            "policy": name,
            "cents": {"mean": cents, "interval": [cents / 2, cents * 2]},
            "accuracy": {"value": 0.5, "interval": [0.3, 0.7]},
        }
        for name, cents in (("cheapest", 0.5), ("checkpoint:runs/tiny-seed3", 2.0))
    ]
    free, once = {"mean": 0.0, "interval": [0.0, 0.0]}, {"mean": 1.0, "interval": None}
    policies += [{**policies[0], "policy": name, "cents": cents} for name, cents in (("free", free), ("once", once))]
    (run / "summary.json").write_text(json.dumps({"policies": policies}))
    assert learning.main([str(folder), "--plane", str(run), "--plane-svg", str(tmp_path / "plane.svg")]) == 0
    told = "left out of the plane, without intervals or with cents of 0: free on HLE-v0, once on HLE-v0"
    assert told in capsys.readouterr().out.splitlines()
    drawn = (tmp_path / "plane.svg").read_text()
    assert drawn.count("<circle") == 2
    assert drawn.count('<line class="c"') == drawn.count('<line class="t"') == 2
    assert all(said in drawn for said in (">cheapest<", ">trained 3<", "HLE-v0, 20 tasks (simulated)"))
