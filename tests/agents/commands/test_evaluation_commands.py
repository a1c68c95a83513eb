"""compare, called in this process over runs made of rows: tables, new bills, and what other programs read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.command_line import unboxed
from toolorchestra.agents.commands import compare
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
    assert compare.main([str(run), "--reprice", str(sheet)]) == 0
    said = capsys.readouterr().out
    assert "3 trials: 0.006750 $ under paper-2025-11, 0.060000 $ under mine." in said
    assert [row.nano_usd for row in read_rows(tmp_path / "run-mine")] == [20_000_000] * 3
    assert compare.main([str(run), "--reprice", str(sheet)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert compare.main([str(run), "--reprice", str(sheet), "--out", str(tmp_path / "b")]) == 0
    assert compare.main([str(run), "--reprice", "no-such-sheet"]) == 2


def test_runs_under_other_prices_are_compared_under_one_sheet(run: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other"
    assert compare.main([str(run), "--reprice", "unseen-2026-01", "--out", str(other)]) == 0
    capsys.readouterr()
    assert compare.main([str(run), str(other)]) == 0
    assert "`toolorchestra compare RUN RUN --reprice SHEET` bills them anew" in capsys.readouterr().out
    words = ["--reprice", "paper-2025-11", "--format", "json", "--out", str(tmp_path / "same")]
    assert compare.main([str(run), str(other), *words]) == 0
    said = capsys.readouterr()
    (section,) = json.loads(said.out)["sections"]
    assert section["comparisons"][0]["cents"]["difference"] == 0
    assert f"written: {tmp_path / 'same' / 'other'}" in said.err
    assert (tmp_path / "same" / "run" / "page.html").is_file()


def test_a_run_is_exported(run: Path, tmp_path: Path, capsys: Capture) -> None:
    figures = ["--table", "figures"]
    assert compare.main([str(run), *figures]) == 0
    assert "2 right, 2 not known (2 not played), of 5: 40-80 %." in capsys.readouterr().out
    assert compare.main([str(run), "--format", "json", *figures]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["trials"]["unplayed"] == 2
    out = tmp_path / "figures.md"
    assert compare.main([str(run), "--format", "markdown", *figures, "--out", str(out)]) == 0
    assert "cheap" in out.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "."], "--out: a file in a folder that is there expected, got ."),
        (["--table", "figures", "--against", "nobody"], "no rows of a policy 'nobody'"),
        (["--reprice", "paper-2025-11", "--rescore"], "--reprice and --rescore: one after the other"),
        (["--backends", "judge=gpt-5"], "--backends goes with --rescore; leave it out"),
        (["--rescore", "--spend-cap", "-1"], "--spend-cap: a number of dollars above 0 expected"),
        ([".", "--table", "figures"], "are of one run, got 2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Path, words: list[str], says: str, capsys: Capture) -> None:
    assert ended(lambda: compare.main([str(run), *words])) == 2
    assert says.replace(" ", "") in unboxed(capsys.readouterr().err).replace(" ", "")


def ended(of: Callable[[], int]) -> int:
    """A command's exit code, whichever way it gives it."""
    try:
        return of()
    except SystemExit as left:
        return int(left.code or 0)
