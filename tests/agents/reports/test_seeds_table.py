"""The table over several runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolorchestra.agents.reports.seeds_table import as_markdown, read_summaries
from toolorchestra.envs.base.errors import ConfigError


def folder(place: Path, seed: int, share: float) -> Path:
    standing = {"reward": share / 2, "accuracy": 0.5, "cents": 1.0, "cents_per_solved": 2.0}
    reached = {"value": share, "low": share - 0.1, "high": share + 0.05}
    wish = {"policy": standing, "oracle": standing, "of_oracle": reached}
    names = ("policy", "oracle", "strongest", "cheapest", "random")
    probe = {"name": "p", "left": "a", "right": "b", "left_rate": 0.25, "right_rate": share}
    summary = {"seed": seed, "of_oracle": reached, "standings": dict.fromkeys(names, standing), "probes": [probe]}
    summary["by_wish"] = {"frugal": wish}
    (place / "report").mkdir(parents=True)
    (place / "report" / "summary.json").write_text(json.dumps(summary))
    return place


def test_mean_and_spread_of_each_row(tmp_path: Path) -> None:
    runs = [folder(tmp_path / str(seed), seed, share) for seed, share in ((0, 0.9), (1, 0.8), (2, 1.0))]
    rows = as_markdown(read_summaries(runs)).splitlines()
    assert rows[0] == "|  | seed 0 | seed 1 | seed 2 | mean | spread |"
    assert rows[2] == "| share of the oracle's reward | 90.0% | 80.0% | 100.0% | 90.0% | 20.0% |"
    assert rows[3] == "| low end of its interval | 80.0% | 70.0% | 90.0% | 80.0% | 20.0% |"
    assert "| wish frugal: share | 90.0% | 80.0% | 100.0% | 90.0% | 20.0% |" in rows
    assert "| wish frugal: oracle's ¢ a task | 1.00 | 1.00 | 1.00 | 1.00 | 0.00 |" in rows
    assert "| policy: reward | 0.450 | 0.400 | 0.500 | 0.450 | 0.100 |" in rows
    assert rows[-1] == "| probe: p, b | 0.90 | 0.80 | 1.00 | 0.90 | 0.20 |"


def test_a_player_that_solved_nothing_has_no_price_for_it(tmp_path: Path) -> None:
    (run,) = read_summaries([folder(tmp_path, 0, 0.9)])
    run["standings"]["random"] = {"reward": 0.1, "accuracy": 0.0, "cents_per_solved": None}
    assert "| random: ¢ a solved task | - | - | - |" in as_markdown([run]).splitlines()


def test_a_run_without_a_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no report yet"):
        read_summaries([tmp_path])
