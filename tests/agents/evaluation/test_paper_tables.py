"""The paper's tables of made-up rows, by hand, and of a run of all three benchmarks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from toolorchestra.agents.commands import compare, evaluate
from toolorchestra.agents.evaluation.paper_tables import paper_tables
from toolorchestra.agents.evaluation.rows import EvaluationRow
from toolorchestra.envs.base.errors import ConfigError


def rows_of(label: str, right: list[int], **fields: Any) -> list[EvaluationRow]:
    return [made_row(str(n), float(one), env=label, **fields) for n, one in enumerate(right)]


def test_the_tables_by_hand() -> None:
    calls = {"calls": {"answer-1": 1, "search-1": 2}, "models": {"answer-1": "gpt-5", "search-1": "gpt-5"}}
    rows = [
        *rows_of("HLE-v0, tools=basic", [1, 0], cents=2.0, minutes=1.0, **calls),
        *rows_of("FRAMES-v0, tools=basic", [1, 1], cents=6.0, minutes=3.0),
        *rows_of("Tau2-v0, tools=basic", [0, 0], cents=99.0),
        *rows_of("HLE-v0, tools=paper", [1, 1], cents=4.0),
        *rows_of("Own-v0", [1]),
    ]
    main, calls_table = paper_tables(rows)
    of_mine = {(row[0], row[1]): row[2:] for row in main[1]}
    shares = [cell.split(" ")[0] for cell in of_mine["cheap", "basic tools"][:3]]
    assert (shares, of_mine["cheap", "basic tools"][3:]) == (["50.0", "100.0", "0.0"], ["4.00", "2.00"])
    assert of_mine["cheap", "all tools"][1:3] == ["-", "-"]
    assert of_mine["paper: Orchestrator-8B", "all tools"] == ["37.1", "76.3", "80.2", "9.2", "8.2"]
    assert of_mine["paper: GPT-5", "basic tools"] == ["35.1", "74.0", "77.7", "30.2", "19.8"]
    head, *called = calls_table[1]
    mine = dict(zip(head, next(row for row in called if row[:2] == ["cheap", "basic tools"]), strict=True))
    assert (mine["gpt-5"], mine["search"], mine["code"]) == ("1.0", "0.7", "0.0")  # 3 and 2 calls on one of three
    with pytest.raises(ConfigError, match="HLE-v0, FRAMES-v0, Tau2-v0 expected, got Own-v0"):
        paper_tables(rows_of("Own-v0", [1]))


def test_preference_is_the_mean_over_all_pairs() -> None:
    wish = {"preference": {"kind": "accurate", "weights": {"outcome": 1.0}, "sentence": "Be right."}}
    label = "HLE-v0, preference=accurate"
    rows = [*rows_of(label, [1, 0], **wish), *rows_of(label, [0, 0], policy="base", **wish)]
    (_, table), *_ = [one for one in paper_tables(rows, baseline="base") if "Table 3" in one[0]]
    assert ["cheap", "as played", "50.0", "-", "-"] in table
    assert ["paper: Orchestrator-8B", "all tools", "46.7", "68.4", "79.5"] in table


def test_runs_whose_folders_end_alike_stand_apart_and_a_policy_of_the_first_is_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, right in (("a/run", 1.0), ("b/run", 0.0)):
        write_run(Path(name), [made_row("1", right)])
    assert compare.main(["a/run", "b/run", "--table", "paper", "--against", "cheap"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^a/run: cheap +as played +100\.0 \(", said, re.MULTILINE)
    assert re.search(r"^b/run: cheap +as played +0\.0 \(", said, re.MULTILINE)


def test_one_word_plays_the_three_benchmarks_in_their_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["--env", "paper", "user=scripted", "--env", "HLE-v0", "max_turns=3", "--policy", "random", "--tasks", "1"]
    assert evaluate.main([*words, "--out", str(out)]) == 0
    capsys.readouterr()
    assert compare.main([str(out), "--table", "paper", "--format", "markdown"]) == 0
    said = capsys.readouterr().out
    assert "SIMULATED" in said
    assert [f"| random | {setting} |" in said for setting in ("no tools", "basic tools", "all tools")] == [True] * 3
    assert "| paper: Orchestrator-8B | all tools | 37.1 | 76.3 | 80.2 | 9.2 | 8.2 |" in said
    assert evaluate.main(["--env", "paper", "--env", "ToolScale-v0", "--policy", "random"]) == 2
    assert "--env paper goes with HLE-v0, FRAMES-v0, Tau2-v0 alone" in capsys.readouterr().err
