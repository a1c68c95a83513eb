"""compare, reprice and export, called in this process over runs made of rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from toolorchestra.agents.commands import compare, export, reprice
from toolorchestra.agents.evaluation.rows import read_rows

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    charge = {"item": "gpt-5", "role": "expert", "tool": "answer-1", "tokens": {"input": 1000, "output": 100}}
    charge |= {"units": 0, "seconds": 1.0, "estimated": False, "nano_usd": 2_250_000, "sheet": "paper-2025-11"}
    rows = [made_row(str(n), float(n > 0), nano_usd_by_role={"expert": 2_250_000}) for n in range(3)]
    folder = write_run(tmp_path / "run", rows)
    lines = [{"key": list(row.key), "charges": [charge], "messages": [], "tools": []} for row in rows]
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "manifest.json").write_text(json.dumps({"planned": [["HLE-v0", "test", "cheap", 5]]}))
    return folder


def test_runs_are_compared(run: Path, tmp_path: Path, capsys: Capture) -> None:
    other = write_run(tmp_path / "other", [made_row(str(n), 1.0, cents=9.0) for n in range(3)])
    assert compare.main([str(run), str(other)]) == 0
    assert "other: cheap" in capsys.readouterr().out
    assert compare.main([str(run), str(other), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### HLE-v0 test (paper-2025-11)")
    assert compare.main([str(run), str(other), "--format", "json", "--against", "cheap"]) == 0
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    assert section["comparisons"][0]["better"] == 1
    assert compare.main([str(run), str(other), "--against", "nobody"]) == 2
    assert "no policy 'nobody'" in capsys.readouterr().err
    assert compare.main([str(tmp_path / "nowhere")]) == 2
    assert "no rows of an evaluation" in capsys.readouterr().err


def test_a_run_is_billed_anew(run: Path, tmp_path: Path, capsys: Capture) -> None:
    sheet = tmp_path / "mine.json"
    price = {"usd_per_mtok": {"input": 10, "output": 100}}
    sheet.write_text(json.dumps({"id": "mine", "date": "2026", "source": "made up", "prices": {"gpt-5": price}}))
    assert reprice.main([str(run), str(sheet)]) == 0
    said = capsys.readouterr().out
    assert "3 trials: 0.006750 $ under paper-2025-11, 0.060000 $ under mine." in said
    assert [row.nano_usd for row in read_rows(tmp_path / "run-mine")] == [20_000_000] * 3
    assert reprice.main([str(run), str(sheet)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert reprice.main([str(run), str(sheet), "--out", str(tmp_path / "b")]) == 0
    assert reprice.main([str(run), "no-such-sheet"]) == 2


def test_a_run_is_exported(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert export.main([str(run)]) == 0
    assert "2 right, 2 not known (2 not played), of 5: 40-80 %." in capsys.readouterr().out
    assert export.main([str(run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["trials"]["unplayed"] == 2
    for form in ("csv", "markdown"):
        assert export.main([str(run), "--format", form]) == 0
        assert "cheap" in capsys.readouterr().out
    for form, first in (("csv", "env,split,policy"), ("json", "["), ("markdown", "| env | split")):
        assert export.main([str(run), "--format", form, "--table", "rows"]) == 0
        assert capsys.readouterr().out.startswith(first)
    out = tmp_path / "rows.csv"
    assert export.main([str(run), "--format", "csv", "--table", "rows", "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 4
    assert export.main([str(run), "--table", "rows"]) == 2
    assert "--table rows: --format csv, json, markdown expected, got text" in capsys.readouterr().err
    assert export.main([str(run), "--out", str(tmp_path)]) == 2
    assert export.main([str(run), "--baseline", "nobody"]) == 2
