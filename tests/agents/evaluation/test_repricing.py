"""A run billed anew: to the nano-dollar what the sheet says, and an estimate only where other prices were shown."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation.made_rows import made_row, write_run
from toolorchestra.agents.evaluation.repricing import reprice
from toolorchestra.agents.evaluation.rows import EvaluationRow, bill_of, read_rows
from toolorchestra.envs.base.actions import render_call as call
from toolorchestra.envs.base.errors import ConfigError, PriceError
from toolorchestra.envs.money.prices import Charge, PriceSheet, Tokens, Usage, load_sheet
from toolorchestra.envs.wrappers.record import RecordTrajectories

PAPER = load_sheet("paper-2025-11")
DOUBLE = PAPER.with_factors(dict.fromkeys(PAPER.prices, Decimal(2)), "double")


def usages(line: dict[str, Any]) -> list[Charge]:
    return [
        Charge(
            Usage(c["item"], c["role"], Tokens(**c["tokens"]), c["units"], c["seconds"], c["estimated"]),
            c["tool"],
            c["nano_usd"],
            c["sheet"],
        )
        for c in line["charges"]
    ]


def row_of_line(line: dict[str, Any], task: str) -> EvaluationRow:
    return replace(made_row(task, line["outcome"]["value"]), **bill_of(usages(line)), sheet="paper-2025-11")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two episodes as they are recorded."""
    path = tmp_path_factory.mktemp("recorded") / "trajectories.jsonl"
    env = RecordTrajectories(gym.make("ToolOrchestra/FRAMES-v0", split="test"), path)
    for seed in (11, 12):
        env.reset(seed=seed)
        for tool, model in (("search", "search-3"), ("answer", "answer-1")):
            env.step(call(tool, {"model": model}))
    env.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def a_run(folder: Path, lines: list[dict[str, Any]], **more: Any) -> Path:
    rows = [row_of_line(line, str(n)) for n, line in enumerate(lines)]
    write_run(folder, rows)
    keyed = [{**line, "key": list(row.key), **more} for line, row in zip(lines, rows, strict=True)]
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in keyed))
    return folder


def test_under_its_own_sheet_nothing_changes(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    run = a_run(tmp_path / "run", lines)
    made = reprice(run, PAPER, tmp_path / "again")
    assert list(read_rows(tmp_path / "again")) == list(read_rows(run))
    assert (made.trials, made.other_prices, made.estimate) == (2, 0, False)
    assert len(made.sentences()) == 1


def test_at_twice_the_price_it_costs_twice(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    run = a_run(tmp_path / "run", lines)
    made = reprice(run, DOUBLE, tmp_path / "new" / "folder")
    before, after = list(read_rows(run)), list(read_rows(tmp_path / "new" / "folder"))
    for old, new in zip(before, after, strict=True):
        assert abs(new.nano_usd - 2 * old.nano_usd) <= len(lines[0]["charges"])  # each charge is rounded
        assert new.nano_usd > 0
        assert (new.sheet, new.right, new.tokens) == ("double", old.right, old.tokens)
    assert made.estimate
    assert "2 of 2 prompts showed other prices than these" in made.sentences()[1]
    told = json.loads((tmp_path / "new" / "folder" / "manifest.json").read_text())["repriced"]
    assert (told["sheet"], told["estimate"], told["sheets_before"]) == ("double", True, ["paper-2025-11"])
    line = json.loads((tmp_path / "new" / "folder" / "trajectories.jsonl").read_text().splitlines()[0])
    assert line["totals"]["nano_usd"] == after[0].nano_usd == sum(c["nano_usd"] for c in line["charges"])
    assert (tmp_path / "new" / "folder" / "summary.json").is_file()


def test_a_prompt_without_prices_is_no_estimate(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    run = a_run(tmp_path / "run", lines, tools=[], messages=[{"role": "system", "content": "no price here"}])
    made = reprice(run, DOUBLE, tmp_path / "new")
    assert (made.no_prices, made.other_prices, made.estimate) == (2, 0, False)


def test_a_strict_budget_judges_anew(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    cost = row_of_line(lines[0], "0").agent_usd
    line = {**lines[0], "budget": cost * 1.5, "outcome": {"value": 1.0}}
    run = a_run(tmp_path / "run", [line])
    made = reprice(run, DOUBLE, tmp_path / "new")
    (row,) = read_rows(tmp_path / "new")
    assert (row.right, made.outcomes_changed) == (0.0, 1)
    assert row.over_budget_usd == pytest.approx(cost / 2, rel=1e-6)
    back = reprice(tmp_path / "new", PAPER, tmp_path / "back")
    assert [row.right for row in read_rows(tmp_path / "back")] == [1.0]
    assert back.outcomes_changed == 1


def test_of_several_tries_the_one_with_the_row_s_bill_counts(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    run = a_run(tmp_path / "run", lines[:1])
    path = run / "trajectories.jsonl"
    first = json.loads(path.read_text())
    other = {**first, "charges": first["charges"][:1]}
    path.write_text(json.dumps(other) + "\n" + json.dumps(first) + "\n" + json.dumps(other) + '\n{"torn')
    reprice(run, PAPER, tmp_path / "new")
    assert list(read_rows(tmp_path / "new")) == list(read_rows(run))


def test_what_cannot_be_billed_is_refused_and_nothing_is_left(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    run, out = a_run(tmp_path / "run", lines), tmp_path / "new"
    with pytest.raises(PriceError, match="cannot bill"):
        reprice(run, PriceSheet("few", "2026", "made up", {}), out)
    with pytest.raises(ConfigError, match="is there already"):
        reprice(run, PAPER, run)
    path = run / "trajectories.jsonl"
    whole = path.read_text()
    path.write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(ConfigError, match="1 of 2 trials have a bill and no trajectory"):
        reprice(run, PAPER, out)
    path.write_text("{}\n" + whole)
    with pytest.raises(ConfigError, match="line 1: expected a trajectory with its charges and key"):
        reprice(run, PAPER, out)
    path.write_text(whole.replace('"units": 0', '"units": -1'))
    with pytest.raises(PriceError, match="counts from 0 up"):
        reprice(run, PAPER, out)
    path.write_text(whole.replace('"units"', '"unitz"'))
    with pytest.raises(ConfigError, match="a charge cannot be read"):
        reprice(run, PAPER, out)
    path.unlink()
    with pytest.raises(ConfigError, match="no trajectories at"):
        reprice(run, PAPER, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
